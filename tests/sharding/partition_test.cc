// One training step on many meshes, all devices in lockstep, against the same step on one device.
#include <gtest/gtest.h>

#include "dew/partition/lockstep_test_support.h"
#include "dew/train/run_module_test_support.h"
#include "tests/sharding/placements.h"

namespace dew {
namespace {

using models::CausalTransformer;
using models::TransformerConfig;
using plain::Arrays;
using plain::scalar;
using plain::Sequence;
using sharding_test::training_placement;

constexpr int kVocab = 24, kColumns = 6;

TransformerConfig llama_like() {
  return {.vocab_size = kVocab,
          .emb_features = 12,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 6,
          .mlp_features = 24,
          .dropout = 0.25,
          .window_pattern = {3, 0}};
}

TransformerConfig gpt_like() {
  return {.vocab_size = kVocab,
          .emb_features = 12,
          .num_layers = 2,
          .num_heads = 2,
          .mlp_features = 24,
          .max_seq_len = 9,
          .mlp = "gelu",
          .positions = "learned",
          .norm = "layer",
          .qk_norm = false,
          .tie_embeddings = false,
          .attention_bias = true,
          .mlp_bias = true};
}

struct Case {
  TransformerConfig config;
  int rows = 12, micro_steps = 1;
  DType compute = DType::f32;
};

// Everything that a step's registers hold before it.
Arrays start(const LMObjective& objective, const Optimizer& optimizer, const Case& c) {
  Arrays r;
  const plain::Params params = plain::random_params(objective.params(), 5);
  for (const StateArray& state : state_arrays(objective.params(), optimizer)) {
    const ParamSpec& spec = objective.params()[state.param];
    r[state.name] = Array(spec.type.shape);
    if (state.starts_as_parameter) r[state.name].data = params.at(spec.name);
  }
  std::vector<std::vector<Sequence>> micro;
  for (int i = 0; i < c.micro_steps; ++i)
    micro.push_back(
        plain::random_batch(c.rows, kColumns, kVocab, true, static_cast<std::uint32_t>(10 + i)));
  plain::add_step(r, micro);
  const std::map<std::string, double> scalars = {{"lr", 0.05},         {"clip_norm", 0.5},
                                                 {"c1", 10},           {"c2", 1000},
                                                 {"inv_weight", 0.01}, {"inv_tokens", 0}};
  for (const auto& [name, value] : scalars) r[name] = scalar(value);
  r["key"].data = {3, 4};
  r["step"].data = {9};
  return r;
}

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

std::vector<Mesh> meshes() {
  std::vector<Mesh> out;
  const auto add = [&](const MeshSpec& spec, std::int64_t devices) {
    out.push_back(build_mesh(spec, devices));
  };
  add({}, 1);
  add({}, 2);
  add({}, 3);
  add({.fsdp = 2}, 2);
  add({.fsdp = 6}, 6);
  add({.tensor = 2}, 2);
  add({.fsdp = 2, .tensor = 2}, 4);
  add({.fsdp = 3, .tensor = 2}, 6);
  add({.fsdp = 2}, 4);
  add({.fsdp = 2, .expert = 2}, 4);
  add({.fsdp = 2, .tensor = 2}, 8);
  return out;
}

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
