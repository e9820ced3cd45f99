#include "dew/runtime/cpu/kernels/head_loss.h"

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/dot_test_runner.h"
#include "dew/runtime/cpu/kernels/kernel_test_util.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

struct Case {
  std::string name;
  std::int64_t b = 1, t = 1, e = 8, v = 16;
  HeadAttrs attrs = {};
  double left_out = 0;      // part of the tokens with weight 0, whose states are NaN
  bool accumulate = false;  // d_table is added to
  std::int64_t gap = 0;     // between rows of h, table and d_h
  Dims order = {};          // of h's dimensions in memory
};

struct Arrays {
  TestArray h, table, labels, weights, loss, nll, correct, lse, d_h, d_table;

  Arrays(const Case& c, DType dtype)
      : h(dtype, {c.b, c.t, c.e}, c.order, c.gap),
        table(dtype, {c.v, c.e}, {}, c.gap),
        labels(DType::i32, {c.b, c.t}, {1, 0}),
        weights(DType::f32, {c.b, c.t}, {}, 2),
        loss(DType::f32, {}),
        nll(DType::f32, {}),
        correct(DType::f32, {}),
        lse(DType::f32, {c.b, c.t}),
        d_h(dtype, {c.b, c.t, c.e}, c.order, c.gap),
        d_table(DType::f32, {c.v, c.e}) {
    std::mt19937 rng(5);
    h.fill_random(rng, 2);
    table.fill_random(rng, 2);
    labels.fill(
        [&] { return static_cast<double>(static_cast<std::int64_t>(rng() % 1000) * c.v / 1000); });
    weights.fill([&] { return 0.25 * static_cast<double>(1 + rng() % 6); });
    for_each_index(weights.view.type.shape, [&](const Dims& i) {
      if (static_cast<double>(rng() % 1000) >= 1000 * c.left_out) return;
      weights.set(i, 0);
      labels.set(i, -1);
      for (std::int64_t e = 0; e < c.e; ++e)
        h.set({i[0], i[1], e}, e % 2 == 0 ? std::nan("") : INFINITY);
    });
    d_table.fill_random(rng);
  }
};

struct Expected {
  double loss = 0, nll = 0, correct = 0;
  std::vector<double> lse, d_h, d_table;
};

// One token, in double. Adds to everything but lse and d_h, which it appends.
void reference_token(const Case& c, const std::vector<double>& h, const std::vector<double>& table,
                     std::int64_t label, double weight, Expected& out) {
  const std::size_t width = static_cast<std::size_t>(c.e);
  out.d_h.insert(out.d_h.end(), width, 0.0);
  if (weight == 0) return out.lse.push_back(0);
  std::vector<double> z(static_cast<std::size_t>(c.v));
  for (std::size_t v = 0; v < z.size(); ++v) {
    for (std::size_t e = 0; e < width; ++e) z[v] += h[e] * table[v * width + e];
    if (c.attrs.softcap > 0) z[v] = c.attrs.softcap * std::tanh(z[v] / c.attrs.softcap);
  }
  const auto winner = std::max_element(z.begin(), z.end());
  double sum = 0;
  for (const double x : z) sum += std::exp(x - *winner);
  const double lse = *winner + std::log(sum);
  const bool known = label >= 0 && label < c.v;
  const double nll = lse - (known ? z[static_cast<std::size_t>(label)] : 0);
  out.lse.push_back(lse);
  out.nll += weight * nll;
  out.loss += weight * (nll + c.attrs.z_loss * lse * lse);
  out.correct += winner - z.begin() == label ? weight : 0;
  for (std::size_t v = 0; v < z.size(); ++v) {
    const double slope = c.attrs.softcap > 0 ? 1 - std::pow(z[v] / c.attrs.softcap, 2) : 1;
    const double one = static_cast<std::int64_t>(v) == label ? 1 : 0;
    const double dz =
        weight * ((1 + 2 * c.attrs.z_loss * lse) * std::exp(z[v] - lse) - one) * slope;
    for (std::size_t e = 0; e < width; ++e) {
      out.d_h[out.d_h.size() - width + e] += dz * table[v * width + e];
      out.d_table[v * width + e] += dz * h[e];
    }
  }
}

Expected reference(const Case& c, Arrays& a) {
  Expected out;
  out.d_table = c.accumulate ? a.d_table.values()
                             : std::vector<double>(static_cast<std::size_t>(c.v * c.e), 0);
  const auto table = a.table.values();
  for_each_index(a.weights.view.type.shape, [&](const Dims& i) {
    std::vector<double> h;
    for (std::int64_t e = 0; e < c.e; ++e) h.push_back(a.h.get({i[0], i[1], e}));
    reference_token(c, h, table, static_cast<std::int64_t>(a.labels.get(i)), a.weights.get(i), out);
  });
  return out;
}

void check(const Case& c, DType dtype) {
  Arrays a(c, dtype);
  const std::string what = c.name + " " + std::string(name(dtype));
  const Expected e = reference(c, a);
  Step step;
  step.op = &head_loss_op;
  step.attrs = c.attrs;
  std::vector<TestArray*> operands{&a.h, &a.table, &a.labels, &a.weights};
  a.d_table.view.buffer = 99;
  if (c.accumulate) operands.push_back(&a.d_table);
  for (auto* x : operands) step.inputs.push_back(x->view);
  std::vector<TestArray*> outputs{&a.loss, &a.nll, &a.correct, &a.lse};
  if (c.attrs.gradients) outputs.insert(outputs.end(), {&a.d_h, &a.d_table});
  for (auto* x : outputs) step.outputs.push_back(x->view);
  operands.insert(operands.end(), outputs.begin(), outputs.end());
  std::string why_not;
  const auto kernel = make_head_loss(step, why_not);
  ASSERT_NE(kernel, nullptr) << what << ": " << why_not;
  const auto start = a.d_table.bytes;
  std::vector<std::vector<std::byte>> first;
  for (const Order order : {Order::forward, Order::backward, Order::threads}) {
    for (auto* x : outputs) x->fill([] { return 77; });
    a.d_table.bytes = start;
    std::vector<std::byte*> addresses;
    for (auto* x : operands) addresses.push_back(x->bytes.data());
    run_kernel(*kernel, addresses, order);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (order == Order::forward) first.push_back(outputs[i]->bytes);
      ASSERT_EQ(first[i], outputs[i]->bytes) << what << ": bits depend on the order of pieces";
    }
  }
  expect_close(a.loss.values(), {e.loss}, 3e-6, what + " loss", 10.0);
  expect_close(a.nll.values(), {e.nll}, 3e-6, what + " nll", 10.0);
  expect_close(a.correct.values(), {e.correct}, 1e-6, what + " correct");
  expect_close(a.lse.values(), e.lse, 3e-6, what + " lse");
  if (!c.attrs.gradients) return;
  // bf16: dz is rounded to 2^-9, and so is d_h.
  const double tolerance = dtype == DType::bf16 ? 0.008 : 1e-5;
  expect_close(a.d_h.values(), e.d_h, tolerance, what + " d_h", 1.0);
  expect_close(a.d_table.values(), e.d_table, tolerance, what + " d_table", 1.0);
  for_each_index(a.weights.view.type.shape, [&](const Dims& i) {
    for (std::int64_t k = 0; a.weights.get(i) == 0 && k < c.e; ++k)
      ASSERT_EQ(a.d_h.get({i[0], i[1], k}), 0) << what;
  });
}

void check_both(const Case& c) {
  check(c, DType::f32);
  check(c, DType::bf16);
}

HeadAttrs attrs(double z_loss = 0, double softcap = 0, bool gradients = true) {
  return {z_loss, softcap, gradients};
}

TEST(HeadLoss, OddSizes) {
  for (const std::int64_t t : {1, 5, 33, 130}) {
    for (const std::int64_t v : {1, 3, 17, 65, 259}) {
      check_both({.name = std::to_string(t) + " x " + std::to_string(v),
                  .t = t,
                  .e = 18,
                  .v = v,
                  .attrs = attrs()});
    }
  }
}

TEST(HeadLoss, ManyRangesAndChunks) {
  check_both(
      {.name = "large vocabulary", .b = 2, .t = 17, .e = 12, .v = 9000, .attrs = attrs(1e-3)});
  check_both({.name = "many tokens", .b = 3, .t = 700, .e = 8, .v = 70, .attrs = attrs()});
  // Logits of 128 tokens already exceed the bound of a chunk.
  check_both({.name = "chunks of 128", .t = 140, .e = 2, .v = 110001, .attrs = attrs()});
}

TEST(HeadLoss, WeightlessTokensLeaveNoTrace) {
  for (const double left_out : {0.3, 0.8, 1.0}) {
    check_both({.name = "small",
                .b = 2,
                .t = 40,
                .e = 17,
                .v = 33,
                .attrs = attrs(1e-3),
                .left_out = left_out});
    check_both({.name = "chunks",
                .b = 2,
                .t = 900,
                .e = 8,
                .v = 65,
                .attrs = attrs(),
                .left_out = left_out});
    check_both({.name = "added",
                .b = 2,
                .t = 40,
                .e = 17,
                .v = 33,
                .attrs = attrs(),
                .left_out = left_out,
                .accumulate = true});
  }
}

TEST(HeadLoss, ZLossAndSoftcap) {
  check_both({.name = "z loss", .b = 2, .t = 65, .e = 16, .v = 130, .attrs = attrs(0.01)});
  check_both({.name = "softcap", .b = 2, .t = 65, .e = 16, .v = 130, .attrs = attrs(0, 5)});
  check_both({.name = "both", .b = 2, .t = 65, .e = 16, .v = 131, .attrs = attrs(0.01, 5)});
}

TEST(HeadLoss, OnEveryInstructionSet) {
  for_each_target([] {
    check_both({.name = "every",
                .b = 2,
                .t = 65,
                .e = 19,
                .v = 131,
                .attrs = attrs(0.01, 5),
                .left_out = 0.2});
    check_both({.name = "every, wide", .b = 1, .t = 7, .e = 40, .v = 1000, .attrs = attrs()});
  });
}

TEST(HeadLoss, WithoutGradients) {
  check_both({.name = "forward",
              .b = 2,
              .t = 1100,
              .e = 16,
              .v = 130,
              .attrs = attrs(0.01, 5, false),
              .left_out = 0.1});
}

TEST(HeadLoss, StridedViews) {
  check_both({.name = "gaps",
              .b = 3,
              .t = 17,
              .e = 18,
              .v = 40,
              .attrs = attrs(),
              .accumulate = true,
              .gap = 6});
  check_both({.name = "columns first",
              .b = 3,
              .t = 17,
              .e = 18,
              .v = 40,
              .attrs = attrs(),
              .order = {1, 0, 2}});
  check_both({.name = "width first",
              .b = 3,
              .t = 17,
              .e = 18,
              .v = 40,
              .attrs = attrs(),
              .order = {2, 0, 1}});
}

TEST(HeadLoss, NoTokens) {
  check_both({.name = "no rows", .b = 0, .t = 5, .attrs = attrs()});
  check_both({.name = "no rows, added", .b = 0, .t = 5, .attrs = attrs(), .accumulate = true});
}

TEST(HeadLoss, TiesGoToTheLowestId) {
  const Case c{.name = "ties", .t = 8, .e = 4, .v = 700};
  Arrays a(c, DType::f32);
  for_each_index(a.table.view.type.shape, [&](const Dims& i) {
    a.table.set(i, i[0] == 77 || i[0] == 78 || i[0] == 650 ? 2 : 1);
  });
  a.h.fill([] { return 1; });
  a.labels.fill([] { return 77; });
  a.weights.fill([] { return 1; });
  Step step;
  step.op = &head_loss_op;
  step.attrs = c.attrs;
  std::vector<std::byte*> operands;
  for (auto* x : {&a.h, &a.table, &a.labels, &a.weights})
    step.inputs.push_back(x->view), operands.push_back(x->bytes.data());
  for (auto* x : {&a.loss, &a.nll, &a.correct, &a.lse})
    step.outputs.push_back(x->view), operands.push_back(x->bytes.data());
  std::string why_not;
  run_kernel(*make_head_loss(step, why_not), operands, Order::forward);
  EXPECT_EQ(a.correct.get({}), 8);
}

TEST(HeadLoss, ScratchIsBounded) {
  Step step;
  step.op = &head_loss_op;
  step.attrs = attrs();
  const auto view = [](DType dtype, Dims shape) {
    View v;
    v.strides = row_major_strides(shape);
    v.type = {dtype, std::move(shape)};
    return v;
  };
  step.inputs = {view(DType::bf16, {8, 1024, 768}), view(DType::bf16, {50304, 768}),
                 view(DType::i32, {8, 1024}), view(DType::f32, {8, 1024})};
  step.outputs = {view(DType::f32, {}),
                  view(DType::f32, {}),
                  view(DType::f32, {}),
                  view(DType::f32, {8, 1024}),
                  view(DType::bf16, {8, 1024, 768}),
                  view(DType::f32, {50304, 768})};
  std::string why_not;
  const auto kernel = make_head_loss(step, why_not);
  ASSERT_NE(kernel, nullptr) << why_not;
  EXPECT_LE(kernel->shared_scratch(), std::size_t{68} << 20);
  EXPECT_LE(kernel->worker_scratch(), std::size_t{8} << 20);
}

}  // namespace
}  // namespace dew::cpu
