#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

const DType kTypes[] = {DType::f32, DType::bf16, DType::i32, DType::pred};

std::vector<double> numbers(DType dtype, std::int64_t n) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] =
        dtype == DType::pred ? static_cast<double>(i * i % 3 == 1) : static_cast<double>(i % 251);
  return x;
}

struct CopyCase {
  Dims shape, from, to;
};

TEST(Copy, AnyStrides) {
  const std::vector<CopyCase> cases = {
      {{}, {}, {}},
      {{0, 3}, {3, 1}, {3, 1}},
      {{1000}, {1}, {1}},
      {{70, 90}, {1, 70}, {90, 1}},  // transposed
      {{70, 90}, {90, 1}, {1, 70}},
      {{3, 17, 5, 33},
       {17 * 5 * 33, 33, 17 * 33, 1},
       {2805, 165, 33, 1}},  // [b,h,t,d] to [b,t,h,d]
      {{3, 17, 5, 33}, {2805, 1, 17, 85}, {2805, 165, 33, 1}},
      {{20, 30}, {0, 1}, {30, 1}},  // repeated rows
      {{20, 30}, {1, 0}, {30, 1}},
      {{20, 30}, {0, 0}, {30, 1}},
      {{20, 30}, {60, 2}, {40, 1}},
      {{4, 1, 65, 3}, {195, 77, 1, 65}, {195, 5, 3, 1}},
      {{300, 200}, {1, 300}, {256, 1}},
  };
  for_each_target([&] {
    for (const CopyCase& c : cases) {
      for (const DType dtype : kTypes) {
        KernelTest t;
        const Type type{dtype, c.shape};
        t.step.inputs.push_back(
            t.view(t.buffer(dtype, 80000, numbers(dtype, 80000)), type, c.from));
        t.step.outputs.push_back(t.view(t.buffer(dtype, 80000), type, c.to));
        ASSERT_TRUE(t.run(make_copy, 3));
        EXPECT_EQ(t.result(), t.operand(0))
            << join(c.shape) << " " << join(c.from) << " " << join(c.to);
      }
    }
  });
}

std::vector<double> reference(const KernelTest& t) {
  std::vector<Array> in;
  for (std::size_t i = 0; i < t.step.inputs.size(); ++i) {
    Array a(t.step.inputs[i].type.shape);
    a.data = t.operand(i);
    in.push_back(std::move(a));
  }
  return t.step.op->reference(t.step.attrs, in, std::vector<Type>{t.step.outputs[0].type})[0].data;
}

TEST(Pad, MatchesReference) {
  for (const DType dtype : kTypes) {
    KernelTest t;
    t.step.op = &pad_op;
    t.step.attrs = PadDims{{1, 0, 2}, {0, 3, 0}};
    t.input(Type{dtype, {20, 30, 17}}, numbers(dtype, 20 * 30 * 17));
    t.output(Type{dtype, {21, 33, 19}});
    ASSERT_TRUE(t.run(make_pad, 2));
    EXPECT_EQ(t.result(), reference(t));
  }
}

TEST(Concatenate, MatchesReference) {
  for (const DType dtype : kTypes) {
    for (std::size_t dim = 0; dim < 3; ++dim) {
      KernelTest t;
      t.step.op = &concatenate_op;
      t.step.attrs = Axes{{static_cast<std::int64_t>(dim)}};
      Dims shape = {20, 30, 17}, result = shape;
      result[dim] = 0;
      for (const std::int64_t size : {5, 0, 33}) {
        shape[dim] = size;
        result[dim] += size;
        t.input(Type{dtype, shape}, numbers(dtype, element_count(shape)));
      }
      t.output(Type{dtype, result});
      ASSERT_TRUE(t.run(make_concatenate, 2));
      EXPECT_EQ(t.result(), reference(t));
    }
  }
}

}  // namespace
}  // namespace dew::cpu
