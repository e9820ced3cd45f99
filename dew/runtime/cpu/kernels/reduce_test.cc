#include <limits>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

struct ReduceCase {
  Dims shape, dims;
};
const std::vector<ReduceCase> kCases = {
    {{}, {}},
    {{7}, {0}},
    {{1000}, {0}},
    {{70000}, {0}},
    {{4097}, {}},
    {{3, 5}, {0}},
    {{3, 5}, {1}},
    {{300, 768}, {0}},
    {{300, 65}, {1}},
    {{300, 65}, {0, 1}},
    {{2, 150, 33}, {0, 1}},
    {{2, 150, 33}, {1}},
    {{2, 150, 33}, {0, 2}},
    {{5, 1, 17, 1}, {1, 2}},
    {{5, 1, 17, 1}, {0, 3}},
    {{4, 16, 3, 18}, {1, 3}},
    {{4, 16, 3, 18}, {0, 2}},
    {{0, 5}, {0}},
    {{5, 0}, {0}},
    {{5, 0}, {1}},
    {{1, 1}, {0, 1}},
    {{2, 3000}, {0}},
    {{60000, 3}, {0}},
    {{3, 60000}, {1}},
    {{129, 1030}, {0}},
};

Dims kept_shape(const Dims& shape, const Dims& dims) {
  Dims kept;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!contains(dims, static_cast<std::int64_t>(d))) kept.push_back(shape[d]);
  }
  return kept;
}

void check(KernelTest& t, const std::string& what, unsigned seed) {
  Array x(t.step.inputs[0].type.shape);
  x.data = t.operand(0);
  const auto want = t.step.op->reference(t.step.attrs, std::vector<Array>{x},
                                         std::vector<Type>{t.step.outputs[0].type});
  ASSERT_TRUE(t.run(make_reduce, seed)) << what;
  const DType dtype = t.step.outputs[0].type.dtype;
  double largest = 0;
  for (const double e : x.data) largest = std::max(largest, std::fabs(e));
  const double noise = 5e-7 * largest * std::sqrt(static_cast<double>(x.data.size()));
  expect_close(t.result(), stored(dtype, want[0].data), is_float(dtype) ? rounding(dtype) : 0,
               is_float(dtype) ? noise : 0, what);
}

TEST(Reduce, MatchesReference) {
  for_each_target([] {
    for (const OpDef* op : {&reduce_sum_op, &reduce_max_op}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u32}) {
        for (const ReduceCase& c : kCases) {
          KernelTest t;
          t.step.op = op;
          t.step.attrs = Axes{c.dims};
          t.input(Type{dtype, c.shape},
                  random_values(element_count(c.shape), 1, dtype == DType::u32 ? 0 : -100, 100));
          t.output(Type{dtype, kept_shape(c.shape, c.dims)});
          check(t,
                std::string(op->name) + " " + join(c.shape) + " over " + join(c.dims) + " " +
                    std::string(name(dtype)),
                3);
        }
      }
    }
  });
}

TEST(Reduce, StridedViews) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Dims& dims :
           std::vector<Dims>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}, {}}) {
        for (const Dims& strides :
             std::vector<Dims>{{1, 20, 400}, {400, 1, 20}, {0, 30, 2}, {800, 40, 1}, {0, 0, 0}}) {
          KernelTest t;
          t.step.op = &reduce_sum_op;
          t.step.attrs = Axes{dims};
          const Type type{dtype, {20, 20, 20}};
          t.step.inputs.push_back(
              t.view(t.buffer(dtype, 20000, random_values(20000, 1)), type, strides));
          t.output(Type{dtype, kept_shape(type.shape, dims)});
          check(t, join(strides) + " over " + join(dims), 2);
        }
      }
    }
  });
}

TEST(Reduce, SameBitsInAnyOrder) {
  for_each_target([] {
    for (const ReduceCase& c : kCases) {
      std::vector<std::byte> first;
      for (const unsigned seed : {0u, 1u, 2u}) {
        KernelTest t;
        t.step.op = &reduce_sum_op;
        t.step.attrs = Axes{c.dims};
        t.input(Type{DType::f32, c.shape}, random_values(element_count(c.shape), 1));
        t.output(Type{DType::f32, kept_shape(c.shape, c.dims)});
        ASSERT_TRUE(t.run(make_reduce, seed));
        if (seed == 0) first = t.buffers[1].copy();
        EXPECT_TRUE(t.buffers[1].copy() == first);
      }
    }
  });
}

// A million equal numbers: a plain sum in f32 would be off by percents.
TEST(Reduce, LongSumsStayAccurate) {
  for_each_target([] {
    for (const bool columns : {false, true}) {
      KernelTest t;
      t.step.op = &reduce_sum_op;
      t.step.attrs = Axes{{0}};
      const std::int64_t n = columns ? 200000 : 1000000;
      t.input(Type{DType::f32, columns ? Dims{n, 4} : Dims{n}},
              std::vector<double>(static_cast<std::size_t>(columns ? 4 * n : n), 0.1f));
      t.output(Type{DType::f32, columns ? Dims{4} : Dims{}});
      ASSERT_TRUE(t.run(make_reduce));
      EXPECT_NEAR(t.result()[0] / (static_cast<double>(0.1f) * static_cast<double>(n)), 1.0, 1e-6);
    }
  });
}

TEST(Reduce, MaximumPassesNaN) {
  for_each_target([] {
    for (const Dims& dims : {Dims{0}, Dims{1}}) {
      KernelTest t;
      t.step.op = &reduce_max_op;
      t.step.attrs = Axes{dims};
      std::vector<double> x(70 * 70, 1.0);
      x[35 * 70 + 35] = std::numeric_limits<double>::quiet_NaN();
      t.input(Type{DType::f32, {70, 70}}, x);
      t.output(Type{DType::f32, {70}});
      ASSERT_TRUE(t.run(make_reduce));
      for (std::size_t i = 0; i < 70; ++i) EXPECT_EQ(std::isnan(t.result()[i]), i == 35);
    }
  });
}

TEST(SumSquares, MatchesDouble) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t n : {0, 1, 3, 17, 33, 1000, 4097, 100000}) {
        KernelTest t;
        t.step.op = &sum_squares_op;
        t.input(Type{dtype, {n}}, random_values(n, 1));
        t.output(Type{DType::f32, {}});
        double want = 0;
        for (const double x : t.operand(0)) want += x * x;
        ASSERT_TRUE(t.run(make_sum_squares, 2));
        EXPECT_NEAR(t.result()[0], want, 1e-7 * want);
      }
      KernelTest t;
      t.step.op = &sum_squares_op;
      t.step.inputs.push_back(
          t.view(t.buffer(dtype, 3000, random_values(3000, 2)), Type{dtype, {50, 30}}, {1, 100}));
      t.output(Type{DType::f32, {}});
      double want = 0;
      for (const double x : t.operand(0)) want += x * x;
      ASSERT_TRUE(t.run(make_sum_squares));
      EXPECT_NEAR(t.result()[0], want, 1e-7 * want);
    }
  });
}

}  // namespace
}  // namespace dew::cpu
