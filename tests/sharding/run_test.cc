// Partitioned steps on the CPU runtime, all devices in one process, against the reference on one.
#include <gtest/gtest.h>

#include "dew/ops/ops.h"
#include "tests/effort.h"
#include "tests/sharding/machines.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

class ExecutedStep : public ReferenceStep {
 public:
  using ReferenceStep::ReferenceStep;

  void expect_same(const Mesh& mesh, double tolerance, std::mt19937* random = nullptr) {
    SCOPED_TRACE(to_string(mesh));
    const Placement placement = placement_on(mesh, random);
    const Arrays first = run(placement, 1, false), second = run(placement, 3, false);
    run(placement, 2, true);
    for (const auto& [name, array] : after()) {
      const Array& found = first.at(name);
      if (found.data.empty()) continue;
      EXPECT_EQ(found, second.at(name)) << name << " depends on the number of workers";
      expect_close(name, found, array, tolerance);
    }
  }

 private:
  Arrays run(const Placement& placement, int workers, bool check_replicas) const {
    const std::unique_ptr<Backend> backend = cpu_backend(workers);
    ExecutedMachine machine(module(), placement, *backend, check_replicas);
    run_on(machine);
    Arrays out;
    for (const auto& [name, array] : after()) out[name] = machine.get(name);
    return out;
  }
};

// y is said to be the same on both devices, but each adds its number to x.
Module false_claim() {
  Module module;
  Program p("claim");
  const Value x = p.input("x", {DType::f32, {2}});
  const Value number = device_index(p, {.atoms = {0}, .members = 2, .dims = {}, .to = {}});
  const Value as_float = convert(number, DType::f32);
  p.set_shards(number, {0}, false);
  p.set_shards(as_float, {0}, false);
  p.output("y", add(x, as_float));
  module.add_register("x", {DType::f32, {2}});
  module.add_register("y", {DType::f32, {2}});
  module.programs.push_back(std::move(p));
  CallList list{.name = "run", .calls = {}};
  add_call(module, list, 0);
  module.lists.push_back(std::move(list));
  return module;
}

TEST(Run, ReplicasThatDifferAreFound) {
  const std::unique_ptr<Backend> backend = cpu_backend(1);
  const std::unique_ptr<Executable> executable =
      backend->load(false_claim(), {.mesh = build_mesh({.tensor = 2}, 2), .check_replicas = true});
  try {
    executable->run(0);
    FAIL() << "not noticed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    EXPECT_NE(std::string(e.what()).find("2 elements differ between devices"), std::string::npos)
        << e.what();
  }
}

TEST(Run, LlamaLikeSteps) {
  ExecutedStep step({llama_like()});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh, 1e-4);
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2), 1e-4);
}

TEST(Run, GptLikeStepsInMicroSteps) {
  ExecutedStep step({gpt_like(), 12, 3});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh, 1e-4);
}

TEST(Run, Bf16Steps) {
  ExecutedStep step({llama_like(), 12, 2, DType::bf16});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh, 0.1);
}

TEST(Run, RandomLayouts) {
  std::mt19937 random(5);
  ExecutedStep step({llama_like(), 12, 2});
  for (int i = 0; i < effort(12); ++i) {
    const std::vector<Mesh> all = meshes();
    step.expect_same(all[3 + random() % (all.size() - 3)], 1e-4, &random);
  }
}

}  // namespace
}  // namespace dew
