#include "dew/runtime/cpu/kernels/dot.h"

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/dot_pack.h"
#include "dew/runtime/cpu/kernels/dot_test_runner.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

struct Case {
  std::string name;
  DotDims dims;
  Dims a_shape, b_shape, c_shape;
  Dims a_order, b_order, c_order;
  std::int64_t a_gap = 0, b_gap = 0, c_gap = 0;
};

// Row-major offsets of all indices of some dimensions of an array.
std::vector<std::size_t> offsets(const Dims& shape, const Dims& dims) {
  const Dims strides = row_major_strides(shape);
  Dims sizes;
  for (const auto d : dims) sizes.push_back(shape[static_cast<std::size_t>(d)]);
  std::vector<std::size_t> all;
  for_each_index(sizes, [&](const Dims& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < dims.size(); ++i)
      offset += index[i] * strides[static_cast<std::size_t>(dims[i])];
    all.push_back(static_cast<std::size_t>(offset));
  });
  return all;
}

Dims others(const Dims& shape, const Dims& batch, const Dims& contracted) {
  Dims free;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(shape.size()); ++d) {
    if (!contains(batch, d) && !contains(contracted, d)) free.push_back(d);
  }
  return free;
}

// Every element of every dimension, in double.
std::vector<double> reference(const Case& c, TestArray& a, TestArray& b) {
  const auto x = a.values(), y = b.values();
  const auto a_batch = offsets(c.a_shape, c.dims.lhs_batch),
             b_batch = offsets(c.b_shape, c.dims.rhs_batch);
  const auto a_k = offsets(c.a_shape, c.dims.lhs_contract),
             b_k = offsets(c.b_shape, c.dims.rhs_contract);
  const auto a_free = offsets(c.a_shape, others(c.a_shape, c.dims.lhs_batch, c.dims.lhs_contract));
  const auto b_free = offsets(c.b_shape, others(c.b_shape, c.dims.rhs_batch, c.dims.rhs_contract));
  std::vector<double> out;
  for (std::size_t batch = 0; batch < a_batch.size(); ++batch) {
    for (const auto m : a_free) {
      for (const auto n : b_free) {
        double sum = 0;
        for (std::size_t k = 0; k < a_k.size(); ++k)
          sum += x[a_batch[batch] + m + a_k[k]] * y[b_batch[batch] + n + b_k[k]];
        out.push_back(sum);
      }
    }
  }
  return out;
}

void check(const Case& c, DType in, DType out, bool accumulate) {
  const std::string what = c.name + " " + std::string(name(in)) + "->" + std::string(name(out)) +
                           (accumulate ? " +=" : "");
  std::mt19937 rng(7);
  TestArray a(in, c.a_shape, c.a_order, c.a_gap), b(in, c.b_shape, c.b_order, c.b_gap),
      result(out, c.c_shape, c.c_order, c.c_gap);
  a.fill_random(rng);
  b.fill_random(rng);
  std::vector<double> expected = reference(c, a, b);
  if (accumulate) {
    result.fill_random(rng);
    const auto before = result.values();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
  }
  Step step;
  step.op = &dot_op;
  step.attrs = c.dims;
  a.view.buffer = 0, b.view.buffer = 1, result.view.buffer = 2;
  step.inputs = {a.view, b.view};
  if (accumulate) step.inputs.push_back(result.view);
  step.outputs = {result.view};
  std::string why_not;
  const auto kernel = make_dot(step, why_not);
  ASSERT_NE(kernel, nullptr) << what << ": " << why_not;
  const auto start = result.bytes;
  std::vector<std::byte> first;
  for (const Order order : {Order::forward, Order::backward, Order::threads}) {
    result.bytes = start;
    std::vector<std::byte*> operands = {a.bytes.data(), b.bytes.data()};
    if (accumulate) operands.push_back(result.bytes.data());
    operands.push_back(result.bytes.data());
    run_kernel(*kernel, operands, order);
    if (order == Order::forward) first = result.bytes;
    ASSERT_EQ(first, result.bytes) << what << ": bits depend on the order of pieces";
  }
  // Sums of f32 round 2^-24 a term; a bf16 result once, 2^-8.
  expect_close(result.values(), expected, out == DType::bf16 ? 1.0 / 256 : 2e-6,
               what + " " + kernel->implementation());
  // Nothing outside the view was written.
  TestArray outside(out, c.c_shape, c.c_order, c.c_gap);
  const auto values = result.values();
  std::size_t i = 0;
  for_each_index(c.c_shape, [&](const Dims& index) { outside.set(index, values[i++]); });
  ASSERT_EQ(outside.bytes, result.bytes) << what;
}

void check_all(Case c) {
  c.dims.out = DType::f32;
  for (const bool accumulate : {false, true}) {
    check(c, DType::f32, DType::f32, accumulate);
    check(c, DType::bf16, DType::f32, accumulate);
    c.dims.out = DType::bf16;
    check(c, DType::bf16, DType::bf16, accumulate);
    c.dims.out = DType::f32;
  }
}

DotDims contract(Dims a, Dims b) { return {{}, {}, std::move(a), std::move(b), DType::f32}; }

TEST(Dot, OddSizesInAllLayouts) {
  for (const std::int64_t m : {1, 5, 18, 65}) {
    for (const std::int64_t n : {1, 7, 130}) {
      for (const std::int64_t k : {1, 7, 33}) {
        for (const Dims& order : {Dims{0, 1}, Dims{1, 0}}) {
          check_all({"nn", contract({1}, {0}), {m, k}, {k, n}, {m, n}, order, {}, {}});
          check_all({"nt", contract({1}, {1}), {m, k}, {n, k}, {m, n}, order, {}, {}, 3, 5, 7});
          check_all({"tn", contract({0}, {0}), {k, m}, {k, n}, {m, n}, {}, order, {}, 1, 0, 2});
        }
      }
    }
  }
}

TEST(Dot, ManyPieces) {
  check_all({"rows", contract({1}, {0}), {260, 64}, {64, 130}, {260, 130}, {}, {}, {}});
  check_all({"columns", contract({1}, {1}), {9, 96}, {1030, 96}, {9, 1030}, {}, {}, {}, 0, 8, 0});
  check_all(
      {"weight gradient", contract({0}, {0}), {200, 130}, {200, 190}, {130, 190}, {}, {}, {}});
}

// As when a model generates: few rows times large matrices, cut along k and along n.
TEST(Dot, FewRows) {
  for_each_target([] {
    for (const std::int64_t m : {1, 3}) {
      for (const Dims& w : {Dims{777, 131}, Dims{258, 1100}, Dims{1, 70000}, Dims{3000, 9}}) {
        const std::int64_t k = w[0], n = w[1];
        check_all({"nn", contract({1}, {0}), {m, k}, {k, n}, {m, n}, {}, {}, {}, 0, 5, 0});
        check_all({"tn", contract({0}, {1}), {k, n}, {m, k}, {n, m}, {}, {}, {}});
      }
      check_all({"batches",
                 {{0}, {0}, {2}, {1}, DType::f32},
                 {3, m, 500},
                 {3, 500, 130},
                 {3, m, 130},
                 {},
                 {},
                 {}});
    }
  });
}

TEST(Dot, LayersOfATransformer) {
  check_all({"x w", contract({2}, {0}), {3, 7, 33}, {33, 2, 9}, {3, 7, 2, 9}, {}, {}, {}});
  check_all({"dx", contract({2, 3}, {1, 2}), {3, 7, 2, 9}, {33, 2, 9}, {3, 7, 33}, {}, {}, {}});
  check_all({"dw", contract({0, 1}, {0, 1}), {3, 7, 33}, {3, 7, 2, 9}, {33, 2, 9}, {}, {}, {}});
  // Columns of a wider buffer: rows and T still merge in the product, not in memory.
  check_all({"strided dw",
             contract({0, 1}, {0, 1}),
             {3, 70, 33},
             {3, 70, 18},
             {33, 18},
             {1, 0, 2},
             {},
             {},
             5,
             0,
             0});
}

TEST(Dot, Batches) {
  const DotDims dims{{0}, {0}, {2}, {1}, DType::f32};
  check_all({"batch", dims, {5, 17, 33}, {5, 33, 18}, {5, 17, 18}, {}, {}, {}});
  check_all({"batch inside",
             dims,
             {5, 17, 33},
             {5, 33, 18},
             {5, 17, 18},
             {1, 0, 2},
             {1, 0, 2},
             {1, 0, 2}});
  check_all({"batch innermost",
             dims,
             {5, 17, 33},
             {5, 33, 18},
             {5, 17, 18},
             {1, 2, 0},
             {1, 2, 0},
             {1, 2, 0}});
  check_all({"large batch", dims, {6, 130, 65}, {6, 65, 130}, {6, 130, 130}, {}, {}, {}});
  check_all({"one row each", dims, {9, 1, 65}, {9, 65, 130}, {9, 1, 130}, {}, {}, {}});
}

TEST(Dot, ResultsOfAnyLayout) {
  check_all({"transposed result",
             contract({1}, {0}),
             {65, 33},
             {33, 18},
             {65, 18},
             {},
             {},
             {1, 0},
             0,
             0,
             3});
  check_all({"strided result",
             contract({2}, {0}),
             {5, 7, 33},
             {33, 18},
             {5, 7, 18},
             {},
             {},
             {0, 2, 1},
             0,
             0,
             1});
  check_all({"scattered result",
             contract({2}, {0}),
             {5, 7, 600},
             {600, 18},
             {5, 7, 18},
             {},
             {},
             {2, 1, 0}});
}

TEST(Dot, OnEveryInstructionSet) {
  for_each_target([] {
    for (const std::int64_t m : {1, 2, 3, 4, 9}) {
      check_all({"nn", contract({1}, {0}), {m, 77}, {77, 130}, {m, 130}, {}, {}, {}});
      check_all({"nt", contract({1}, {1}), {m, 77}, {35, 77}, {m, 35}, {}, {}, {}, 0, 3, 0});
    }
  });
}

TEST(Dot, RepeatedOperand) {
  Case c{"repeated", contract({1}, {0}), {6, 40}, {40, 18}, {6, 18}, {}, {}, {}};
  std::mt19937 rng(3);
  TestArray a(DType::f32, {1, 40}), b(DType::f32, c.b_shape), out(DType::f32, c.c_shape);
  a.fill_random(rng);
  b.fill_random(rng);
  a.view.type.shape = {6, 40};
  a.view.strides = {0, 1};
  const auto expected = reference(c, a, b);
  Step step;
  step.op = &dot_op;
  step.attrs = c.dims;
  step.inputs = {a.view, b.view};
  step.outputs = {out.view};
  std::string why_not;
  const auto kernel = make_dot(step, why_not);
  ASSERT_NE(kernel, nullptr) << why_not;
  run_kernel(*kernel, {a.bytes.data(), b.bytes.data(), out.bytes.data()}, Order::forward);
  expect_close(out.values(), expected, 2e-6, "repeated");
}

TEST(Dot, EmptySizes) {
  check_all({"no rows", contract({1}, {0}), {0, 33}, {33, 18}, {0, 18}, {}, {}, {}});
  check_all({"no columns", contract({1}, {0}), {5, 33}, {33, 0}, {5, 0}, {}, {}, {}});
  check_all({"no terms", contract({1}, {0}), {5, 0}, {0, 18}, {5, 18}, {}, {}, {}, 0, 0, 3});
  check_all({"scalars", contract({0}, {0}), {33}, {33}, {}, {}, {}, {}});
}

TEST(Dot, Refusals) {
  TestArray a(DType::f32, {2, 3}), b(DType::bf16, {3, 4}), c(DType::f32, {2, 4});
  Step step;
  step.op = &dot_op;
  step.attrs = contract({1}, {0});
  step.inputs = {a.view, b.view};
  step.outputs = {c.view};
  std::string why_not;
  EXPECT_EQ(make_dot(step, why_not), nullptr);
  EXPECT_EQ(why_not, "dot: operands must be both f32 or both bf16");
}

TEST(Product, TellsItsImplementationAndTakesManyThreads) {
  const Product p({.m = 5, .n = 6, .k = 7, .a_row = 7, .b_row = 6, .c_row = 6});
  EXPECT_FALSE(p.implementation().starts_with("ref"));
  std::vector<float> a(35, 1.0f), b(42, 2.0f);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 40; ++t) {  // more than there are prepared argument lists
    threads.emplace_back([&] {
      std::vector<float> c(30), scratch(p.scratch_bytes() / 4 + 1);
      for (int i = 0; i < 50; ++i) p.execute(a.data(), b.data(), c.data(), scratch.data());
      for (const float x : c) EXPECT_EQ(x, 14.0f);
    });
  }
}

}  // namespace
}  // namespace dew::cpu
