// The CPU runtime against the reference interpreter: every op alone, in f32 and bf16, through plan
// and kernels.
#include <algorithm>
#include <cmath>

#include "dew/compile.h"
#include "dew/ir/interpret.h"
#include "dew/runtime/cpu/cpu.h"
#include "tests/conformance/by_op.h"
#include "tests/conformance/tolerance.h"

namespace dew {
namespace {

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
