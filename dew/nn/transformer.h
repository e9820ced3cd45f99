// The decoder-only transformer: embed -> [x += attention(norm(x)); x += mlp(norm(x))] x layers ->
// norm -> head. Families of published models are configurations of this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dew/nn/module.h"
#include "dew/nn/nn.h"

namespace dew::models {

struct RopeScaling {
  std::string type = "none";  // none, linear, llama3
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_seq_len = 0;
  bool operator==(const RopeScaling&) const = default;
};

// Names are the keys of the section [model] of a config. Numbers of 0 in the first group mean the
// default named there.
struct TransformerConfig {
  std::int64_t vocab_size = 0, emb_features = 0, num_layers = 0, num_heads = 0;
  std::int64_t num_kv_heads = 0;  // num_heads
  std::int64_t head_dim = 0;      // emb_features / num_heads
  std::int64_t mlp_features = 0;  // 4 * emb_features
  std::int64_t max_seq_len = 0;   // no limit; learned positions need one

  std::string mlp = "swiglu";      // swiglu, geglu, gelu, gelu_erf (exact)
  std::string positions = "rope";  // rope, learned
  std::string norm = "rms";        // rms, rms_plus_one (times 1 + scale), layer
  std::string remat = "none";      // what the backward pass makes again: none, save_list, full
  double norm_eps = 1e-5, rope_theta = 10000;
  bool qk_norm = true;         // RMS norm of each head's q and k, before rope
  bool tie_embeddings = true;  // the head is the embedding table
  bool attention_bias = false, mlp_bias = false;
  double dropout = 0;  // of the embedding's, attention's and mlp's outputs
  double logit_softcap = 0, attention_softcap = 0;  // cap * tanh(x / cap); 0 = none
  std::int64_t window = 0;  // tokens that a query sees, itself included; 0 = all before it
  // Windows layer by layer, repeated over the layers; empty: `window` everywhere.
  std::vector<std::int64_t> window_pattern = {};
  RopeScaling rope_scaling = {};
  bool qkv_bias = false;  // biases of q, k and v alone; attention_bias has them all
  // Where a layer has norms: "before" attention and mlp, "after" them (before the sum), "both".
  std::string norm_placement = "before";
  std::string qk_norm_over = "head";  // qk_norm: of each head, or "all" of a token's heads together
  bool scale_embeddings = false;      // tokens' vectors times sqrt(emb_features)
  double attention_scale = 0;         // of the scores; 0: 1 / sqrt(head_dim)

  bool operator==(const TransformerConfig&) const = default;
};

// The same with defaults filled in. Throws ErrorCode::usage, with the values and what would work.
TransformerConfig resolved(TransformerConfig config);
void validate(const TransformerConfig& config);

// What the forward pass reads beside the parameters. b rows, t columns.
struct TransformerInputs {
  ParamValues params;  // all of params(): vectors f32, the others f32 or the compute type
  Value ids, positions, segments;  // i32[b, t]
  // Counters of random numbers, read only if `training` and dropout > 0.
  Counters counters;
  DType compute = DType::f32;  // of products and the residual stream: f32 or bf16
  bool training = false;
  // If valid, tokens see what earlier calls have left in the cache (and there what they see of
  // themselves): each is written to its column, i32[b, t], before it looks; -1: to none.
  Value columns = {};
  KeyValueCache cache = {};  // of all layers; keys and values of the compute type
};

struct TransformerOutputs {
  Value states;         // [b, t, emb_features], after the final norm
  Value table;          // [vocab_size, emb_features]: logits = states . table^T, for head_loss
  KeyValueCache cache;  // with this call's tokens, where one was given
};

class CausalTransformer {
 public:
  explicit CausalTransformer(const TransformerConfig& config);

  const TransformerConfig& config() const { return config_; }  // resolved
  const std::vector<ParamSpec>& params() const { return params_.params(); }

  // Writes the forward pass onto the program of `in`.
  TransformerOutputs forward(const TransformerInputs& in) const;

 private:
  TransformerConfig config_;
  ParamList params_;
};

inline CausalTransformer causal_transformer(const TransformerConfig& config) {
  return CausalTransformer(config);
}

}  // namespace dew::models
