#include <limits>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"

namespace dew::cpu {
namespace {

const std::vector<std::int64_t> kSizes = {0, 1, 3, 5, 7, 16, 17, 18, 33, 65, 1000, 4097, 40000};

// A group under test, and what it means: the scalar functions of the rows, in double.
struct GroupTest : KernelTest {
  Dims shape;

  FusedGroup& group() { return step.group; }

  int add_input(DType dtype, Dims strides, const std::vector<double>& data) {
    const int b = buffer(dtype, static_cast<std::int64_t>(data.size()), data);
    step.inputs.push_back(view(b, Type{dtype, shape}, std::move(strides)));
    group().inputs.push_back(dtype);
    return static_cast<int>(group().inputs.size()) - 1;
  }
  int dense(DType dtype, unsigned seed, double low = -2, double high = 2) {
    return add_input(dtype, row_major_strides(shape),
                     random_values(element_count(shape), seed, low, high));
  }
  int op(const OpDef& row, std::vector<int> registers, DType dtype, Attrs attrs = NoAttrs{}) {
    group().ops.push_back(MicroOp{&row, std::move(attrs), std::move(registers), dtype});
    return static_cast<int>(group().inputs.size() + group().ops.size()) - 1;
  }
  void add_output(int reg, DType dtype) {
    output(Type{dtype, shape});
    group().outputs.push_back(reg);
  }
  void add_output_over(std::size_t i, int reg, bool donated = false) {
    if (donated)
      output_donated(i);
    else
      output_over(i);
    group().outputs.push_back(reg);
  }

  // One list of values an output; to be called before the kernel runs in place.
  std::vector<std::vector<double>> expected() {
    group().shape = shape;
    std::vector<std::vector<double>> registers;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) registers.push_back(operand(i));
    for (const MicroOp& m : group().ops) {
      std::vector<double> y(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t i = 0; i < y.size(); ++i) {
        double x[3] = {};
        for (std::size_t k = 0; k < m.registers.size(); ++k)
          x[k] = registers[static_cast<std::size_t>(m.registers[k])][i];
        y[i] = m.op->scalar(m.attrs, x);
      }
      registers.push_back(std::move(y));
    }
    std::vector<std::vector<double>> out;
    for (std::size_t o = 0; o < group().outputs.size(); ++o) {
      out.push_back(stored(step.outputs[o].type.dtype,
                           registers[static_cast<std::size_t>(group().outputs[o])]));
    }
    return out;
  }

  void check(double relative, double absolute, const std::string& what = {}, unsigned seed = 0) {
    const auto want = expected();
    ASSERT_TRUE(run(make_fused, seed)) << what;
    for (std::size_t o = 0; o < want.size(); ++o) {
      expect_close(result(o), want[o], relative, absolute, what + " output " + std::to_string(o));
    }
  }
};

TEST(Fused, EverySizeAndDType) {
  for_each_target([] {
    for (const std::int64_t n : kSizes) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        GroupTest t;
        t.shape = {n};
        const int x = t.dense(dtype, 1), y = t.dense(dtype, 2);
        const int sum = t.op(add_op, {x, y}, dtype);
        t.add_output(t.op(tanh_op, {t.op(mul_op, {sum, x}, dtype)}, dtype), dtype);
        t.check(2 * rounding(dtype), 1e-6, std::to_string(n) + std::string(name(dtype)));
      }
    }
  });
}

struct Unary {
  const OpDef* op;
  double low, high;
  double relative, absolute;
};

TEST(Fused, EveryUnaryOp) {
  const Unary cases[] = {
      {&neg_op, -1e9, 1e9, 0, 0},
      {&exp_op, -100, 88, 2e-7, 1e-44},
      {&log_op, 0, 1e9, 2e-7, 0},
      {&log_op, 0.5, 1.5, 2e-7, 0},
      {&sqrt_op, 0, 1e9, 1e-7, 0},
      {&rsqrt_op, 0, 1e9, 2e-7, 0},
      {&tanh_op, -10, 10, 3e-7, 0},
      {&tanh_op, -1e-2, 1e-2, 3e-7, 0},
      {&logistic_op, -100, 100, 4e-7, 1e-44},
      {&erf_op, -5, 5, 2e-7, 0},
      {&sin_op, -100, 100, 2e-7, 1e-8},
      {&cos_op, -100, 100, 2e-7, 1e-8},
      {&sin_op, -1e8, 1e8, 2e-7, 1e-8},
      {&abs_op, -1e9, 1e9, 0, 0},
      {&sign_op, -1, 1, 0, 0},
      {&floor_op, -1000, 1000, 0, 0},
      {&silu_op, -20, 20, 4e-7, 0},
      {&silu_slope_op, -20, 20, 1e-6, 3e-7},
      {&gelu_tanh_op, -10, 10, 4e-7, 1e-7},
      {&gelu_tanh_slope_op, -10, 10, 4e-7, 4e-7},
      {&gelu_erf_op, -10, 10, 4e-7, 1e-7},
      {&gelu_erf_slope_op, -10, 10, 4e-7, 4e-7},
      {&stop_gradient_op, -1, 1, 0, 0},
  };
  for_each_target([&] {
    for (const Unary& c : cases) {
      GroupTest t;
      t.shape = {20011};
      t.add_output(t.op(*c.op, {t.dense(DType::f32, 7, c.low, c.high)}, DType::f32), DType::f32);
      t.check(c.relative, c.absolute, c.op->name);
    }
  });
}

TEST(Fused, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values = {0.0,   -0.0, 1,     -1,    inf,    -inf, nan,   1e38,
                                      -1e38, 3e38, -3e38, 1e-40, -1e-40, 1e20, -1e20, 1e9};
  for_each_target([&] {
    for (const OpDef* op : {&exp_op, &log_op, &sqrt_op, &rsqrt_op, &tanh_op, &logistic_op, &erf_op,
                            &abs_op, &sign_op, &floor_op, &neg_op, &sin_op, &cos_op}) {
      GroupTest t;
      t.shape = {static_cast<std::int64_t>(values.size())};
      t.add_output(t.op(*op, {t.add_input(DType::f32, {1}, values)}, DType::f32), DType::f32);
      t.check(3e-7, 1e-44, op->name);
    }
    // No NaN for large finite arguments.
    for (const OpDef* op : {&silu_op, &silu_slope_op, &gelu_tanh_op, &gelu_tanh_slope_op,
                            &gelu_erf_op, &gelu_erf_slope_op}) {
      GroupTest t;
      t.shape = {6};
      t.add_output(t.op(*op, {t.add_input(DType::f32, {1}, {3e38, -3e38, 1e20, -1e20, 100, -100})},
                        DType::f32),
                   DType::f32);
      const bool slope = std::string(op->name).find("slope") != std::string::npos;
      ASSERT_TRUE((t.group().shape = t.shape, t.run(make_fused)));
      const auto got = t.result();
      for (std::size_t i = 0; i < 6; i += 2) {
        const double x = static_cast<double>(static_cast<float>(t.operand(0)[i]));
        EXPECT_EQ(got[i], slope ? 1.0 : x) << op->name;
        EXPECT_NEAR(got[i + 1], 0.0, 1e-30) << op->name;
      }
    }
  });
}

TEST(Fused, MaxAndMinPassNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for_each_target([&] {
    for (const OpDef* op : {&max_op, &min_op}) {
      GroupTest t;
      t.shape = {20};
      std::vector<double> a(20, 1.0), b(20, 2.0);
      a[3] = nan;
      b[4] = nan;
      a[18] = nan;
      b[19] = nan;
      const int x = t.add_input(DType::f32, {1}, a), y = t.add_input(DType::f32, {1}, b);
      t.add_output(t.op(*op, {x, y}, DType::f32), DType::f32);
      t.group().shape = t.shape;
      ASSERT_TRUE(t.run(make_fused));
      for (std::size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(std::isnan(t.result()[i]), i == 3 || i == 4 || i >= 18) << op->name << i;
      }
    }
  });
}

TEST(Fused, BinaryOpsOnEveryType) {
  for_each_target([] {
    for (const DType dtype : {DType::f32, DType::i32, DType::u32}) {
      const double low = dtype == DType::u32 ? 0 : -50;
      for (const OpDef* op : {&add_op, &sub_op, &mul_op, &div_op, &max_op, &min_op, &equal_op,
                              &less_op, &less_equal_op}) {
        GroupTest t;
        t.shape = {1003};
        const int x = t.dense(dtype, 3, low, 50),
                  y = t.dense(dtype, 4, dtype == DType::u32 ? 1 : -50, 50);
        const bool compares = op == &equal_op || op == &less_op || op == &less_equal_op;
        const DType result = compares ? DType::pred : dtype;
        t.add_output(t.op(*op, {x, y}, result), result);
        if (dtype == DType::u32 && op == &sub_op) continue;  // wraps: below
        if (dtype == DType::i32 && op == &div_op) continue;
        t.check(2e-7, 0, op->name + std::string(name(dtype)));
      }
    }
    GroupTest t;
    t.shape = {4};
    const int x = t.add_input(DType::u32, {1}, {1, 0, 4294967295.0, 7}),
              y = t.add_input(DType::u32, {1}, {2, 1, 4294967295.0, 0});
    t.add_output(t.op(sub_op, {x, y}, DType::u32), DType::u32);
    t.add_output(t.op(less_op, {x, y}, DType::pred), DType::pred);
    t.add_output(t.op(div_op, {x, y}, DType::u32), DType::u32);
    t.group().shape = t.shape;
    ASSERT_TRUE(t.run(make_fused));
    EXPECT_EQ(t.result(0), (std::vector<double>{4294967295.0, 4294967295.0, 0, 7}));
    EXPECT_EQ(t.result(1), (std::vector<double>{1, 1, 0, 0}));
    EXPECT_EQ(t.result(2), (std::vector<double>{0, 0, 1, 0}));
  });
}

TEST(Fused, IntegerUnaryOps) {
  for_each_target([] {
    GroupTest t;
    t.shape = {5};
    const int x = t.add_input(DType::i32, {1}, {-7, 0, 7, 2147483647, -2147483648.0}),
              y = t.add_input(DType::i32, {1}, {2, 2, -2, -1, -1});
    t.add_output(t.op(sign_op, {x}, DType::i32), DType::i32);
    t.add_output(t.op(abs_op, {x}, DType::i32), DType::i32);
    t.add_output(t.op(neg_op, {x}, DType::i32), DType::i32);
    t.add_output(t.op(div_op, {x, y}, DType::i32), DType::i32);
    t.group().shape = t.shape;
    ASSERT_TRUE(t.run(make_fused));
    EXPECT_EQ(t.result(0), (std::vector<double>{-1, 0, 1, 1, -1}));
    EXPECT_EQ(t.result(1), (std::vector<double>{7, 0, 7, 2147483647, -2147483648.0}));
    EXPECT_EQ(t.result(2), (std::vector<double>{7, 0, -7, -2147483647, -2147483648.0}));
    EXPECT_EQ(t.result(3), (std::vector<double>{-3, 0, -3, -2147483647, -2147483648.0}));
  });
}

TEST(Fused, ConvertBetweenAllTypes) {
  const DType types[] = {DType::f32, DType::bf16, DType::i32, DType::u32, DType::pred};
  for_each_target([&] {
    for (const DType from : types) {
      for (const DType to : types) {
        GroupTest t;
        t.shape = {517};
        const bool to_unsigned = to == DType::u32 || from == DType::u32;
        const int x = t.dense(from, 5, to_unsigned ? 0 : -3e4,
                              to == DType::u32 && from != DType::i32 ? 4e9 : 3e4);
        t.add_output(t.op(convert_op, {x}, to, ConvertTo{to}), to);
        t.check(0, 0, std::string(name(from)) + " to " + std::string(name(to)));
      }
    }
    GroupTest t;
    t.shape = {6};
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const int x = t.add_input(DType::f32, {1}, {nan, 1e10, -1e10, -0.5, 2.9, -2.9});
    t.add_output(t.op(convert_op, {x}, DType::i32, ConvertTo{DType::i32}), DType::i32);
    t.add_output(t.op(convert_op, {x}, DType::u32, ConvertTo{DType::u32}), DType::u32);
    t.add_output(t.op(is_finite_op, {x}, DType::pred), DType::pred);
    t.group().shape = t.shape;
    ASSERT_TRUE(t.run(make_fused));
    EXPECT_EQ(t.result(0), (std::vector<double>{0, 2147483647, -2147483648.0, 0, 2, -2}));
    EXPECT_EQ(t.result(1), (std::vector<double>{0, 4294967295.0, 0, 0, 2, 0}));
    EXPECT_EQ(t.result(2), (std::vector<double>{0, 1, 1, 1, 1, 1}));
  });
}

TEST(Fused, Bf16RoundsToNearestEvenAndKeepsNaN) {
  for_each_target([] {
    std::vector<double> values = random_values(1000, 9, -1e30, 1e30);
    for (std::size_t i = 0; i < 100; ++i) values[i] = 1.0 + static_cast<double>(i) * 0x1p-9;
    values[200] = std::numeric_limits<double>::quiet_NaN();
    values[201] = std::numeric_limits<double>::infinity();
    values[202] = 3.4028e38;
    values[203] = 1e-41;
    GroupTest t;
    t.shape = {1000};
    t.add_output(t.op(stop_gradient_op, {t.add_input(DType::f32, {1}, values)}, DType::f32),
                 DType::bf16);
    t.check(0, 0);
  });
}

TEST(Fused, Powers) {
  for_each_target([] {
    for (const double c : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.5, 7.0, 1.0 / 3}) {
      GroupTest t;
      t.shape = {201};
      t.add_output(t.op(pow_op, {t.dense(DType::f32, 11, 0.01, 3)}, DType::f32, Number{c}),
                   DType::f32);
      t.check(3e-7, 0, std::to_string(c));
    }
  });
}

TEST(Fused, SelectAndLogic) {
  for_each_target([] {
    for (const std::int64_t n : kSizes) {
      GroupTest t;
      t.shape = {n};
      const int x = t.dense(DType::f32, 1), y = t.dense(DType::bf16, 2),
                p = t.dense(DType::pred, 3, 0, 1);
      const int less = t.op(less_op, {x, y}, DType::pred);
      const int both =
          t.op(logical_and_op, {less, t.op(logical_not_op, {p}, DType::pred)}, DType::pred);
      const int either = t.op(logical_or_op, {both, p}, DType::pred);
      t.add_output(t.op(select_op, {either, x, y}, DType::f32), DType::bf16);
      t.add_output(either, DType::pred);
      t.check(0, 0);
    }
  });
}

struct Broadcast {
  Dims shape, strides;
  std::int64_t elements;
};

TEST(Fused, Broadcasts) {
  std::vector<Broadcast> cases;
  for (const std::int64_t e : {1, 2, 5, 16, 65, 300, 1024, 3000}) {
    cases.push_back({{37, e}, {0, 1}, e});       // row vector
    cases.push_back({{37, e}, {1, 0}, 37});      // a scalar a row
    cases.push_back({{37, e}, {0, 0}, 1});       // one scalar
    cases.push_back({{e, 37}, {1, e}, 37 * e});  // transposed
    cases.push_back({{3, 4, 5, e}, {5 * e, 0, e, 1}, 15 * e});
    cases.push_back({{3, 4, 5, e}, {0, 5, 1, 0}, 20});
    cases.push_back({{3, 5, e}, {5 * 2 * e, 2 * e, 2}, 3 * 5 * 2 * e});
  }
  for_each_target([&] {
    for (const Broadcast& c : cases) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
        GroupTest t;
        t.shape = c.shape;
        const int x = t.dense(dtype, 1, -100, 100);
        const int v = t.add_input(dtype, c.strides, random_values(c.elements, 2, -100, 100));
        const int sum = t.op(add_op, {x, v}, dtype), product = t.op(mul_op, {v, v}, dtype);
        t.add_output(sum, dtype);
        t.add_output(t.op(sub_op, {product, sum}, dtype), dtype);
        t.check(2 * rounding(dtype), 1e4 * 0x1p-23,
                join(c.shape) + " by " + join(c.strides) + std::string(name(dtype)));
      }
    }
  });
}

TEST(Fused, ScalarsOnly) {
  for_each_target([] {
    GroupTest t;
    t.shape = {9, 333};
    const int a = t.add_input(DType::f32, {0, 0}, {3}), b = t.add_input(DType::bf16, {0, 0}, {0.5});
    const int c = t.op(exp_op, {t.op(mul_op, {a, b}, DType::f32)}, DType::f32);
    t.add_output(c, DType::f32);
    t.add_output(a, DType::bf16);
    t.check(2e-7, 0);
  });
}

// The second output wants an input that the first one overwrites.
TEST(Fused, InPlace) {
  for_each_target([] {
    for (const std::int64_t n : kSizes) {
      const bool donated = n % 2 == 1;
      GroupTest t;
      t.shape = {n};
      const int x = t.dense(DType::f32, 1), y = t.dense(DType::f32, 2), z = t.dense(DType::bf16, 3);
      const int sum = t.op(add_op, {x, y}, DType::f32);
      const int twice = t.op(add_op, {sum, sum}, DType::f32);
      const int late = t.op(mul_op, {twice, x}, DType::f32);
      t.add_output_over(0, sum, donated);
      t.add_output(late, DType::f32);
      t.add_output_over(2, t.op(sub_op, {z, late}, DType::bf16), donated);
      t.add_output(x, DType::bf16);
      t.add_output_over(1, y, donated);
      t.check(0x1p-7, 1e-5, std::to_string(n), 5);
    }
  });
}

TEST(Fused, StridedOutputs) {
  for_each_target([] {
    GroupTest t;
    t.shape = {5, 33};
    const int x = t.dense(DType::f32, 1);
    const int y = t.op(neg_op, {x}, DType::f32);
    t.step.outputs.push_back(
        t.view(t.buffer(DType::f32, 5 * 40), Type{DType::f32, t.shape}, {40, 1}));
    t.step.outputs.push_back(
        t.view(t.buffer(DType::bf16, 5 * 33), Type{DType::bf16, t.shape}, {1, 5}));
    t.group().outputs = {y, y};
    t.check(0, 0);
  });
}

// Random groups over random broadcasts, sizes and dtypes, outputs partly in place.
TEST(Fused, RandomGroups) {
  const OpDef* binary[] = {&add_op, &sub_op, &max_op, &min_op};
  for (unsigned seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
    };
    GroupTest t;
    const std::int64_t sizes[] = {1, 2, 3, 17, 64, 100, 700};
    t.shape = {1 + draw(3), sizes[draw(7)], sizes[draw(7)]};
    for (int i = 0, n = 1 + static_cast<int>(draw(4)); i < n; ++i) {
      Dims strides = row_major_strides(t.shape);
      for (std::int64_t& s : strides) s = draw(3) == 0 ? 0 : s;
      t.add_input(draw(2) == 0 ? DType::f32 : DType::bf16, strides,
                  random_values(element_count(t.shape), seed + static_cast<unsigned>(i)));
    }
    const auto any = [&] {
      return static_cast<int>(
          draw(static_cast<std::int64_t>(t.group().inputs.size() + t.group().ops.size())));
    };
    for (int i = 0, n = 1 + static_cast<int>(draw(9)); i < n; ++i) {
      const int a = any(), b = any();
      if (draw(4) == 0)
        t.op(tanh_op, {a}, DType::f32);
      else if (draw(6) == 0)
        t.op(stop_gradient_op, {a}, DType::f32);
      else
        t.op(*binary[draw(4)], {a, b}, DType::f32);
    }
    for (std::size_t i = 0; i < t.group().inputs.size(); ++i) {
      const View& v = t.step.inputs[i];
      if (v.strides == row_major_strides(t.shape) && draw(2) == 0)
        t.add_output_over(i, any(), draw(2) == 0);
    }
    for (int i = 0; i < 1 + static_cast<int>(draw(2)); ++i)
      t.add_output(any(), draw(2) == 0 ? DType::f32 : DType::bf16);
    t.check(0x1p-7, 1e-4, join(t.shape), seed);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Fused, RefusesWithReason) {
  Step step;
  std::string why_not;
  EXPECT_EQ(make_fused(step, why_not), nullptr);
  EXPECT_FALSE(why_not.empty());
}

}  // namespace
}  // namespace dew::cpu
