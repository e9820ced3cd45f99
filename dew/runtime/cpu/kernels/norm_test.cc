#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

struct NormCase {
  const OpDef* op;
  MakeKernel make;
  int vectors;  // operands f32[e] behind x
  bool layer, grad;
};
const NormCase kCases[] = {
    {&rms_norm_op, make_rms_norm, 1, false, false},
    {&rms_norm_grad_op, make_rms_norm_grad, 1, false, true},
    {&layer_norm_op, make_layer_norm, 2, true, false},
    {&layer_norm_grad_op, make_layer_norm_grad, 1, true, true},
};

// Operands as Arrays for the row's reference.
std::vector<Array> arrays(const KernelTest& t) {
  std::vector<Array> out;
  for (std::size_t i = 0; i < t.step.inputs.size(); ++i) {
    Array a(t.step.inputs[i].type.shape);
    a.data = t.operand(i);
    out.push_back(std::move(a));
  }
  return out;
}

std::vector<Type> result_types(const Step& step) {
  std::vector<Type> in;
  for (const View& v : step.inputs) in.push_back(v.type);
  return step.op->infer(step.attrs, in);
}

Step step_of(const NormCase& c) {
  Step step;
  step.op = c.op;
  step.attrs = c.grad ? Attrs(NoAttrs{}) : Attrs(Number{1e-5});
  return step;
}

void add_operands(KernelTest& t, const NormCase& c, DType dtype, const Dims& shape) {
  const Type x{dtype, shape}, vector{DType::f32, {shape.back()}},
      statistic{DType::f32, {shape.begin(), shape.end() - 1}};
  t.input(x, random_values(x.elements(), 1));
  for (int k = 0; k < c.vectors; ++k)
    t.input(vector, random_values(vector.elements(), 2 + static_cast<unsigned>(k)));
  if (!c.grad) return;
  if (c.layer) t.input(statistic, random_values(statistic.elements(), 5, -0.5, 0.5));
  t.input(statistic, random_values(statistic.elements(), 6, 0.5, 1.5));
  t.input(x, random_values(x.elements(), 7));
}

void check(KernelTest& t, const NormCase& c, const std::string& what, unsigned seed) {
  const auto want = c.op->reference(t.step.attrs, arrays(t), result_types(t.step));
  ASSERT_TRUE(t.run(c.make, seed)) << what;
  for (std::size_t o = 0; o < want.size(); ++o) {
    const View& v = t.step.outputs[o];
    const bool sums = v.type.rank() == 1 && c.grad && o > 0;
    const double many =
        sums ? std::sqrt(static_cast<double>(t.step.inputs[0].type.elements()) + 1) : 1;
    expect_close(t.result(o), stored(v.type.dtype, want[o].data), 4 * rounding(v.type.dtype),
                 2e-6 * many, what + " result " + std::to_string(o));
  }
}

TEST(Norm, MatchesReference) {
  const Dims shapes[] = {{1, 1},    {3, 5},        {7, 16},   {2, 3, 17}, {33, 64},
                         {5, 65},   {2, 4, 3, 16}, {300, 18}, {130, 33},  {9, 1000},
                         {3, 4097}, {0, 8},        {4, 0},    {700, 100}};
  for_each_target([&] {
    for (const NormCase& c : kCases) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Dims& shape : shapes) {
          KernelTest t;
          t.step = step_of(c);
          add_operands(t, c, dtype, shape);
          for (const Type& type : result_types(t.step)) t.output(type);
          check(t, c, std::string(c.op->name) + " " + join(shape) + " " + std::string(name(dtype)),
                3);
        }
      }
    }
  });
}

TEST(Norm, InPlaceAndOrderOfPieces) {
  for_each_target([] {
    for (const NormCase& c : kCases) {
      std::vector<std::byte> first;
      for (const unsigned seed : {0u, 1u, 2u}) {
        KernelTest t;
        t.step = step_of(c);
        add_operands(t, c, DType::f32, {700, 65});
        const auto types = result_types(t.step);
        t.output_over(c.grad && seed == 2 ? t.step.inputs.size() - 1 : 0);
        for (std::size_t o = 1; o < types.size(); ++o) t.output(types[o]);
        check(t, c, c.op->name, seed);
        std::vector<std::byte> bytes;
        for (const View& v : t.step.outputs) {
          const auto part = t.buffers[static_cast<std::size_t>(v.buffer)].copy();
          bytes.insert(bytes.end(), part.begin(), part.end());
        }
        if (seed == 0) first = bytes;
        EXPECT_TRUE(bytes == first) << c.op->name << " seed " << seed;
      }
    }
  });
}

// Rows of a larger array, and a wider gap between them.
TEST(Norm, StridedRows) {
  for_each_target([] {
    for (const NormCase& c : kCases) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        KernelTest t;
        t.step = step_of(c);
        add_operands(t, c, dtype, {4, 9, 24});
        const int b = t.buffer(dtype, 4 * 9 * 72, random_values(4 * 9 * 72, 11));
        t.step.inputs[0] = t.view(b, Type{dtype, {4, 9, 24}}, {9 * 72, 72, 1}, 24);
        for (const Type& type : result_types(t.step)) t.output(type);
        check(t, c, c.op->name, 0);
      }
    }
  });
}

TEST(Norm, RefusesWhatItCannotRead) {
  KernelTest t;
  t.step = step_of(kCases[0]);
  add_operands(t, kCases[0], DType::i32, {4, 8});
  t.output(Type{DType::i32, {4, 8}});
  t.output(Type{DType::f32, {4}});
  std::string why_not;
  EXPECT_EQ(make_rms_norm(t.step, why_not), nullptr);
  EXPECT_FALSE(why_not.empty());
}

}  // namespace
}  // namespace dew::cpu
