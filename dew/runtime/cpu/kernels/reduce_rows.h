// Sums and maxima of runs and of columns, for one instruction set, operation and dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dew/base/dtype.h"

namespace dew::cpu {

inline constexpr std::size_t kReduceLanes = 16;  // partial results of a run, side by side

struct Reducer {
  // acc[j] joined with element j of each of `count` <= 4 rows; with `fresh` acc holds nothing yet.
  void (*columns)(const std::byte* const* rows, int count, std::size_t n, bool fresh, float* acc);
  // to[j] joined with from[j].
  void (*join)(const float* from, float* to, std::size_t n);
  // What joins without effect.
  void (*clear)(float* to, std::size_t n);
  // n elements side by side joined to `lanes`; and the lanes to one.
  void (*run)(const std::byte* from, std::size_t n, float* lanes);
  float (*finish)(const float* lanes);
  // to[r] = the n elements at from + r * stride bytes.
  void (*rows)(const std::byte* from, std::int64_t stride, std::size_t count, std::size_t n,
               float* to);
};

// Elements of `dtype` in memory; results are f32 (floats), or the same integers.
const Reducer& reducer(DType dtype, bool maximum);

// Sum of squares in double.
using SumSquares = double (*)(const std::byte* from, std::size_t n);
SumSquares sum_squares_of(DType dtype);

}  // namespace dew::cpu
