// Counter-based random numbers: a pure function of key and counter, so the same weights, masks and
// orders appear on every mesh, process count and backend. Generator: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace dew {

struct RandomKey {
  std::uint32_t lo = 0, hi = 0;
  bool operator==(const RandomKey&) const = default;
};

// Four independent 32-bit words for one counter under one key.
inline std::array<std::uint32_t, 4> philox(RandomKey key, std::array<std::uint32_t, 4> counter) {
  std::uint32_t k0 = key.lo, k1 = key.hi;
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const auto hi0 = static_cast<std::uint32_t>(p0 >> 32), lo0 = static_cast<std::uint32_t>(p0);
    const auto hi1 = static_cast<std::uint32_t>(p1 >> 32), lo1 = static_cast<std::uint32_t>(p1);
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// A key for a purpose: the first two words of philox(key, {a, b, c, d}).
inline RandomKey fold(RandomKey key, std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0,
                      std::uint32_t d = 0) {
  const auto words = philox(key, {a, b, c, d});
  return {words[0], words[1]};
}

RandomKey key_from_seed(std::uint64_t seed);

// A key for a name (a parameter's initial values, the order of an epoch): XXH3-64 of the name as
// counter.
RandomKey fold(RandomKey key, std::string_view name);

// In (0, 1), from the upper 23 bits: never 0, never 1, exact in f32.
inline float uniform(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

// out[i] = std * z(first + i), z standard normal: element n is word n % 4 of philox(key, n / 4)
// through the inverse of the normal distribution function, so any part of an array can be filled
// alone. Threads may fill parts side by side.
void fill_normal(RandomKey key, std::uint64_t first, float std, std::span<float> out);

// The same for a normal distribution cut to two standard deviations and then widened to variance
// one.
void fill_truncated_normal(RandomKey key, std::uint64_t first, float std, std::span<float> out);

}  // namespace dew
