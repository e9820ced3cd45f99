// The models that tests of whole steps run: between them every option of the transformer.
#pragma once

#include <string>
#include <vector>

#include "dew/train/step.h"

namespace dew::test {

struct Case {
  std::string name;
  models::TransformerConfig model;
  Optimizer optimizer;
  StepShape shape;        // physical rows and columns
  std::int64_t rows = 1;  // real rows, G
};

inline LMObjective objective_of(const Case& c) {
  return LMObjective(models::causal_transformer(c.model),
                     {.seq_len = c.shape.columns, .z_loss = 1e-3});
}

inline std::vector<Case> cases() {
  std::vector<Case> out;
  const models::TransformerConfig base = {
      .vocab_size = 67, .emb_features = 24, .num_layers = 3, .num_heads = 4, .max_seq_len = 18};
  out.push_back({"plain", base, adamw(1e-3), {1, 3, 18}, 3});

  models::TransformerConfig gpt2 = base;
  gpt2.positions = "learned";
  gpt2.norm = "layer";
  gpt2.mlp = "gelu";
  gpt2.attention_bias = gpt2.mlp_bias = true;
  gpt2.qk_norm = false;
  out.push_back({"gpt2", gpt2, lion(1e-3), {1, 2, 18}, 2});

  models::TransformerConfig grouped = base;
  grouped.num_kv_heads = 2;
  grouped.head_dim = 10;
  grouped.mlp = "geglu";
  grouped.tie_embeddings = false;
  grouped.window_pattern = {0, 5};
  grouped.attention_softcap = 20;
  grouped.logit_softcap = 10;
  grouped.dropout = 0.2;
  grouped.remat = "full";
  Optimizer clipped = adamw(1e-3);
  clipped.clip_norm = 0.5;
  clipped.ema_decay = 0.9;
  out.push_back({"grouped", grouped, clipped, {3, 2, 7}, 5});

  models::TransformerConfig saved = base;
  saved.remat = "save_list";
  saved.dropout = 0.1;
  out.push_back({"saved", saved, sgd(1e-2), {2, 1, 5}, 2});
  return out;
}

}  // namespace dew::test
