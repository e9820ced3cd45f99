// Random words and what dropout makes of them, for one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dew/base/rng.h"

namespace dew::cpu {

// Philox counters are made for so many at once; each gives four words.
inline constexpr std::size_t kCounters = 64;

struct CounterBlock {
  std::uint32_t word[3][kCounters];  // the first three words of the counters; the fourth is 0
};

struct RandomRoutines {
  // words[4 i + w] = word w of philox(key, counter i).
  void (*philox)(RandomKey key, const CounterBlock& counters, std::uint32_t* words);
  // y = scale x where the upper 24 bits of the word are at least `least`, else 0.
  void (*drop)(const float* x, const std::uint32_t* words, std::uint32_t least, float scale,
               std::size_t n, float* y);
};

const RandomRoutines& random_routines();

}  // namespace dew::cpu
