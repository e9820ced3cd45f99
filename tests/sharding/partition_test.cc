// One training step on many meshes, all devices in lockstep, against the same step on one device.
#include <gtest/gtest.h>

#include "dew/partition/lockstep_test_support.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

class PartitionedStep {
 public:
  explicit PartitionedStep(const Case& c)
      : objective_(CausalTransformer(c.config), {.seq_len = kColumns, .z_loss = 0.02}),
        module_(sharding_test::optimized(
            training_module(objective_, optimizer_, {c.micro_steps, c.rows, kColumns}, c.compute))),
        before_(start(objective_, optimizer_, c)),
        after_(before_) {
    plain::run_list(module_, "train", after_);
    plain::run_list(module_, "eval", after_);
  }

  void expect_same(const Mesh& mesh, std::mt19937* random = nullptr) {
    const Placement placement = training_placement(module_, objective_, optimizer_, mesh, random);
    const Partitioned parts = partition(module_, placement);
    lockstep::Machine machine(parts, module_, mesh);
    for (const auto& [name, array] : before_) machine.set(name, array);
    machine.run("train");
    machine.run("eval");
    for (const auto& [name, array] : after_) {
      double scale = 1e-3;
      for (const double v : array.data) scale = std::max(scale, std::abs(v));
      EXPECT_LT(plain::worst_difference(machine.get(name).data, array.data) / scale, 1e-9)
          << name << " on " << to_string(mesh);
    }
  }

 private:
  const Optimizer optimizer_ = {.clip_norm = 0.5, .ema_decay = 0.9};
  LMObjective objective_;
  Module module_;
  Arrays before_, after_;
};

TEST(Partition, LlamaLikeStep) {
  PartitionedStep step({llama_like()});
  for (const Mesh& mesh : meshes()) step.expect_same(mesh);
  // Two kv heads on four tensor devices.
  step.expect_same(split_axis(build_mesh({.tensor = 4}, 4), kTensor, 2));
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
}

TEST(Partition, GptLikeStepInMicroSteps) {
  PartitionedStep step({gpt_like(), 12, 3});
  for (const Mesh& mesh : meshes()) step.expect_same(mesh);
}

TEST(Partition, Bf16Step) {
  PartitionedStep step({llama_like(), 12, 2, DType::bf16});
  step.expect_same(build_mesh({.fsdp = 2, .tensor = 2}, 8));
}

TEST(Partition, RandomLayouts) {
  const char* given = std::getenv("DEW_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : 1;
  std::mt19937 random(seed);
  PartitionedStep llama({llama_like()}), gpt({gpt_like(), 12, 2});
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", layout " + std::to_string(i));
    const std::vector<Mesh> all = meshes();
    PartitionedStep& step = i % 2 == 0 ? llama : gpt;
    step.expect_same(all[3 + random() % (all.size() - 3)], &random);
  }
}

}  // namespace
}  // namespace dew
