#include "dew/hf/write_config.h"

#include "dew/base/json.h"

namespace dew::hf {
namespace {

using models::TransformerConfig;

OrderedJson gpt2(const TransformerConfig& c) {
  return {{"vocab_size", c.vocab_size},
          {"n_embd", c.emb_features},
          {"n_layer", c.num_layers},
          {"n_head", c.num_heads},
          {"n_positions", c.max_seq_len},
          {"n_inner", c.mlp_features},
          {"activation_function", c.mlp == "gelu_erf" ? "gelu" : "gelu_new"},
          {"layer_norm_epsilon", c.norm_eps},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"tie_word_embeddings", c.tie_embeddings}};
}

OrderedJson rope_scaling(const models::RopeScaling& s) {
  if (s.type == "none") return nullptr;
  if (s.type == "linear") return {{"rope_type", s.type}, {"factor", s.factor}};
  return {{"rope_type", s.type},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", s.original_max_seq_len}};
}

// What Llama and all its descendants say.
OrderedJson llama(const TransformerConfig& c) {
  return {{"vocab_size", c.vocab_size},
          {"hidden_size", c.emb_features},
          {"num_hidden_layers", c.num_layers},
          {"num_attention_heads", c.num_heads},
          {"num_key_value_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", c.mlp_features},
          {"hidden_act", "silu"},
          {"max_position_embeddings", c.max_seq_len},
          {"rms_norm_eps", c.norm_eps},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", rope_scaling(c.rope_scaling)},
          {"tie_word_embeddings", c.tie_embeddings},
          {"attention_dropout", 0.0}};
}

OrderedJson with(OrderedJson json, const OrderedJson& more) {
  json.update(more);
  return json;
}

// The window of the layers that have one, if any, and which those are.
OrderedJson layer_windows(const TransformerConfig& c) {
  std::int64_t window = 0;
  OrderedJson types = OrderedJson::array();
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::int64_t own =
        c.window_pattern.empty()
            ? c.window
            : c.window_pattern[static_cast<std::size_t>(layer) % c.window_pattern.size()];
    window = std::max(window, own);
    types.push_back(own > 0 ? "sliding_attention" : "full_attention");
  }
  return {{"sliding_window", window > 0 ? OrderedJson(window) : OrderedJson()},
          {"layer_types", std::move(types)}};
}

OrderedJson qwen(const TransformerConfig& c) {
  OrderedJson json = with(llama(c), layer_windows(c));
  json["use_sliding_window"] = !json["sliding_window"].is_null();
  json["max_window_layers"] = 0;  // layer_types decides
  return json;
}

OrderedJson optional_cap(double cap) { return cap > 0 ? OrderedJson(cap) : OrderedJson(); }

OrderedJson gemma2(const TransformerConfig& c) {
  OrderedJson json = with(llama(c), layer_windows(c));
  if (json["sliding_window"].is_null()) json["sliding_window"] = 4096;  // of no layer
  json["hidden_act"] = json["hidden_activation"] = "gelu_pytorch_tanh";
  json["attention_bias"] = c.attention_bias;
  json["attn_logit_softcapping"] = optional_cap(c.attention_softcap);
  json["final_logit_softcapping"] = optional_cap(c.logit_softcap);
  json["query_pre_attn_scalar"] = c.attention_scale > 0
                                      ? OrderedJson(1 / (c.attention_scale * c.attention_scale))
                                      : OrderedJson(c.head_dim);
  return json;
}

OrderedJson of_family(std::string_view type, const TransformerConfig& c) {
  if (type == "gpt2") return gpt2(c);
  if (type == "llama")
    return with(llama(c), {{"attention_bias", c.attention_bias}, {"mlp_bias", c.mlp_bias}});
  if (type == "mistral") {
    return with(llama(c),
                {{"sliding_window", c.window > 0 ? OrderedJson(c.window) : OrderedJson()}});
  }
  if (type == "qwen2") return qwen(c);
  if (type == "qwen3") return with(qwen(c), {{"attention_bias", c.attention_bias}});
  if (type == "gemma2") return gemma2(c);
  if (type == "olmo2") return with(llama(c), {{"attention_bias", c.attention_bias}});
  return nullptr;
}

}  // namespace

std::optional<std::string> write_config(std::string_view model_type,
                                        const TransformerConfig& config) {
  OrderedJson json = of_family(model_type, config);
  if (json.is_null()) return std::nullopt;
  json["model_type"] = model_type;
  return json.dump(2) + "\n";
}

}  // namespace dew::hf
