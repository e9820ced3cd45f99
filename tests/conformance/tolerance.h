// How far the kernels of an op may be from its reference.
#pragma once

#include <map>

#include "dew/ops/ops.h"

namespace dew {

// Allowed error of a float result, relative to the larger of 1 and the expected number.
struct Tolerance {
  double f32;          // in f32 programs
  double f32_of_bf16;  // f32 results of bf16 programs
  double bf16;         // results rounded to bf16
};

// Inputs are exact in their type, so f32 kernels err by rounding in short sums, and bf16 kernels by
// one rounding of the result more: half of 2^-7.
inline constexpr Tolerance kDefault{4e-6, 4e-6, 0x1p-8};

inline const std::map<const OpDef*, Tolerance> kTolerances = {
    {&attention_op,
     {1e-5, 1e-4, 0x1p-6}},  // weights are rounded to bf16 before their product with v
    {&attention_grad_op, {1e-5, 1e-4, 0x1p-6}},    // so are the cotangents of scores
    {&dot_op, {3e-5, 3e-5, 0x1p-8}},               // sums over up to 70 * 8 products
    {&scatter_add_rows_op, {2e-5, 2e-5, 0x1p-8}},  // sums over up to 70 * 8 updates
    {&rms_norm_grad_op, {2e-5, 2e-5, 0x1p-8}},     // scale's gradient sums over all rows
    {&layer_norm_grad_op, {2e-5, 2e-5, 0x1p-8}},
    {&head_loss_op,
     {2e-5, 0x1p-4,
      0x1p-6}},  // so are the cotangents of logits, of which the table's gradient sums many
    {&scan_op, {2e-5, 2e-5, 0x1p-4}},  // every value in the body is rounded
};

inline Tolerance tolerance_of(const OpDef& op) {
  const auto found = kTolerances.find(&op);
  return found == kTolerances.end() ? kDefault : found->second;
}

inline double allowed(const Tolerance& t, DType floats, DType result) {
  if (!is_float(result)) return 0.0;
  if (result == DType::bf16) return t.bf16;
  return floats == DType::bf16 ? t.f32_of_bf16 : t.f32;
}

}  // namespace dew
