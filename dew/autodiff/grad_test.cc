#include "dew/autodiff/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "dew/autodiff/simplify.h"
#include "dew/ir/interpret.h"
#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

Array random_array(const Dims& shape, std::mt19937& engine) {
  Array a(shape);
  std::normal_distribution<double> normal;
  for (double& x : a.data) x = normal(engine);
  return a;
}

std::vector<Array> random_inputs(const Program& p, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<Array> out;
  for (const int id : p.inputs())
    out.push_back(random_array(p.values()[static_cast<std::size_t>(id)].type.shape, engine));
  return out;
}

// Every gradient output "grad/NAME" against central differences of output "loss".
void expect_gradients(const Program& p, std::vector<Array> inputs, double tolerance = 1e-7) {
  const std::vector<Array> results = interpret(p, inputs);
  const auto loss = [&] { return interpret(p, inputs)[0].data[0]; };
  for (std::size_t o = 1; o < p.outputs().size(); ++o) {
    const std::string name = p.outputs()[o].name.substr(5);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (p.values()[static_cast<std::size_t>(p.inputs()[i])].name != name) continue;
      for (std::size_t k = 0; k < inputs[i].data.size(); ++k) {
        const double x = inputs[i].data[k], h = 1e-5;
        inputs[i].data[k] = x + h;
        const double up = loss();
        inputs[i].data[k] = x - h;
        const double down = loss();
        inputs[i].data[k] = x;
        const double slope = (up - down) / (2 * h);
        EXPECT_NEAR(results[o].data[k], slope, tolerance * (1 + std::abs(slope)))
            << name << " " << k;
      }
    }
  }
}

void add_gradients(Program& p, Value loss, const std::vector<Value>& wrt,
                   Remat remat = Remat::none) {
  p.output("loss", loss);
  const std::vector<Value> grads = gradients(p, loss, wrt, remat);
  for (std::size_t i = 0; i < wrt.size(); ++i) p.output("grad/" + p.info(wrt[i]).name, grads[i]);
}

Value sum_all(Value x) {
  Dims dims;
  for (std::int64_t d = 0; d < x.type().rank(); ++d) dims.push_back(d);
  return reduce_sum(x, dims);
}

// Layers of x = x + tanh(norm(x) w + b) * gain, with a constant gain and a stacked by-product.
Program stacked_layers(Remat remat, std::int64_t layers) {
  Program p("layers_example");
  const Value x = p.input("x", {DType::f32, {2, 3, 4}});
  const Value w = p.input("w", {DType::f32, {layers, 4, 4}}, true);
  const Value b = p.input("b", {DType::f32, {layers, 4}}, true);
  const Value scale = p.input("scale", {DType::f32, {layers, 4}}, true);
  const Value gain = p.input("gain", {DType::f32, {4}}, true);
  auto body = std::make_shared<Program>("layer");
  {
    const Value c = body->input("c", x.type());
    const Value wi = body->input("w", {DType::f32, {4, 4}}, true);
    const Value bi = body->input("b", {DType::f32, {4}}, true);
    const Value si = body->input("scale", {DType::f32, {4}}, true);
    const Value g = body->input("gain", {DType::f32, {4}}, true);
    const Value h = tanh(linear(rms_norm(c, si, 1e-5).y, wi) + bi);
    body->set_name(h, "h");
    const Value next = c + h * g;
    body->output("c", next);
    body->output("size", reduce_sum(h * h, {2}));
  }
  const std::vector<Value> carries{x}, slices{w, b, scale}, constants{gain};
  const Scan s = scan(body, carries, slices, constants, layers);
  const Value loss = sum_all(s.carries[0] * s.carries[0]) * 0.5 + sum_all(s.stacked[0]) * 0.25;
  add_gradients(p, loss, {x, w, b, scale, gain}, remat);
  return p;
}

TEST(Gradients, ChainWithSharedValue) {
  Program p("chain");
  const Value x = p.input("x", {DType::f32, {5}});
  const Value y = p.input("y", {DType::f32, {5}});
  const Value a = exp(x) * y;
  add_gradients(p, sum_all(a * a + sin(x) / (y * y + 1.0)), {x, y});
  expect_gradients(p, random_inputs(p, 1));
}

TEST(Gradients, ZeroWhereTheLossDoesNotDepend) {
  Program p("zero");
  const Value x = p.input("x", {DType::f32, {3}});
  const Value y = p.input("y", {DType::f32, {2}});
  add_gradients(p, sum_all(x), {x, y});
  const auto out = interpret(p, random_inputs(p, 2));
  EXPECT_EQ(out[1].data, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(out[2].data, (std::vector<double>{0, 0}));
}

TEST(Gradients, ScanUnderEveryPolicy) {
  for (const Remat remat : {Remat::none, Remat::save_list, Remat::full}) {
    for (const std::int64_t layers : {1, 3}) {
      const Program p = stacked_layers(remat, layers);
      verify(p);
      expect_gradients(p, random_inputs(p, 3));
    }
  }
}

TEST(Gradients, PassesKeepTheNumbersAndMergeTheForwardScans) {
  for (const Remat remat : {Remat::none, Remat::save_list, Remat::full}) {
    const Program p = stacked_layers(remat, 3);
    const Program q = without_dead_code(accumulate_in_scans(simplify(without_duplicates(p))));
    verify(q);
    int scans = 0;
    for (const Node& node : q.nodes()) scans += node.op == &scan_op ? 1 : 0;
    EXPECT_EQ(scans, 2);
    const auto inputs = random_inputs(p, 4);
    const auto before = interpret(p, inputs), after = interpret(q, inputs);
    for (std::size_t o = 0; o < before.size(); ++o) {
      for (std::size_t k = 0; k < before[o].data.size(); ++k) {
        EXPECT_NEAR(before[o].data[k], after[o].data[k], 1e-12 * (1 + std::abs(before[o].data[k])));
      }
    }
  }
}

// What each policy keeps, counted in the forward scan's stacked results beside the program's own.
TEST(Gradients, PoliciesKeepWhatTheySay) {
  const auto residuals = [](Remat remat) {
    const Program p = without_duplicates(stacked_layers(remat, 3));
    std::vector<std::string> names;
    for (const Node& node : p.nodes()) {
      const auto* s = std::get_if<ScanAttrs>(&node.attrs);
      if (s == nullptr || s->reverse) continue;
      for (const Output& o : s->body->outputs()) {
        if (o.name.starts_with("residual/")) names.push_back(o.name);
      }
    }
    return names.size();
  };
  EXPECT_EQ(residuals(Remat::full), 1u);       // the carried value
  EXPECT_EQ(residuals(Remat::save_list), 2u);  // and h
  EXPECT_EQ(residuals(Remat::none),
            2u);  // the carried value and the product; tanh and norm are made again
}

// One result of a node is kept, the other made again.
TEST(Gradients, HalfOfANodeMayBeNamed) {
  Program p("half");
  const Value x = p.input("x", {DType::f32, {2, 4}});
  const Value w = p.input("w", {DType::f32, {2, 4}}, true);
  auto body = std::make_shared<Program>("layer");
  {
    const Value c = body->input("c", x.type());
    const Value s = body->input("w", {DType::f32, {4}}, true);
    const RmsNorm n = rms_norm(c, s, 1e-5);
    body->set_name(n.y, "y");
    body->output("c", c + n.y * n.y);
  }
  const Scan s = scan(body, std::vector<Value>{x}, std::vector<Value>{w}, {}, 2);
  add_gradients(p, sum_all(s.carries[0] * s.carries[0]), {x, w}, Remat::save_list);
  expect_gradients(p, random_inputs(p, 6));
}

TEST(Gradients, LongCheapChainsTakeNoTime) {
  Program p("long");
  const Value x = p.input("x", {DType::f32, {1}});
  auto body = std::make_shared<Program>("layer");
  Value y = body->input("c", x.type());
  for (int i = 0; i < 40; ++i) y = y * y;
  body->output("c", y);
  const Scan s = scan(body, std::vector<Value>{x}, {}, {}, 1);
  add_gradients(p, sum_all(s.carries[0]), {x});
  EXPECT_EQ(interpret(p, std::vector<Array>{Array(Dims{1}, 1.0)})[1].data[0], 0x1p40);
}

// Stacked results and carries of weights alone, in bf16: their cotangents are f32.
TEST(Gradients, ScansOfWeightsAlone) {
  Program p("weights");
  const Value c0 = p.input("c0", {DType::bf16, {2}}, true);
  const Value w = p.input("w", {DType::bf16, {3, 2}}, true);
  auto body = std::make_shared<Program>("layer");
  {
    const Value c = body->input("c", {DType::bf16, {2}}, true);
    const Value wi = body->input("w", {DType::bf16, {2}}, true);
    body->output("c", c + wi * c);
    body->output("y", wi * 2.0);
  }
  const Scan s = scan(body, std::vector<Value>{c0}, std::vector<Value>{w}, {}, 3);
  const Value y = convert(s.stacked[0], DType::f32), c = convert(s.carries[0], DType::f32);
  add_gradients(p, sum_all(y * y) + sum_all(c * c), {c0, w});
  expect_gradients(p, random_inputs(p, 7));
}

TEST(Gradients, CotangentsSayWhoseTheyAre) {
  Program p("likes");
  const Value x = p.input("x", {DType::f32, {2, 3}});
  const Value w = p.input("w", {DType::f32, {3, 4}}, true);
  const Value y = linear(x, w);
  const std::vector<Value> grads = gradients(p, sum_all(y * y), std::vector<Value>{x, w});
  EXPECT_EQ(p.info(grads[0]).like, x.id);
  EXPECT_EQ(p.info(grads[1]).like, w.id);
}

TEST(Accumulation, MovesIntoTheScan) {
  Program p = stacked_layers(Remat::none, 3);
  const Value acc = p.input("acc", {DType::f32, {3, 4, 4}});
  p.output("sum", add(acc, p.find_output("grad/w")));
  Program q("micro");
  // Only the sum is wanted: with the gradient itself as an output too, nothing moves.
  {
    Cloner clone(p, q);
    for (const int id : p.inputs()) clone.clone_input(id);
    for (const Node& node : p.nodes()) clone.clone_node(node);
    clone.finish();
    q.output("sum", clone[p.find_output("sum").id]);
  }
  Program r = without_dead_code(accumulate_in_scans(simplify(without_duplicates(q))));
  verify(r);
  EXPECT_EQ(r.nodes()[static_cast<std::size_t>(r.info(r.find_output("sum")).node)].op, &scan_op);
  const auto inputs = random_inputs(q, 5);
  const auto a = interpret(q, inputs), b = interpret(r, inputs);
  for (std::size_t k = 0; k < a[0].data.size(); ++k) EXPECT_NEAR(a[0].data[k], b[0].data[k], 1e-12);
}

}  // namespace
}  // namespace dew
