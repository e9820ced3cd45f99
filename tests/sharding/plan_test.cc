// Plans of partitioned steps, all devices' parts in one memory: run with the references, they give
// what one device gives.
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/sharding/machines.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

class PlannedStep {
 public:
  explicit PlannedStep(const Case& c)
      : objective_(CausalTransformer(c.config), {.seq_len = kColumns, .z_loss = 0.02}),
        module_(optimized(
            training_module(objective_, optimizer_, {c.micro_steps, c.rows, kColumns}, c.compute))),
        before_(start(objective_, optimizer_, c)),
        after_(before_) {
    for (const char* name : {"c1", "c2"}) {
      before_.erase(name);
      after_.erase(name);
    }
    plain::run_list(module_, "train", after_);
    plain::run_list(module_, "eval", after_);
  }

  void expect_same(const Mesh& mesh, std::mt19937* random = nullptr) {
    const Placement placement = training_placement(module_, objective_, optimizer_, mesh, random);
    const Partitioned parts = partition(module_, placement);
    PlannedMachine machine(parts, module_, mesh);
    for (const auto& [name, array] : before_) machine.set(name, array);
    machine.run("train");
    machine.run("eval");
    for (const auto& [name, array] : after_) {
      double scale = 1e-3;
      for (const double v : array.data) scale = std::max(scale, std::abs(v));
      EXPECT_LT(plain::worst_difference(machine.get(name).data, array.data) / scale, 1e-4)
          << name << " on " << to_string(mesh);
    }
  }

 private:
  // Not adamw: it makes steps of one size from gradients that are zero but for rounding (of the key
  // biases).
  const Optimizer optimizer_ = {.name = "sgd", .momentum = 0.5, .clip_norm = 0.5, .ema_decay = 0.9};
  LMObjective objective_;
  Module module_;
  Arrays before_, after_;
};

TEST(Plans, OfLlamaLikeSteps) {
  PlannedStep step({llama_like()});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
}

TEST(Plans, OfGptLikeSteps) {
  PlannedStep step({gpt_like(), 12, 2});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
}

TEST(Plans, OfRandomLayouts) {
  std::mt19937 random(3);
  PlannedStep step({llama_like()});
  for (int i = 0; i < effort(6); ++i) {
    const std::vector<Mesh> all = meshes();
    step.expect_same(all[3 + random() % (all.size() - 3)], &random);
  }
}

}  // namespace
}  // namespace dew
