// Pointwise ops on tiles of 32-bit elements.
#pragma once

#include <cstddef>
#include <span>

#include "dew/ir/op.h"
#include "dew/runtime/cpu/kernels/copy_range.h"

namespace dew::cpu {

struct MicroArgs {
  float* to = nullptr;      // may be the place of an operand
  Operand operands[3];
  std::size_t n = 0;        // elements; nothing behind them is read or written
  double number = 0;        // exponent of pow
};

using MicroFn = void (*)(const MicroArgs& args);

// The routine of an op for the best instruction set of this machine: null if there is none. `operands` are dtypes of the
// operands, `result` that of the result; registers of bf16 values hold f32.
MicroFn find_micro(const OpDef* op, const Attrs& attrs, std::span<const DType> operands, DType result);

// The op leaves the bits of a register as they are (stop_gradient, f32 to bf16 before it is stored).
bool is_identity(const OpDef* op, DType operand, DType result);

}  // namespace dew::cpu
