// Copies of matrices with a change of layout or dtype, for products that cannot read or write their
// operands in place.
#pragma once

#include <cstdint>

#include "dew/base/dtype.h"

namespace dew::cpu {

// A matrix of f32 or bf16 in memory; strides in elements.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0, col = 1;

  void* at(std::int64_t r, std::int64_t c) const {
    return static_cast<char*>(data) + (r * row + c * col) * byte_size(dtype);
  }
};

// to[r, c] = from[r, c]. Rounds to nearest even; fast where columns are contiguous on both sides.
void copy_matrix(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols);

// to[i] += from[i].
void add_row(float* to, const float* from, std::int64_t n);

void fill_zero(const Matrix& to, std::int64_t rows, std::int64_t cols);

}  // namespace dew::cpu
