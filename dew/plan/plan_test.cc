#include "dew/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "dew/autodiff/grad.h"
#include "dew/autodiff/simplify.h"
#include "dew/ir/interpret.h"
#include "dew/ir/rewrite.h"
#include "dew/plan/plan_runner_test.h"

namespace dew {
namespace {

std::vector<Array> random_inputs(const Program& p, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<Array> out;
  for (const int id : p.inputs()) {
    const Type& type = p.values()[static_cast<std::size_t>(id)].type;
    Array a(type.shape);
    for (double& x : a.data)
      x = is_float(type.dtype) ? static_cast<double>(static_cast<float>(normal(engine))) : 1.0;
    out.push_back(std::move(a));
  }
  return out;
}

// Output i named as an input replaces it.
std::vector<int> replaced_by_name(const Program& p) {
  std::vector<int> replaces;
  for (const Output& o : p.outputs()) {
    int found = -1;
    for (std::size_t i = 0; i < p.inputs().size(); ++i) {
      if (p.values()[static_cast<std::size_t>(p.inputs()[i])].name == o.name)
        found = static_cast<int>(i);
    }
    replaces.push_back(found);
  }
  return replaces;
}

Plan plan_of(const Program& p) { return make_plan(p, replaced_by_name(p)); }

// The plan computes what the interpreter does, to f32 rounding.
Plan expect_same(const Program& p, double tolerance = 1e-4) {
  const Plan plan = plan_of(p);
  const std::vector<Array> inputs = random_inputs(p, 7);
  const std::vector<Array> want = interpret(p, inputs);
  const std::vector<Array> got = plan_test::PlanRunner(p, plan, replaced_by_name(p)).run(inputs);
  for (std::size_t o = 0; o < want.size(); ++o) {
    for (std::size_t k = 0; k < want[o].data.size(); ++k) {
      const double w = want[o].data[k];
      EXPECT_NEAR(got[o].data[k], w, tolerance * (1 + std::abs(w)))
          << p.outputs()[o].name << " " << k << "\n"
          << print(plan);
      if (std::abs(got[o].data[k] - w) > tolerance * (1 + std::abs(w))) return plan;
    }
  }
  return plan;
}

int count_steps(const Plan& plan, const OpDef* op) {
  int n = 0;
  for (const Step& s : plan.steps)
    n += s.op == op && (op != nullptr || s.group.ops.empty()) ? 1 : 0;
  return n;
}

Value sum_all(Value x) {
  Dims dims;
  for (std::int64_t d = 0; d < x.type().rank(); ++d) dims.push_back(d);
  return reduce_sum(x, dims);
}

TEST(Plan, ChainIsOneStepWithoutArena) {
  Program p("chain");
  const Value x = p.input("x", {DType::f32, {4, 5}});
  const Value b = p.input("b", {DType::f32, {5}});
  p.output("y", tanh(x * 2.0 + b) * x);
  const Plan plan = expect_same(p);
  EXPECT_EQ(plan.steps.size(), 1u) << print(plan);
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(Plan, DetourIsNotFused) {
  Program p("detour");
  const Value x = p.input("x", {DType::f32, {4, 4}});
  const Value a = exp(x);
  const Value row = reduce_sum(a, {1});
  p.output("y", a / broadcast(row, {4, 4}, {0}));
  EXPECT_EQ(expect_same(p).steps.size(), 3u);
}

TEST(Plan, ViewsCostNoStep) {
  Program p("views");
  const Value x = p.input("x", {DType::f32, {4, 6}});
  const Value t = transpose(reshape(slice(x, {1, 0}, {3, 6}), {2, 2, 3}), {2, 0, 1});
  p.output("y", neg(t));
  p.output("z", dot(reshape(x, {4, 6}), transpose(x, {1, 0}),
                    {.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}}));
  EXPECT_EQ(expect_same(p).steps.size(), 2u);
}

TEST(Plan, OutputThatIsAnInputOrAConstantOrShared) {
  Program p("plain");
  const Value x = p.input("x", {DType::f32, {3}});
  p.output("same", x);
  p.output("zero", constant(p, {DType::f32, {2, 2}}, 0.5));
  const Value y = exp(x);
  p.output("y1", y);
  p.output("y2", y);
  expect_same(p);
}

TEST(Plan, ReplacedInputIsWrittenInPlace) {
  Program p("update");
  const Value w = p.input("w", {DType::f32, {8}});
  const Value g = p.input("g", {DType::f32, {8}});
  p.output("w", w - g * 0.1);
  const Plan plan = expect_same(p);
  EXPECT_EQ(plan.steps.size(), 1u) << print(plan);
}

TEST(Plan, ReplacedInputThatIsReadLaterIsCopied) {
  Program p("late");
  const Value w = p.input("w", {DType::f32, {4, 4}});
  const Value next = w * 2.0;
  p.output("w", next);
  p.output("y", dot(w, next,
                    {.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}}));
  const Plan plan = expect_same(p);
  EXPECT_EQ(count_steps(plan, nullptr), 1) << print(plan);
}

TEST(Plan, SwappedStateIsRefusedOrRight) {
  Program p("swap");
  const Value a = p.input("a", {DType::f32, {4}});
  const Value b = p.input("b", {DType::f32, {4}});
  p.output("a", b);
  p.output("b", a);
  EXPECT_ANY_THROW(plan_of(p));
}

TEST(Plan, ProductAddsToAnAccumulator) {
  Program p("accumulate");
  const Value x = p.input("x", {DType::f32, {5, 3}});
  const Value g = p.input("g", {DType::f32, {5, 4}});
  const Value acc = p.input("acc", {DType::f32, {3, 4}});
  p.output("acc",
           acc + dot(x, g,
                     {.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {0}, .rhs_contract = {0}}));
  const Plan plan = expect_same(p);
  ASSERT_EQ(plan.steps.size(), 1u) << print(plan);
  EXPECT_EQ(plan.steps[0].inputs.size(), 3u);
}

// Layers of x = x + tanh(norm(x) w + b), and the gradient of a loss, with or without accumulators.
Program training(Remat remat, bool accumulate, std::int64_t layers) {
  Program p("training");
  const Value x = p.input("x", {DType::f32, {2, 3, 4}});
  const Value w = p.input("w", {DType::f32, {layers, 4, 4}}, true);
  const Value b = p.input("b", {DType::f32, {layers, 4}}, true);
  const Value scale = p.input("scale", {DType::f32, {layers, 4}}, true);
  auto body = std::make_shared<Program>("layer");
  {
    const Value c = body->input("c", x.type());
    const Value wi = body->input("w", {DType::f32, {4, 4}}, true);
    const Value bi = body->input("b", {DType::f32, {4}}, true);
    const Value si = body->input("scale", {DType::f32, {4}}, true);
    body->output("c", c + tanh(linear(rms_norm(c, si, 1e-5).y, wi) + bi));
  }
  const Scan s = scan(body, std::vector<Value>{x}, std::vector<Value>{w, b, scale}, {}, layers);
  const Value loss = sum_all(s.carries[0] * s.carries[0]) * 0.5;
  p.output("loss", loss);
  const std::vector<Value> wrt{w, b, scale, x};
  const std::vector<Value> grads = gradients(p, loss, wrt, remat);
  for (std::size_t i = 0; i < wrt.size(); ++i) {
    const std::string name = "grad/" + p.info(wrt[i]).name;
    Value g = grads[i];
    if (accumulate) g = p.input(name, g.type()) + g;
    p.output(name, g);
  }
  return without_dead_code(accumulate_in_scans(simplify(without_duplicates(p))));
}

TEST(Plan, TrainingStepUnderEveryPolicy) {
  for (const Remat remat : {Remat::none, Remat::save_list, Remat::full}) {
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t layers : {1, 3}) expect_same(training(remat, accumulate, layers));
    }
  }
}

TEST(Plan, AccumulatorsCostNoStepOfTheirOwn) {
  const Plan with = plan_of(training(Remat::none, true, 3));
  for (const Step& s : with.steps) {
    if (s.op != &dot_op || s.outputs[0].type.shape != (Dims{4, 4})) continue;
    EXPECT_EQ(s.inputs.size(), 3u) << print(with);
  }
}

TEST(Plan, ScanWithSwappedAndConstantCarries) {
  Program p("swap_scan");
  const Value x = p.input("x", {DType::f32, {3}});
  const Value y = p.input("y", {DType::f32, {3}});
  auto body = std::make_shared<Program>("swap_body");
  const Value a = body->input("a", x.type()), b = body->input("b", x.type()),
              c = body->input("c", x.type());
  body->output("a", b);
  body->output("b", a * 2.0);
  body->output("c", c);
  body->output("seen", a);
  body->output("sum", a + b);
  const Scan s = scan(body, std::vector<Value>{x, y, x}, {}, {}, 3);
  for (std::size_t i = 0; i < 3; ++i) p.output("carry" + std::to_string(i), s.carries[i]);
  p.output("seen", s.stacked[0]);
  p.output("sum", s.stacked[1]);
  expect_same(p);
}

// A product must not add to a matrix that it reads.
TEST(Plan, ProductOfTheReplacedInputIsNotFolded) {
  Program p("own");
  const Value w = p.input("w", {DType::f32, {4, 4}}), b = p.input("b", {DType::f32, {4, 4}});
  const DotDims dims{.lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}};
  p.output("w", add(w, dot(w, b, dims)));
  expect_same(p);
}

TEST(Plan, CarryThatStartsAsAConstantOfTheLoop) {
  Program p("first");
  const Value x = exp(p.input("in", {DType::f32, {4, 4}}));
  auto body = std::make_shared<Program>("body");
  const Value c = body->input("c", x.type()), k = body->input("x", x.type());
  body->output("c", c + broadcast(reduce_sum(k, {0}), {4, 4}, {1}));
  p.output("y", scan(body, std::vector<Value>{x}, {}, std::vector<Value>{x}, 3).carries[0]);
  expect_same(p);
}

TEST(Plan, CarryThatTurnsRound) {
  Program p("turn");
  const Value x = p.input("x", {DType::f32, {5, 5}});
  auto body = std::make_shared<Program>("body");
  body->output("c", transpose(body->input("c", x.type()), {1, 0}));
  p.output("y", scan(body, std::vector<Value>{x}, {}, {}, 3).carries[0]);
  expect_same(p);
}

TEST(Plan, StateThatTurnsRoundIsRefused) {
  Program p("turn_state");
  p.output("w", transpose(p.input("w", {DType::f32, {5, 5}}), {1, 0}));
  EXPECT_ANY_THROW(plan_of(p));
}

TEST(Plan, ScatterOfItsOwnBase) {
  Program p("own_base");
  const Value x = exp(p.input("x", {DType::f32, {4, 2}}));
  const Value ids = p.input("ids", {DType::i32, {4}});
  p.output("y", scatter_add_rows(x, ids, x));
  expect_same(p);
}

TEST(Plan, DeadNodesInABodyCostNothing) {
  Program p("dead");
  const Value x = p.input("x", {DType::f32, {3}});
  auto body = std::make_shared<Program>("body");
  const Value c = body->input("c", x.type());
  exp(c);
  body->output("c", neg(c));
  p.output("y", scan(body, std::vector<Value>{x}, {}, {}, 3).carries[0]);
  expect_same(p);
}

}  // namespace
}  // namespace dew
