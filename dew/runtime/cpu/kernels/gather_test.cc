#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

// Some outside of the table, many equal.
std::vector<double> some_ids(std::int64_t n, std::int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> ids;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto draw = static_cast<std::int64_t>(random());
    ids.push_back(draw % 7 == 0 ? -1
                  : draw % 11 == 0
                      ? static_cast<double>(rows)
                      : static_cast<double>(draw / 128 % std::max<std::int64_t>(1, rows)));
  }
  return ids;
}

std::vector<Array> reference(const KernelTest& t) {
  std::vector<Array> in;
  std::vector<Type> results;
  for (std::size_t i = 0; i < t.step.inputs.size(); ++i) {
    Array a(t.step.inputs[i].type.shape);
    a.data = t.operand(i);
    in.push_back(std::move(a));
  }
  for (const View& v : t.step.outputs) results.push_back(v.type);
  return t.step.op->reference(t.step.attrs, in, results);
}

TEST(GatherRows, MatchesReference) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t e : {0, 1, 5, 64, 257}) {
        for (const std::int64_t n : {0, 1, 18, 1000}) {
          KernelTest t;
          t.step.op = &gather_rows_op;
          t.input(Type{dtype, {33, e}}, random_values(33 * e, 1));
          t.input(Type{DType::i32, {n}}, some_ids(n, 33, 2));
          t.output(Type{dtype, {n, e}});
          const auto want = reference(t);
          ASSERT_TRUE(t.run(make_gather_rows, 3));
          EXPECT_EQ(t.result(), want[0].data);
        }
      }
    }
  });
}

TEST(GatherRows, ViewOfTableAndIds) {
  KernelTest t;
  t.step.op = &gather_rows_op;
  t.step.inputs.push_back(t.view(t.buffer(DType::f32, 20 * 9, random_values(20 * 9, 1)),
                                 Type{DType::f32, {20, 7}}, {9, 1}, 2));
  t.step.inputs.push_back(
      t.view(t.buffer(DType::i32, 24, some_ids(24, 20, 3)), Type{DType::i32, {4, 6}}, {1, 4}));
  t.output(Type{DType::f32, {4, 6, 7}});
  const auto want = reference(t);
  ASSERT_TRUE(t.run(make_gather_rows));
  EXPECT_EQ(t.result(), want[0].data);
}

void scatter_case(DType dtype, std::int64_t v, std::int64_t e, std::int64_t n, int base_kind,
                  unsigned seed) {
  KernelTest t;
  t.step.op = &scatter_add_rows_op;
  const Type table{DType::f32, {v, e}};
  if (base_kind == 0)
    t.step.inputs.push_back(t.view(t.buffer(DType::f32, 1, {0.0}), table, {0, 0}));
  else
    t.input(table, random_values(v * e, 1));
  t.input(Type{DType::i32, {n}}, some_ids(n, v, 2));
  t.input(Type{dtype, {n, e}}, random_values(n * e, 3));
  if (base_kind == 2)
    t.output_over(0);
  else if (base_kind == 3)
    t.output_donated(0);
  else
    t.output(table);
  const auto want = reference(t);
  ASSERT_TRUE(t.run(make_scatter_add_rows, seed));
  expect_close(t.result(), want[0].data, 1e-6, 3e-7 * static_cast<double>(n),
               std::to_string(v) + "," + std::to_string(e) + "," + std::to_string(n));
}

TEST(ScatterAddRows, MatchesReference) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const int base_kind : {0, 1, 2, 3}) {
        for (const std::int64_t e : {0, 1, 5, 257}) {
          for (const std::int64_t n : {0, 1, 18, 700}) scatter_case(dtype, 33, e, n, base_kind, 4);
        }
        scatter_case(dtype, 40, 1025, 100, base_kind, 2);
        scatter_case(dtype, 1, 300, 500, base_kind, 2);
        scatter_case(dtype, 0, 8, 5, base_kind, 2);
      }
    }
  });
}

TEST(ScatterAddRows, SameBitsInAnyOrder) {
  for_each_target([] {
    std::vector<std::byte> first;
    for (const unsigned seed : {0u, 1u, 2u}) {
      KernelTest t;
      t.step.op = &scatter_add_rows_op;
      t.input(Type{DType::f32, {50, 512}}, random_values(50 * 512, 1));
      t.input(Type{DType::i32, {40, 20}}, some_ids(800, 50, 2));
      t.input(Type{DType::bf16, {40, 20, 512}}, random_values(800 * 512, 3));
      t.output_over(0);
      ASSERT_TRUE(t.run(make_scatter_add_rows, seed));
      if (seed == 0) first = t.buffers[0].copy();
      EXPECT_TRUE(t.buffers[0].copy() == first);
    }
  });
}

}  // namespace
}  // namespace dew::cpu
