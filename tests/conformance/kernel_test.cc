// The CPU runtime against the reference interpreter: every op alone, in f32 and bf16, through plan
// and kernels.
#include <algorithm>
#include <cmath>
#include <map>

#include "dew/compile.h"
#include "dew/ir/interpret.h"
#include "dew/runtime/cpu/cpu.h"
#include "tests/conformance/by_op.h"

namespace dew {
namespace {

// Allowed error of a float result, relative to the larger of 1 and the expected number.
struct Tolerance {
  double f32;          // in f32 programs
  double f32_of_bf16;  // f32 results of bf16 programs
  double bf16;         // results rounded to bf16
};

// Inputs are exact in their type, so f32 kernels err by rounding in short sums, and bf16 kernels by
// one rounding of the result more: half of 2^-7.
constexpr Tolerance kDefault{4e-6, 4e-6, 0x1p-8};

const std::map<const OpDef*, Tolerance> kTolerances = {
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

Tolerance tolerance_of(const OpDef& op) {
  const auto found = kTolerances.find(&op);
  return found == kTolerances.end() ? kDefault : found->second;
}

double allowed(const Tolerance& t, DType floats, DType result) {
  if (!is_float(result)) return 0.0;
  if (result == DType::bf16) return t.bf16;
  return floats == DType::bf16 ? t.f32_of_bf16 : t.f32;
}

void expect_close(const Array& found, const Array& expected, double relative) {
  ASSERT_EQ(found.shape, expected.shape);
  for (std::size_t i = 0; i < found.data.size(); ++i) {
    const double a = found.data[i], b = expected.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_LE(std::fabs(a - b), relative * std::max(1.0, std::fabs(b)))
        << "element " << i << ": " << a << " for " << b;
  }
}

Backend& backend() {
  static const std::unique_ptr<Backend> cpu = cpu_backend(2);
  return *cpu;
}

constexpr int kRounds = 30, kLongFrom = 20;

class Kernel : public ByOp {};
DEW_FOR_EVERY_OP(Kernel, op_samples());

TEST_P(Kernel, EqualsReference) {
  const OpSample& row = GetParam();
  DType floats = DType::f32;
  int samples = 0;
  const auto check = [&](const Sample& sample) {
    if (samples++ == kRounds) floats = DType::bf16;
    const std::vector<Array> expected = interpret(sample.program, sample.inputs);
    const std::vector<Array> found = run_program(sample.program, sample.inputs, backend());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      const int value = sample.program.outputs()[i].value;
      const DType result = sample.program.values()[static_cast<std::size_t>(value)].type.dtype;
      expect_close(found[i], expected[i], allowed(tolerance_of(*row.op), floats, result));
    }
  };
  for_samples(row, kRounds, {}, check, kLongFrom);
}

}  // namespace
}  // namespace dew
