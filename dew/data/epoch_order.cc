#include "dew/data/epoch_order.h"

#include <bit>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/rng.h"

namespace dew {
namespace {

// Spreads every bit of a half and its key over the word. The constants are odd and look random;
// nothing else matters.
std::uint64_t mix(std::uint64_t half, std::uint64_t key) {
  std::uint64_t x = (half + key) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

}  // namespace

EpochOrder::EpochOrder(std::int64_t n, std::uint64_t seed, std::int64_t epoch)
    : epoch_(epoch), n_(static_cast<std::uint64_t>(n)) {
  DEW_CHECK(1 <= n && n <= std::int64_t{1} << 62, format("a permutation of {}", n));
  const int bits = static_cast<int>(std::bit_width(n_ - 1));
  low_bits_ = (bits + 1) / 2;
  low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;

  // Halves of few bits mix slowly: with 5 entries all 120 orders are equally frequent only from
  // some 20 rounds on (permutation_test.cc).
  rounds_ = bits <= 12 ? kMaxRounds : 8;
  const RandomKey order = fold(key_from_seed(seed), "data/order");
  const auto counter = static_cast<std::uint64_t>(epoch);
  for (std::uint32_t round = 0; round < rounds_; ++round) {
    const RandomKey key = fold(order, static_cast<std::uint32_t>(counter),
                               static_cast<std::uint32_t>(counter >> 32), round);
    keys_[round] = std::uint64_t{key.hi} << 32 | key.lo;
  }
}

std::uint64_t EpochOrder::shuffle(std::uint64_t x) const {
  std::uint64_t low = x & low_mask_, high = x >> low_bits_;
  for (std::size_t round = 0; round < rounds_; round += 2) {
    high ^= mix(low, keys_[round]) & high_mask_;
    low ^= mix(high, keys_[round + 1]) & low_mask_;
  }
  return high << low_bits_ | low;
}

std::int64_t EpochOrder::operator()(std::int64_t i) const {
  auto x = static_cast<std::uint64_t>(i);
  DEW_CHECK(x < n_, format("entry {} of {}", i, n_));
  // The walk follows the cycle of x, which comes back to x < n at the latest: it ends, and two
  // walks never meet.
  do {
    x = shuffle(x);
  } while (x >= n_);
  return static_cast<std::int64_t>(x);
}

}  // namespace dew
