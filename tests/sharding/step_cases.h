// Training steps that tests of meshes run: models, batches, and the meshes.
#pragma once

#include <gtest/gtest.h>

#include "dew/train/run_module_test_support.h"
#include "tests/sharding/placements.h"

namespace dew::sharding_test {

using models::CausalTransformer;
using models::TransformerConfig;
using plain::Arrays;
using plain::scalar;
using plain::Sequence;

inline constexpr int kVocab = 24, kColumns = 6;

inline TransformerConfig llama_like() {
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

inline TransformerConfig gpt_like() {
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
inline Arrays start(const LMObjective& objective, const Optimizer& optimizer, const Case& c) {
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

// A step and an evaluation, with what their registers hold before, and after it on one device with
// the references.
class ReferenceStep {
 public:
  explicit ReferenceStep(const Case& c)
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

 protected:
  Placement placement_on(const Mesh& mesh, std::mt19937* random) const {
    return training_placement(module_, objective_, optimizer_, mesh, random);
  }

  // `machine` has set() and run(): for an ExecutedMachine and for a PlannedMachine.
  template <class Machine>
  void run_on(Machine& machine) const {
    for (const auto& [name, array] : before_) machine.set(name, array);
    machine.run("train");
    machine.run("eval");
  }

  static void expect_close(const std::string& name, const Array& found, const Array& expected,
                           double tolerance) {
    double scale = 1e-3;
    for (const double v : expected.data) scale = std::max(scale, std::abs(v));
    EXPECT_LT(plain::worst_difference(found.data, expected.data) / scale, tolerance) << name;
  }

  const Module& module() const { return module_; }
  const Arrays& after() const { return after_; }

 private:
  // Not adamw: it makes steps of one size from gradients that are zero but for rounding (of the key
  // biases).
  const Optimizer optimizer_ = {.name = "sgd", .momentum = 0.5, .clip_norm = 0.5, .ema_decay = 0.9};
  LMObjective objective_;
  Module module_;
  Arrays before_, after_;
};

inline std::vector<Mesh> meshes() {
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

}  // namespace dew::sharding_test
