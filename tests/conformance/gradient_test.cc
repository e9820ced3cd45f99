// Gradients against central differences, in double precision through the reference interpreter.
#include <algorithm>
#include <cmath>

#include "dew/autodiff/grad.h"
#include "dew/ir/interpret.h"
#include "tests/conformance/by_op.h"
#include "tests/effort.h"

namespace dew {
namespace {

constexpr double kStep = 1e-3;
constexpr double kTolerance = 1e-7;  // of the larger of 1 and the gradient

// What is differentiated: the sum of all graded results, each element times a random number that is
// one more input.
struct Graded {
  Program loss{"loss"}, gradient{"gradient"};
  std::vector<Array> inputs;
};

std::vector<Value> add_loss(Program& program, const Sample& sample) {
  std::vector<Value> cotangents;
  Value loss = constant(program, {DType::f32, {}}, 0.0);
  for (int place : sample.graded_outputs) {
    const Value y = program.value(program.outputs()[static_cast<std::size_t>(place)].value);
    const Value weight =
        program.input("cotangent" + std::to_string(place), {DType::f32, y.shape()});
    const Value product = convert(y, DType::f32) * weight;
    Dims all;
    for (std::int64_t d = 0; d < y.type().rank(); ++d) all.push_back(d);
    loss = loss + reduce_sum(product, all);
    cotangents.push_back(weight);
  }
  return {loss};
}

Program with_only_output(const Program& program, const std::vector<Value>& values) {
  Program result("result");
  std::vector<Value> map(program.values().size());
  for (int id : program.inputs()) {
    const ValueInfo& info = program.values()[static_cast<std::size_t>(id)];
    map[static_cast<std::size_t>(id)] = result.input(info.name, info.type, info.weight);
  }
  for (const Node& node : program.nodes()) {
    std::vector<Value> operands;
    for (int id : node.operands) operands.push_back(map[static_cast<std::size_t>(id)]);
    const std::vector<Value> results = result.add(*node.op, operands, node.attrs);
    for (std::size_t i = 0; i < results.size(); ++i)
      map[static_cast<std::size_t>(node.first_result) + i] = results[i];
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    result.output("r" + std::to_string(i), map[static_cast<std::size_t>(values[i].id)]);
  }
  return result;
}

Graded grade(const Sample& sample, std::uint64_t seed, Remat remat) {
  Graded graded;
  graded.inputs = sample.inputs;
  Program program = sample.program;
  const Value loss = add_loss(program, sample)[0];
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::size_t i = graded.inputs.size(); i < program.inputs().size(); ++i) {
    Array weight(program.value(program.inputs()[i]).shape());
    for (double& x : weight.data) x = uniform(engine);
    graded.inputs.push_back(std::move(weight));
  }
  graded.loss = with_only_output(program, {loss});
  std::vector<Value> wrt;
  for (int place : sample.graded_inputs)
    wrt.push_back(program.value(program.inputs()[static_cast<std::size_t>(place)]));
  const std::vector<Value> grads = gradients(program, loss, wrt, remat);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const DType expected = program.info(wrt[i]).weight ? DType::f32 : wrt[i].dtype();
    EXPECT_EQ(grads[i].type(), (Type{expected, wrt[i].shape()}))
        << "gradient of input " << sample.graded_inputs[i];
  }
  verify(program);
  graded.gradient = with_only_output(program, grads);
  return graded;
}

// d loss / d step at zero, when `move` moves the inputs by a multiple of the step: five-point
// formula.
template <class Move>
double slope(const Graded& graded, Move move) {
  const auto at = [&](double step) {
    std::vector<Array> inputs = graded.inputs;
    move(inputs, step);
    return interpret(graded.loss, inputs)[0].data[0];
  };
  return (8.0 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12.0 * kStep);
}

void expect_close(double ours, double differences) {
  EXPECT_NEAR(ours, differences, kTolerance * std::max(1.0, std::fabs(differences)));
}

// Some elements of every input, one at a time.
void check_elements(const Sample& sample, const Graded& graded, const std::vector<Array>& grads,
                    std::mt19937_64& engine) {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const auto input = static_cast<std::size_t>(sample.graded_inputs[i]);
    const std::size_t size = grads[i].data.size();
    for (std::size_t trial = 0; trial < std::min<std::size_t>(size, 6); ++trial) {
      const std::size_t element = engine() % size;
      SCOPED_TRACE("input " + std::to_string(input) + ", element " + std::to_string(element));
      expect_close(grads[i].data[element], slope(graded, [&](std::vector<Array>& x, double step) {
                     x[input].data[element] += step;
                   }));
    }
  }
}

// All elements at once in a random direction: <gradient, direction> is the slope in it. (The
// dot-product test: the loss is <cotangent, result>, so this compares <cotangent, J direction> with
// <J^T cotangent, direction>.)
void check_direction(const Sample& sample, const Graded& graded, const std::vector<Array>& grads,
                     std::mt19937_64& engine) {
  std::uniform_real_distribution<double> uniform(-0.5, 0.5);
  std::vector<Array> direction = grads;
  double expected = 0.0;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    for (std::size_t k = 0; k < grads[i].data.size(); ++k) {
      direction[i].data[k] = uniform(engine);
      expected += direction[i].data[k] * grads[i].data[k];
    }
  }
  const double found = slope(graded, [&](std::vector<Array>& x, double step) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      std::vector<double>& data = x[static_cast<std::size_t>(sample.graded_inputs[i])].data;
      for (std::size_t k = 0; k < data.size(); ++k) data[k] += step * direction[i].data[k];
    }
  });
  expect_close(expected, found);
}

class Gradient : public ByOp {};
DEW_FOR_EVERY_OP(Gradient, samples_and_template());

TEST_P(Gradient, EqualsCentralDifferences) {
  const OpDef& op = *GetParam().op;
  const bool is_scan = &op == &scan_op;
  if (op.vjp == nullptr && !is_scan) GTEST_SKIP() << "not differentiable";
  int round = 0;
  for_samples(GetParam(), effort(25), {.rounded = false}, [&](const Sample& sample) {
    if (sample.graded_outputs.empty() || sample.graded_inputs.empty()) return;
    std::mt19937_64 engine(seed_of(GetParam(), 1000 + round));
    const Remat policies[] = {Remat::none, Remat::save_list, Remat::full};
    const Graded graded = grade(sample, engine(), is_scan ? policies[round++ % 3] : Remat::none);
    const std::vector<Array> grads = interpret(graded.gradient, graded.inputs);
    check_elements(sample, graded, grads, engine);
    check_direction(sample, graded, grads, engine);
  });
}

}  // namespace
}  // namespace dew
