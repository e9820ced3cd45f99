// Training steps that tests of meshes run: models, batches, and the meshes.
#pragma once

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
