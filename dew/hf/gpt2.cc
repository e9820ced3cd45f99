// GPT-2: learned positions, layer norms, biases everywhere, matrices [in, out].
#include "dew/hf/family.h"

namespace dew::hf {
namespace {

// Dropout, an old name of n_positions, heads of other tasks, and what the first published files
// say that no code has ever read.
constexpr std::string_view kNeutral[] = {"reorder_and_upcast_attn",
                                         "n_ctx",
                                         "n_special",
                                         "predict_special_tokens",
                                         "attn_pdrop",
                                         "embd_pdrop",
                                         "resid_pdrop",
                                         "summary_activation",
                                         "summary_first_dropout",
                                         "summary_proj_to_labels",
                                         "summary_type",
                                         "summary_use_proj"};

}  // namespace

models::TransformerConfig gpt2_config(ConfigFile& file) {
  models::TransformerConfig c;
  c.vocab_size = file.integer("vocab_size");
  c.emb_features = file.integer("n_embd");
  c.num_layers = file.layers("n_layer");
  c.num_heads = file.integer("n_head");
  c.max_seq_len = file.integer("n_positions");
  c.mlp_features = file.integer_or("n_inner", 4 * c.emb_features);
  c.positions = "learned";
  c.norm = "layer";
  c.norm_eps = file.number_or("layer_norm_epsilon", 1e-5);
  c.qk_norm = false;
  c.attention_bias = c.mlp_bias = true;
  c.tie_embeddings = file.flag_or("tie_word_embeddings", true);
  const std::string act =
      file.choice("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu"});
  c.mlp = act == "gelu" ? "gelu_erf" : "gelu";
  file.require_flag("scale_attn_weights", true);
  file.require_flag("scale_attn_by_inverse_layer_idx", false);
  file.skip(kNeutral);
  return c;
}

std::vector<TensorRow> gpt2_rows(const models::TransformerConfig& c) {
  const std::int64_t width = c.num_heads * c.head_dim, joined = 3 * width;
  std::vector<TensorRow> rows = {
      {"wte.weight", "embed_tokens/embedding", Order::table},
      {"wpe.weight", "embed_positions/embedding", Order::table},
      {"h.{}.ln_1.weight", "layers/attention_norm/scale", Order::vector},
      {"h.{}.ln_1.bias", "layers/attention_norm/bias", Order::vector},
      {"h.{}.attn.c_attn.weight", "layers/attention/q_proj/kernel", Order::in_out, 0, joined},
      {"h.{}.attn.c_attn.weight", "layers/attention/k_proj/kernel", Order::in_out, width, joined},
      {"h.{}.attn.c_attn.weight", "layers/attention/v_proj/kernel", Order::in_out, 2 * width,
       joined},
      {"h.{}.attn.c_attn.bias", "layers/attention/q_proj/bias", Order::vector, 0, joined},
      {"h.{}.attn.c_attn.bias", "layers/attention/k_proj/bias", Order::vector, width, joined},
      {"h.{}.attn.c_attn.bias", "layers/attention/v_proj/bias", Order::vector, 2 * width, joined},
      {"h.{}.attn.c_proj.weight", "layers/attention/o_proj/kernel", Order::in_out},
      {"h.{}.attn.c_proj.bias", "layers/attention/o_proj/bias", Order::vector},
      {"h.{}.ln_2.weight", "layers/mlp_norm/scale", Order::vector},
      {"h.{}.ln_2.bias", "layers/mlp_norm/bias", Order::vector},
      {"h.{}.mlp.c_fc.weight", "layers/mlp/up_proj/kernel", Order::in_out},
      {"h.{}.mlp.c_fc.bias", "layers/mlp/up_proj/bias", Order::vector},
      {"h.{}.mlp.c_proj.weight", "layers/mlp/down_proj/kernel", Order::in_out},
      {"h.{}.mlp.c_proj.bias", "layers/mlp/down_proj/bias", Order::vector},
      {"ln_f.weight", "final_norm/scale", Order::vector},
      {"ln_f.bias", "final_norm/bias", Order::vector},
  };
  if (!c.tie_embeddings)
    rows.push_back({"lm_head.weight", "lm_head/kernel", Order::table, 0, 0, true});
  return rows;
}

}  // namespace dew::hf
