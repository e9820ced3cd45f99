// The engine without the trainer: a two-layer network learns sin(x), written op by op.
//
// A step is one program: forward pass, loss, gradient, update. What outlives it are registers; an
// output with the name of an input replaces it in place.
#include <cmath>
#include <cstdio>
#include <random>

#include "dew/dew.h"

namespace {

constexpr std::int64_t kRows = 64, kWidth = 32;
constexpr double kRate = 0.05;

dew::Program step_program() {
  dew::Program p("step");
  const auto f32 = [](dew::Dims shape) { return dew::Type{dew::DType::f32, std::move(shape)}; };
  const dew::Value x = p.input("x", f32({kRows, 1})), y = p.input("y", f32({kRows, 1}));
  const std::vector<dew::Value> weights = {p.input("w1", f32({1, kWidth}), true),
                                           p.input("b1", f32({kWidth}), true),
                                           p.input("w2", f32({kWidth, 1}), true)};
  const dew::Value hidden = tanh(linear(x, weights[0]) + weights[1]);
  const dew::Value error = linear(hidden, weights[2]) - y;
  const dew::Value loss = reduce_sum(error * error, {0, 1}) / static_cast<double>(kRows);

  const std::vector<dew::Value> grads = dew::gradients(p, loss, weights);
  p.output("loss", loss);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    p.output(p.info(weights[i]).name, weights[i] - grads[i] * kRate);
  }
  return p;
}

// A register for each input and output, and one call that binds them by name.
dew::Module module_of(dew::Program program) {
  dew::Module module;
  for (const int input : program.inputs()) {
    const dew::ValueInfo& info = program.values()[static_cast<std::size_t>(input)];
    module.add_register(info.name, info.type);
  }
  module.add_register("loss", {dew::DType::f32, {}});
  module.programs.push_back(std::move(program));
  dew::CallList list{.name = "train", .calls = {}};
  dew::add_call(module, list, 0);
  module.lists.push_back(std::move(list));
  return module;
}

}  // namespace

int main() {
  const auto devices = dew::cpu_devices();
  const auto executable = dew::compile(module_of(step_program()), *devices);
  const auto floats = [&](const char* name) {
    const auto bytes = executable->shards(executable->module().register_index(name)).front().bytes;
    return std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  };

  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  for (float& w : floats("w1")) w = normal(random);
  for (float& b : floats("b1")) b = normal(random);
  for (float& w : floats("w2")) w = 0.1f * normal(random);
  for (std::size_t i = 0; i < kRows; ++i) {
    floats("x")[i] = 6.0f * static_cast<float>(i) / kRows - 3.0f;
    floats("y")[i] = std::sin(floats("x")[i]);
  }

  for (int step = 0; step <= 2000; ++step) {
    executable->run(0);
    if (step % 500 == 0)
      std::printf("step %4d: loss %.5f\n", step, static_cast<double>(floats("loss")[0]));
  }
  return floats("loss")[0] < 0.01f ? 0 : 1;
}
