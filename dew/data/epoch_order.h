// The order of an epoch: a permutation that is computed, not stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dew {

// A pseudo-random bijection of [0, n), a pure function of (n, seed, epoch): any entry costs the
// same few dozen operations and no memory, so a run can resume at any position and every process
// sees one order.
//
// A Feistel network over the next power of two, walked until it lands below n (less than two rounds
// of it on average).
class EpochOrder {
 public:
  // REQUIRES: 1 <= n <= 2^62.
  EpochOrder(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

  std::int64_t epoch() const { return epoch_; }
  // Entry i. REQUIRES: 0 <= i < n.
  std::int64_t operator()(std::int64_t i) const;

 private:
  static constexpr std::size_t kMaxRounds = 24;

  std::uint64_t shuffle(std::uint64_t x) const;

  std::int64_t epoch_;
  std::uint64_t n_;
  int low_bits_;
  std::uint64_t low_mask_, high_mask_;
  std::size_t rounds_;
  std::array<std::uint64_t, kMaxRounds> keys_{};
};

}  // namespace dew
