// Rotation of heads, for one instruction set and dtype.
#pragma once

#include <cstddef>

namespace dew::cpu {

struct RopeRoutines {
  // Sines and cosines of n angles position * frequency[i]; n is a multiple of 16.
  void (*tables)(double position, const double* frequency, std::size_t n, float* sin,
                 float* cos) = nullptr;
  // Turns the pairs (i, i + half) of one head.
  void (*turn)(const std::byte* from, const float* sin, const float* cos, std::size_t half,
               std::byte* to) = nullptr;
};

}  // namespace dew::cpu
