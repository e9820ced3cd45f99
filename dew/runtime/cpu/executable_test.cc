#include "dew/runtime/cpu/executable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "dew/autodiff/grad.h"
#include "dew/autodiff/simplify.h"
#include "dew/base/error.h"
#include "dew/ir/interpret.h"
#include "dew/ir/rewrite.h"
#include "dew/ir/tensor.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew {
namespace {

Value sum_all(Value x) {
  Dims dims;
  for (std::int64_t d = 0; d < x.type().rank(); ++d) dims.push_back(d);
  return reduce_sum(x, dims);
}

// Layers of x = x + tanh(norm(x) w + b), the gradient of a loss, and an update in place.
Program training(std::int64_t rows, std::int64_t width, std::int64_t layers) {
  Program p("training");
  const Value x = p.input("x", {DType::f32, {rows, 3, width}});
  const Value w = p.input("w", {DType::f32, {layers, width, width}}, true);
  const Value b = p.input("b", {DType::f32, {layers, width}}, true);
  const Value scale = p.input("scale", {DType::f32, {layers, width}}, true);
  auto body = std::make_shared<Program>("layer");
  {
    const Value c = body->input("c", x.type());
    const Value wi = body->input("w", {DType::f32, {width, width}}, true);
    const Value bi = body->input("b", {DType::f32, {width}}, true);
    const Value si = body->input("scale", {DType::f32, {width}}, true);
    body->output("c", c + tanh(linear(rms_norm(c, si, 1e-5).y, wi) + bi));
  }
  const Scan s = scan(body, std::vector<Value>{x}, std::vector<Value>{w, b, scale}, {}, layers);
  const Value loss =
      sum_all(s.carries[0] * s.carries[0]) * (0.5 / static_cast<double>(rows * width));
  p.output("loss", loss);
  const std::vector<Value> wrt{w, b, scale};
  const std::vector<Value> grads = gradients(p, loss, wrt);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    p.output(p.info(wrt[i]).name, wrt[i] - grads[i] * 0.1);
  return without_dead_code(accumulate_in_scans(simplify(without_duplicates(p))));
}

Module module_of(const Program& p) {
  Module m;
  for (const int id : p.inputs())
    m.add_register(p.values()[static_cast<std::size_t>(id)].name,
                   p.values()[static_cast<std::size_t>(id)].type);
  m.add_register("loss", {DType::f32, {}});
  m.programs.push_back(p);
  CallList list{.name = "train", .calls = {}};
  add_call(m, list, 0);
  m.lists.push_back(list);
  return m;
}

std::vector<Array> random_inputs(const Program& p) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<Array> out;
  for (const int id : p.inputs()) {
    Array a(p.values()[static_cast<std::size_t>(id)].type.shape);
    for (double& v : a.data) v = static_cast<double>(normal(engine));
    out.push_back(std::move(a));
  }
  return out;
}

std::vector<std::vector<std::byte>> run(const Program& p, int workers, int steps) {
  cpu::CpuExecutable executable(module_of(p), {},
                                std::make_shared<cpu::Pool>(workers, cpu::onednn_thread_init));
  const std::vector<Array> inputs = random_inputs(p);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    store(inputs[i], DType::f32, executable.shards(static_cast<int>(i)).front().bytes.data());
  for (int s = 0; s < steps; ++s) executable.run(0);
  std::vector<std::vector<std::byte>> out;
  for (std::size_t r = 0; r < executable.module().registers.size(); ++r) {
    const auto bytes = executable.shards(static_cast<int>(r)).front().bytes;
    out.emplace_back(bytes.begin(), bytes.end());
  }
  return out;
}

TEST(CpuExecutable, OneStepEqualsTheInterpreter) {
  const Program p = training(5, 7, 3);
  const std::vector<Array> want = interpret(p, random_inputs(p));
  const auto got = run(p, 2, 1);
  for (std::size_t o = 0; o < want.size(); ++o) {
    const Module module = module_of(p);
    const int reg = module.register_index(p.outputs()[o].name);
    const Type& type = module.registers[static_cast<std::size_t>(reg)].type;
    const Array have = load(type, got[static_cast<std::size_t>(reg)].data());
    for (std::size_t k = 0; k < have.data.size(); ++k) {
      EXPECT_NEAR(have.data[k], want[o].data[k], 1e-5 * (1 + std::abs(want[o].data[k])))
          << p.outputs()[o].name << " " << k;
    }
  }
}

TEST(CpuExecutable, SameBitsForAnyNumberOfWorkers) {
  for (const auto& [rows, width] :
       {std::pair<std::int64_t, std::int64_t>{5, 7}, {40, 96}, {130, 200}}) {
    const Program p = training(rows, width, 2);
    const auto one = run(p, 1, 3);
    for (const int workers : {2, 3, 4})
      EXPECT_EQ(one, run(p, workers, 3)) << rows << " x " << width << ", " << workers;
  }
}

TEST(CpuExecutable, SlicedInputsAndReplacedRegisters) {
  Program p("add");
  const Value sum = p.input("sum", {DType::f32, {3}}), x = p.input("x", {DType::f32, {3}});
  p.output("sum", sum + x);
  Module m;
  m.add_register("sum", sum.type());
  m.add_register("x", {DType::f32, {4, 3}});
  m.programs.push_back(p);
  CallList list{.name = "all", .calls = {}};
  for (int i = 0; i < 4; ++i) add_call(m, list, 0, {"x"}, i);
  m.lists.push_back(list);
  cpu::CpuExecutable executable(std::move(m), {},
                                std::make_shared<cpu::Pool>(2, cpu::onednn_thread_init));
  Array xs(Dims{4, 3});
  for (std::size_t i = 0; i < 12; ++i) xs.data[i] = static_cast<double>(i);
  store(xs, DType::f32, executable.shards(1).front().bytes.data());
  executable.run(0);
  EXPECT_EQ(load({DType::f32, {3}}, executable.shards(0).front().bytes.data()).data,
            (std::vector<double>{18, 22, 26}));
}

TEST(CpuExecutable, ADescriptionNamesKernels) {
  const Program p = training(2, 4, 2);
  cpu::CpuExecutable executable(module_of(p), {},
                                std::make_shared<cpu::Pool>(1, cpu::onednn_thread_init));
  EXPECT_NE(executable.describe().find("plan training"), std::string::npos);
  EXPECT_GT(executable.planned_bytes(), executable.arena_bytes(0));
}

}  // namespace
}  // namespace dew
