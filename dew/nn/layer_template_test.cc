// The living template of docs/adding_a_layer.md: a complete small layer, and what its test says.
// Copy it, rename it, and move the layer itself to nn/x.cc and nn/nn.h.
#include <gtest/gtest.h>

#include <cmath>

#include "dew/autodiff/grad.h"
#include "dew/nn/names.h"
#include "dew/nn/plain_batch_test_support.h"

namespace dew {
namespace {

// ---- nn.h: what the layer is, and its options ----
// Low-rank update: y = x + tanh(x . down + bias) . up, with down [e, rank] and up [rank, e].
struct LowRankOptions {
  std::int64_t width = 0, rank = 0;
};

// ---- x.cc ----
void declare_low_rank(ParamList& list, const std::string& name, const LowRankOptions& o) {
  declare_projection(list, name + "/" + names::kDown,
                     {.fan_in = o.width,
                      .in_axis = names::kEmbed,
                      .out = {o.rank},
                      .out_axes = {""},  // no logical name: never split
                      .bias = true});
  declare_projection(
      list, name + "/" + names::kUp,
      {.fan_in = o.rank, .in_axis = "", .out = {o.width}, .out_axes = {names::kEmbed}});
}

Value low_rank(const Scope& p, Value x) {
  const AxisNames pin = {names::kBatch, names::kLength, ""};
  return x + project(p / names::kUp, tanh(project(p / names::kDown, x, pin)), pin);
}

// ---- x_test.cc: the program against the plain loop ----
constexpr std::int64_t kRows = 2, kColumns = 3, kWidth = 4, kRank = 2;

plain::Vec loop(const plain::Vec& x, const plain::Params& params) {
  const auto &down = params.at("test/down_proj/kernel"), &up = params.at("test/up_proj/kernel");
  plain::Vec y = x;
  for (std::size_t token = 0; token < kRows * kColumns; ++token) {
    for (std::size_t r = 0; r < kRank; ++r) {
      double h = params.at("test/down_proj/bias")[r];
      for (std::size_t e = 0; e < kWidth; ++e) h += x[token * kWidth + e] * down[e * kRank + r];
      for (std::size_t e = 0; e < kWidth; ++e) {
        y[token * kWidth + e] += std::tanh(h) * up[r * kWidth + e];
      }
    }
  }
  return y;
}

TEST(LayerTemplate, EqualsThePlainLoop) {
  ParamList list;
  declare_low_rank(list, "test", {.width = kWidth, .rank = kRank});
  Program program("low_rank");
  ParamValues values;
  for (const ParamSpec& spec : list.params()) {
    values[spec.name] = program.input(spec.name, spec.type, true);
  }
  const Value x = program.input("x", {DType::f32, {kRows, kColumns, kWidth}});
  const Value y = low_rank(Scope(values, "test"), x);
  program.output("y", y);
  program.output("dx", gradients(program, reduce_sum(y, {0, 1, 2}), {&x, 1}).front());
  verify(program);

  const plain::Params params = plain::random_params(list.params(), 3);
  plain::Arrays in;
  plain::add_params(in, list.params(), params, "");
  in["x"] = Array({kRows, kColumns, kWidth});
  for (std::size_t i = 0; i < in["x"].data.size(); ++i) {
    in["x"].data[i] = std::sin(static_cast<double>(i));
  }
  const plain::Arrays out = plain::run(program, in);
  EXPECT_LT(plain::worst_difference(out.at("y").data, loop(in["x"].data, params)), 1e-12);

  // The gradient of a layer comes from its ops; one difference shows that it arrives.
  const auto sum_at = [&](double step) {
    plain::Vec moved = in["x"].data;
    moved[5] += step;
    double sum = 0;
    for (const double v : loop(moved, params)) sum += v;
    return sum;
  };
  EXPECT_NEAR(out.at("dx").data[5], (sum_at(1e-5) - sum_at(-1e-5)) / 2e-5, 1e-8);
}

}  // namespace
}  // namespace dew
