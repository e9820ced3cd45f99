#include <limits>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

void add_counters(KernelTest& t, std::int64_t rows, std::int64_t columns) {
  t.input(Type{DType::u32, {2}}, {123456789, 4000000000.0});
  t.input(Type{DType::i32, {}}, {3});
  t.input(Type{DType::i32, {}}, {1001});
  std::vector<double> row_ids, column_ids;
  for (std::int64_t r = 0; r < rows; ++r)
    row_ids.push_back(r + 1 == rows ? -1 : static_cast<double>(7 * r));  // a pad
  for (std::int64_t c = 0; c < columns; ++c)
    column_ids.push_back(static_cast<double>(columns - c + 5));
  t.input(Type{DType::i32, {rows}}, row_ids);
  t.input(Type{DType::i32, {columns}}, column_ids);
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

const std::vector<Dims> kShapes = {{1, 1},     {0, 3},      {3, 0},          {5, 7},
                                   {4, 9, 1},  {3, 5, 4},   {3, 5, 6},       {2, 3, 64},
                                   {2, 3, 65}, {4, 33, 18}, {2, 2, 3, 1000}, {3, 2, 0}};

TEST(RandomBits, EqualsReference) {
  for_each_target([] {
    for (const Dims& shape : kShapes) {
      KernelTest t;
      t.step.op = &random_bits_op;
      t.step.attrs = RandomAttrs{5, 0, {shape.begin() + 2, shape.end()}};
      add_counters(t, shape[0], shape[1]);
      t.output(Type{DType::u32, shape});
      ASSERT_TRUE(t.run(make_random_bits, 2));
      EXPECT_EQ(t.result(), reference(t)) << join(shape);
    }
  });
}

TEST(Dropout, KeepsWhatReferenceKeeps) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const double rate : {0.0, 0.1, 0.5, 0.999}) {
        for (const Dims& shape : kShapes) {
          KernelTest t;
          t.step.op = &dropout_op;
          t.step.attrs = RandomAttrs{5, rate, {}};
          std::vector<double> x = random_values(element_count(shape), 3, 1, 2);
          t.input(Type{dtype, shape}, x);
          add_counters(t, shape[0], shape[1]);
          t.output_over(0);
          const auto want = reference(t);
          const auto expected = stored(dtype, want);
          ASSERT_TRUE(t.run(make_dropout, 2));
          const auto got = t.result();
          for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i] == 0, want[i] == 0);
          expect_close(got, expected, rounding(dtype), 0, join(shape));
        }
      }
    }
  });
}

TEST(Dropout, DroppedNaNIsZero) {
  for_each_target([] {
    KernelTest t;
    t.step.op = &dropout_op;
    t.step.attrs = RandomAttrs{1, 0.5, {}};
    t.input(Type{DType::f32, {4, 4, 100}},
            std::vector<double>(1600, std::numeric_limits<double>::quiet_NaN()));
    add_counters(t, 4, 4);
    t.output(Type{DType::f32, {4, 4, 100}});
    ASSERT_TRUE(t.run(make_dropout));
    std::size_t zeros = 0;
    for (const double y : t.result()) zeros += y == 0 ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(zeros), 800, 120);
  });
}

}  // namespace
}  // namespace dew::cpu
