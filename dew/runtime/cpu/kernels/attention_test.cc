#include "dew/runtime/cpu/kernels/attention.h"

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/dot_test_runner.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

struct Case {
  std::string name;
  std::int64_t b = 1, t = 1, s = 1, h = 1, kv = 1, d = 8;
  AttentionAttrs attrs = {};
  std::int32_t window = 0;
  std::int64_t gap = 0;  // between rows of q, k, v and results
  Dims order = {};       // of their dimensions in memory
  double slack = 1;      // times the usual tolerance
  enum Layout { plain, packed, pads, random, later_queries } layout = plain;
};

// Everything a step touches; results of the reference beside it.
struct Arrays {
  TestArray q, k, v, q_positions, k_positions, q_segments, k_segments, window, lse_in, delta, d_o;
  TestArray o, lse, dq, dk, dv;

  Arrays(const Case& c, DType dtype)
      : q(dtype, {c.b, c.t, c.h, c.d}, c.order, c.gap),
        k(dtype, {c.b, c.s, c.kv, c.d}, c.order, c.gap),
        v(dtype, {c.b, c.s, c.kv, c.d}, c.order, c.gap),
        q_positions(DType::i32, {c.b, c.t}),
        k_positions(DType::i32, {c.b, c.s}, {}, 3),
        q_segments(DType::i32, {c.b, c.t}),
        k_segments(DType::i32, {c.b, c.s}),
        window(DType::i32, {}),
        lse_in(DType::f32, {c.b, c.t, c.h}),
        delta(DType::f32, {c.b, c.t, c.h}, {2, 0, 1}),
        d_o(dtype, {c.b, c.t, c.h, c.d}, c.order, c.gap),
        o(dtype, {c.b, c.t, c.h, c.d}, c.order, c.gap),
        lse(DType::f32, {c.b, c.t, c.h}),
        dq(dtype, {c.b, c.t, c.h, c.d}, c.order, c.gap),
        dk(dtype, {c.b, c.s, c.kv, c.d}, c.order, c.gap),
        dv(dtype, {c.b, c.s, c.kv, c.d}, c.order, c.gap) {
    std::mt19937 rng(11);
    for (auto* x : {&q, &k, &v, &d_o}) x->fill_random(rng, 2);
    window.set({}, c.window);
    for (std::int64_t b = 0; b < c.b; ++b) {
      for (std::int64_t i = 0; i < c.t; ++i) set_token(c, rng, q_positions, q_segments, b, i, c.t);
      for (std::int64_t j = 0; j < c.s; ++j) set_token(c, rng, k_positions, k_segments, b, j, c.s);
    }
  }

  static void set_token(const Case& c, std::mt19937& rng, TestArray& positions, TestArray& segments,
                        std::int64_t b, std::int64_t i, std::int64_t n) {
    double position = static_cast<double>(i), segment = 0;
    switch (c.layout) {
      case Case::plain:
        break;
      case Case::packed:  // three documents, positions counted anew
        segment = static_cast<double>(3 * i / n);
        position = static_cast<double>(i - (n * static_cast<std::int64_t>(segment) + 2) / 3);
        break;
      case Case::pads:
        if (i >= n - n / 3) segment = static_cast<double>(-1 - i);
        break;
      case Case::random:
        segment = static_cast<double>(rng() % 3);
        position =
            static_cast<double>(static_cast<std::int32_t>(rng()) / 2 + (rng() % 2 ? 0 : (1 << 30)));
        if (rng() % 2) position = static_cast<double>(rng() % 64);
        break;
      case Case::later_queries:  // as when generating: queries stand at the end
        if (n == c.t) position = static_cast<double>(c.s - c.t + i);
        break;
    }
    positions.set({b, i}, position);
    segments.set({b, i}, segment);
  }
};

struct Expected {
  std::vector<double> o, lse, dq, dk, dv;
};

// The operands as flat arrays of double.
struct Flat {
  const Case& c;
  std::vector<double> q, k, v, q_positions, k_positions, q_segments, k_segments, d_o;

  Flat(const Case& of, Arrays& a)
      : c(of),
        q(a.q.values()),
        k(a.k.values()),
        v(a.v.values()),
        q_positions(a.q_positions.values()),
        k_positions(a.k_positions.values()),
        q_segments(a.q_segments.values()),
        k_segments(a.k_segments.values()),
        d_o(a.d_o.values()) {}

  std::size_t query(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return static_cast<std::size_t>(((b * c.t + i) * c.h + h) * c.d);
  }
  std::size_t key(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return static_cast<std::size_t>(((b * c.s + j) * c.kv + h / (c.h / c.kv)) * c.d);
  }
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const auto qi = static_cast<std::size_t>(b * c.t + i),
               kj = static_cast<std::size_t>(b * c.s + j);
    const double distance = q_positions[qi] - k_positions[kj];
    return q_segments[qi] == k_segments[kj] && (!c.attrs.causal || distance >= 0) &&
           (c.window <= 0 || distance < c.window);
  }
  double product(const std::vector<double>& x, std::size_t i, const std::vector<double>& y,
                 std::size_t j) const {
    double sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(c.d); ++d) sum += x[i + d] * y[j + d];
    return sum;
  }
  void add(std::vector<double>& to, std::size_t i, double factor, const std::vector<double>& x,
           std::size_t j) const {
    for (std::size_t d = 0; d < static_cast<std::size_t>(c.d); ++d) to[i + d] += factor * x[j + d];
  }
};

// Scores of one query of one head, -inf where it does not see; returns their lse.
double reference_scores(const Flat& f, std::int64_t b, std::int64_t i, std::int64_t h,
                        std::vector<double>& score) {
  const Case& c = f.c;
  double most = -INFINITY, sum = 0;
  score.assign(static_cast<std::size_t>(c.s), -INFINITY);
  for (std::int64_t j = 0; j < c.s; ++j) {
    if (!f.sees(b, i, j)) continue;
    double x = c.attrs.scale * f.product(f.q, f.query(b, i, h), f.k, f.key(b, j, h));
    if (c.attrs.softcap > 0) x = c.attrs.softcap * std::tanh(x / c.attrs.softcap);
    score[static_cast<std::size_t>(j)] = x;
    most = std::max(most, x);
  }
  for (const double x : score) sum += x == -INFINITY ? 0 : std::exp(x - most);
  return sum == 0 ? -INFINITY : most + std::log(sum);
}

// Also sets lse_in and delta, which the gradient takes.
Expected reference(const Case& c, Arrays& a) {
  const Flat f(c, a);
  Expected e;
  e.o.resize(f.q.size()), e.dq.resize(f.q.size()), e.dk.resize(f.k.size()), e.dv.resize(f.k.size());
  for_each_index(a.lse.view.type.shape, [&](const Dims& index) {
    const std::int64_t b = index[0], i = index[1], h = index[2];
    const std::size_t at = f.query(b, i, h);
    std::vector<double> score;
    const double lse = reference_scores(f, b, i, h, score);
    const auto for_each_seen = [&](auto visit) {
      for (std::int64_t j = 0; j < c.s; ++j) {
        const double x = score[static_cast<std::size_t>(j)];
        if (x != -INFINITY) visit(x, std::exp(x - lse), f.key(b, j, h));
      }
    };
    for_each_seen([&](double, double p, std::size_t key) { f.add(e.o, at, p, f.v, key); });
    const double delta = f.product(e.o, at, f.d_o, at);
    a.lse_in.set(index, lse);
    a.delta.set(index, delta);
    e.lse.push_back(lse);
    for_each_seen([&](double x, double p, std::size_t key) {
      const double slope = c.attrs.softcap > 0 ? 1 - std::pow(x / c.attrs.softcap, 2) : 1;
      const double ds = p * (f.product(f.d_o, at, f.v, key) - delta) * slope * c.attrs.scale;
      f.add(e.dq, at, ds, f.k, key);
      f.add(e.dk, key, ds, f.q, at);
      f.add(e.dv, key, p, f.d_o, at);
    });
  });
  return e;
}

// Runs a step over the arrays in three orders of pieces, which must give the same bits.
void run_in_all_orders(MakeKernel make, const OpDef& op, const Case& c,
                       std::vector<TestArray*> inputs, std::vector<TestArray*> outputs) {
  Step step;
  step.op = &op;
  step.attrs = c.attrs;
  std::vector<std::byte*> operands;
  for (auto* x : inputs) step.inputs.push_back(x->view), operands.push_back(x->bytes.data());
  for (auto* x : outputs) step.outputs.push_back(x->view), operands.push_back(x->bytes.data());
  std::string why_not;
  const auto kernel = make(step, why_not);
  ASSERT_NE(kernel, nullptr) << c.name << ": " << why_not;
  std::vector<std::vector<std::byte>> first;
  for (const Order order : {Order::forward, Order::backward, Order::threads}) {
    for (auto* x : outputs) x->fill([] { return 77; });
    run_kernel(*kernel, operands, order);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (order == Order::forward) first.push_back(outputs[i]->bytes);
      ASSERT_EQ(first[i], outputs[i]->bytes) << c.name << ": bits depend on the order of pieces";
    }
  }
}

void check(const Case& c, DType dtype) {
  Arrays a(c, dtype);
  const Expected e = reference(c, a);
  const std::string what = c.name + " " + std::string(name(dtype));
  run_in_all_orders(
      make_attention, attention_op, c,
      {&a.q, &a.k, &a.v, &a.q_positions, &a.k_positions, &a.q_segments, &a.k_segments, &a.window},
      {&a.o, &a.lse});
  // bf16: p and the result are rounded to 2^-8 each; f32: 2^-24 a term.
  const double tolerance = c.slack * (dtype == DType::bf16 ? 0.012 : 4e-6);
  expect_close(a.o.values(), e.o, tolerance, what + " o", 1.0);
  expect_close(a.lse.values(), e.lse, 4e-6 * c.slack, what + " lse");
  run_in_all_orders(make_attention_grad, attention_grad_op, c,
                    {&a.q, &a.k, &a.v, &a.q_positions, &a.k_positions, &a.q_segments, &a.k_segments,
                     &a.window, &a.lse_in, &a.delta, &a.d_o},
                    {&a.dq, &a.dk, &a.dv});
  expect_close(a.dq.values(), e.dq, tolerance, what + " dq", 1.0);
  expect_close(a.dk.values(), e.dk, tolerance, what + " dk", 1.0);
  expect_close(a.dv.values(), e.dv, tolerance, what + " dv", 1.0);
}

void check_both(const Case& c) {
  check(c, DType::f32);
  check(c, DType::bf16);
}

AttentionAttrs attrs(bool causal, double softcap = 0, double scale = 0.3) {
  return {scale, softcap, causal};
}

TEST(Attention, OddSizes) {
  for (const std::int64_t t : {1, 3, 33, 130}) {
    for (const std::int64_t s : {1, 18, 65}) {
      const std::string size = std::to_string(t) + " x " + std::to_string(s);
      check_both({.name = "full " + size,
                  .b = 2,
                  .t = t,
                  .s = s,
                  .h = 2,
                  .kv = 2,
                  .d = 7,
                  .attrs = attrs(false)});
      check_both({.name = "causal " + size,
                  .t = t,
                  .s = s,
                  .h = 3,
                  .kv = 3,
                  .d = 16,
                  .attrs = attrs(true)});
    }
  }
}

TEST(Attention, ManyBlocksOfKeys) {
  check_both(
      {.name = "long causal", .t = 600, .s = 600, .h = 2, .kv = 1, .d = 32, .attrs = attrs(true)});
  check_both(
      {.name = "long full", .t = 70, .s = 700, .h = 2, .kv = 2, .d = 24, .attrs = attrs(false)});
  check_both({.name = "long window", .t = 600, .s = 600, .attrs = attrs(true), .window = 100});
}

TEST(Attention, GroupsOfHeads) {
  check_both(
      {.name = "6 of 2", .b = 2, .t = 33, .s = 33, .h = 6, .kv = 2, .d = 8, .attrs = attrs(true)});
  check_both(
      {.name = "4 of 1", .b = 2, .t = 70, .s = 70, .h = 4, .kv = 1, .d = 8, .attrs = attrs(true)});
}

TEST(Attention, Windows) {
  for (const std::int32_t window : {1, 17, 64, std::numeric_limits<std::int32_t>::max()}) {
    check_both({.name = "window " + std::to_string(window),
                .t = 130,
                .s = 130,
                .attrs = attrs(true),
                .window = window});
    check_both({.name = "full window " + std::to_string(window),
                .t = 65,
                .s = 65,
                .attrs = attrs(false),
                .window = window});
  }
}

TEST(Attention, PackedSegmentsAndPads) {
  for (const std::int64_t t : {9, 150}) {
    check_both({.name = "packed",
                .b = 2,
                .t = t,
                .s = t,
                .h = 2,
                .kv = 2,
                .attrs = attrs(true),
                .layout = Case::packed});
    check_both({.name = "pads",
                .b = 2,
                .t = t,
                .s = t,
                .h = 2,
                .kv = 1,
                .attrs = attrs(true),
                .layout = Case::pads});
    check_both({.name = "pads, full", .t = t, .s = t, .attrs = attrs(false), .layout = Case::pads});
    // Arbitrary positions: some queries see nothing.
    check_both({.name = "random",
                .b = 2,
                .t = t,
                .s = t,
                .attrs = attrs(true),
                .window = 20,
                .layout = Case::random});
  }
}

TEST(Attention, Generating) {
  check_both({.name = "one query",
              .b = 3,
              .t = 1,
              .s = 100,
              .h = 4,
              .kv = 2,
              .attrs = attrs(true),
              .layout = Case::later_queries});
  check_both({.name = "some queries",
              .t = 5,
              .s = 300,
              .h = 2,
              .kv = 1,
              .attrs = attrs(true),
              .layout = Case::later_queries});
}

// Few keys, in whole blocks: all heads at once.
TEST(Attention, HeadsTogether) {
  for (const std::int64_t s : {16, 32, 128, 192}) {
    check_both(
        {.name = "causal", .b = 8, .t = s, .s = s, .h = 3, .kv = 3, .d = 7, .attrs = attrs(true)});
    check_both(
        {.name = "full", .b = 9, .t = 20, .s = s, .h = 2, .kv = 2, .d = 16, .attrs = attrs(false)});
    check_both({.name = "window",
                .b = 8,
                .t = s,
                .s = s,
                .h = 2,
                .kv = 2,
                .attrs = attrs(true),
                .window = 40});
    check_both({.name = "random",
                .b = 8,
                .t = s,
                .s = s,
                .h = 2,
                .kv = 2,
                .attrs = attrs(true),
                .window = 9,
                .layout = Case::random});
    check_both({.name = "packed",
                .b = 8,
                .t = s,
                .s = s,
                .h = 2,
                .kv = 2,
                .attrs = attrs(true, 4),
                .layout = Case::packed});
    check_both({.name = "pads",
                .b = 8,
                .t = s,
                .s = s,
                .h = 2,
                .kv = 2,
                .attrs = attrs(true),
                .layout = Case::pads});
  }
}

TEST(Attention, Softcap) {
  check_both({.name = "softcap", .t = 70, .s = 70, .h = 2, .kv = 1, .attrs = attrs(true, 3.0)});
  check_both({.name = "softcap, full", .t = 64, .s = 64, .attrs = attrs(false, 20.0)});
}

TEST(Attention, NegativeScale) {
  check_both({.name = "negative", .t = 64, .s = 64, .attrs = attrs(false, 0, -0.5)});
}

TEST(Attention, StridedViews) {
  check_both(
      {.name = "gaps", .b = 2, .t = 33, .s = 40, .h = 2, .kv = 2, .attrs = attrs(false), .gap = 5});
  check_both({.name = "heads outside",
              .b = 2,
              .t = 33,
              .s = 40,
              .h = 2,
              .kv = 2,
              .attrs = attrs(true),
              .order = {0, 2, 1, 3}});
  check_both({.name = "width outside",
              .b = 2,
              .t = 33,
              .s = 40,
              .h = 2,
              .kv = 2,
              .attrs = attrs(true),
              .order = {3, 0, 1, 2}});
}

TEST(Attention, EmptySizes) {
  check_both({.name = "no rows", .b = 0, .t = 3, .s = 3});
  check_both({.name = "no queries", .t = 0, .s = 3});
  check_both({.name = "no keys", .t = 3, .s = 0});
}

TEST(Attention, OnEveryInstructionSet) {
  for_each_target([] {
    check_both({.name = "blocks",
                .t = 130,
                .s = 130,
                .h = 2,
                .kv = 1,
                .d = 24,
                .attrs = attrs(true),
                .window = 100});
    check_both({.name = "together",
                .b = 8,
                .t = 48,
                .s = 48,
                .h = 2,
                .kv = 2,
                .d = 5,
                .attrs = attrs(true, 5)});
    check_both({.name = "pads",
                .t = 50,
                .s = 70,
                .h = 2,
                .kv = 1,
                .d = 20,
                .attrs = attrs(false),
                .layout = Case::pads});
  });
}

TEST(Attention, LargeScoresDoNotOverflow) {
  check_both({.name = "large", .t = 40, .s = 40, .attrs = attrs(true, 0, 30.0), .slack = 20});
}

TEST(Attention, NanStaysNan) {
  const Case c{.name = "nan", .t = 20, .s = 20, .attrs = attrs(false)};
  Arrays a(c, DType::f32);
  a.q.set({0, 7, 0, 0}, std::nan(""));
  run_in_all_orders(
      make_attention, attention_op, c,
      {&a.q, &a.k, &a.v, &a.q_positions, &a.k_positions, &a.q_segments, &a.k_segments, &a.window},
      {&a.o, &a.lse});
  EXPECT_TRUE(std::isnan(a.o.get({0, 7, 0, 0})));
  EXPECT_FALSE(std::isnan(a.o.get({0, 6, 0, 0})));
}

TEST(AttentionMask, Sight) {
  const QueryBlock q{0, 8, 10, 17, 2, 2};  // positions 10 to 17, windows of 10
  EXPECT_EQ(sight(q, {8, 10, 2, 2}), Sight::all);
  EXPECT_EQ(sight(q, {8, 11, 2, 2}), Sight::some);
  EXPECT_EQ(sight(q, {7, 10, 2, 2}), Sight::some);
  EXPECT_EQ(sight(q, {8, 10, 1, 2}), Sight::some);
  EXPECT_EQ(sight(q, {18, 20, 2, 2}), Sight::none);
  EXPECT_EQ(sight(q, {-5, -1, 2, 2}), Sight::none);
  EXPECT_EQ(sight(q, {8, 10, 3, 9}), Sight::none);
}

}  // namespace
}  // namespace dew::cpu
