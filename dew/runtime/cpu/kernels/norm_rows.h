// Norms of rows that lie one behind the other, for one instruction set.
#pragma once

#include <cstdint>

#include "dew/base/dtype.h"

namespace dew::cpu {

// Rows of x (and y, or g and dx) hold e elements f32 or bf16; everything else is f32. Results may
// lie over operands.
struct NormRows {
  const std::byte* x = nullptr;
  const std::byte* g = nullptr;  // cotangent of y
  std::byte* y = nullptr;        // y or dx
  const float* scale = nullptr;  // [e]
  const float* bias = nullptr;   // [e]
  float* mean = nullptr;         // a row: written by the norms, read by their gradients
  float* r = nullptr;
  float* dscale = nullptr;  // [e]: the rows' sums are added
  float* dbias = nullptr;
  std::int64_t rows = 0, e = 0;
  float epsilon = 0;
};

struct NormTable {
  using Routine = void (*)(const NormRows& rows);
  Routine rms[2], rms_grad[2], layer[2], layer_grad[2];  // for f32, for bf16
  void (*add)(const float* from, float* to, std::int64_t n);
};

const NormTable& norm_table();

}  // namespace dew::cpu
