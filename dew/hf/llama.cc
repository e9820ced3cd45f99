// Llama and what descends from it: rope, RMS norms, gated mlp, matrices [out, in]. Each family
// reads the options that its published config class has; defaults are those of that class.
#include <algorithm>
#include <cmath>

#include "dew/base/format.h"
#include "dew/checkpoint/box.h"
#include "dew/hf/family.h"

namespace dew::hf {
namespace {

// ---- rope ----

// What the two spellings have in common: type and factors.
void read_scaling(ConfigFile& rope, models::TransformerConfig& c, std::string_view where) {
  const auto old_type = rope.maybe_text("type");
  const std::string type =
      rope.choice("rope_type", old_type.value_or("default"), {"default", "linear", "llama3"});
  if (old_type && *old_type != type) {
    rope.refuse(
        format("{}.type = {}, but rope_type = {}", where, in_quotes(*old_type), in_quotes(type)));
  }
  if (type == "default") return;
  c.rope_scaling.type = type;
  c.rope_scaling.factor = rope.number("factor");
  if (type != "llama3") return;
  c.rope_scaling.low_freq_factor = rope.number("low_freq_factor");
  c.rope_scaling.high_freq_factor = rope.number("high_freq_factor");
  c.rope_scaling.original_max_seq_len = rope.integer("original_max_position_embeddings");
}

void require_whole_rope(ConfigFile& file) {
  const double share = file.number_or("partial_rotary_factor", 1);
  if (share != 1) file.refuse(format("partial_rotary_factor = {} is not supported", share));
}

// Both spellings: rope_theta and rope_scaling, or both inside rope_parameters.
void read_rope(ConfigFile& file, models::TransformerConfig& c) {
  file.require_flag("rope_interleaved", false);  // pairs are halves of a head
  file.require_flag("use_mrope", false);         // one position a token
  const auto theta = file.maybe_number("rope_theta");
  auto scaling = file.object("rope_scaling"), parameters = file.object("rope_parameters");
  c.rope_theta = theta.value_or(10000);
  if (scaling && parameters) {
    file.refuse("rope_scaling and rope_parameters are both given: one of the two spellings");
  }
  if (scaling) {
    read_scaling(*scaling, c, "rope_scaling");
    scaling->refuse_rest("rope");
  }
  if (!parameters) return;
  read_scaling(*parameters, c, "rope_parameters");
  const double inside = parameters->number_or("rope_theta", c.rope_theta);
  if (theta && inside != *theta) {
    file.refuse(format("rope_theta = {}, but rope_parameters.rope_theta = {}", *theta, inside));
  }
  c.rope_theta = inside;
  require_whole_rope(*parameters);
  parameters->refuse_rest("rope");
}

// ---- windows ----

// One window a layer as the shortest pattern that repeats.
void set_windows(std::vector<std::int64_t> windows, models::TransformerConfig& c) {
  const auto repeats = [&](std::size_t period) {
    for (std::size_t i = period; i < windows.size(); ++i) {
      if (windows[i] != windows[i - period]) return false;
    }
    return true;
  };
  std::size_t period = 1;
  while (!repeats(period)) ++period;
  windows.resize(period);
  c.window = period == 1 ? windows[0] : 0;
  c.window_pattern = period == 1 ? std::vector<std::int64_t>() : windows;
}

// layer_types where the file has them, else what `sliding` says of a layer.
template <class Sliding>
void read_windows(ConfigFile& file, std::optional<std::int64_t> window, Sliding sliding,
                  models::TransformerConfig& c) {
  const std::vector<std::string> types = file.texts("layer_types");
  if (!types.empty() && std::ssize(types) != c.num_layers) {
    file.refuse(format("layer_types has {} entries, but num_hidden_layers = {}", types.size(),
                       c.num_layers));
  }
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    bool slides = sliding(layer);
    if (!types.empty()) {
      const std::string& type = types[static_cast<std::size_t>(layer)];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention") {
        file.refuse(format("layer_types has {}; known are full_attention and sliding_attention",
                           in_quotes(type)));
      }
    }
    if (slides && !window) {
      file.refuse(format("layer {} has a window, but sliding_window is not given", layer));
    }
    windows.push_back(slides ? *window : 0);
  }
  set_windows(std::move(windows), c);
}

// ---- what all have ----

// Sizes, norm, rope. head_dim and kv heads as Llama has them: what follows from the others.
models::TransformerConfig read_sizes(ConfigFile& file) {
  models::TransformerConfig c;
  c.vocab_size = file.integer("vocab_size");
  c.emb_features = file.integer("hidden_size");
  c.num_layers = file.layers("num_hidden_layers");
  c.num_heads = file.integer("num_attention_heads");
  c.mlp_features = file.integer("intermediate_size");
  c.qk_norm = false;
  read_rope(file, c);
  return c;
}

void read_heads(ConfigFile& file, models::TransformerConfig& c) {
  c.num_kv_heads = file.integer_or("num_key_value_heads", c.num_heads);
  c.head_dim = file.maybe_integer("head_dim").value_or(0);
}

void read_swiglu(ConfigFile& file) { file.choice("hidden_act", "silu", {"silu", "swish"}); }

}  // namespace

models::TransformerConfig llama_config(ConfigFile& file) {
  file.require_flag("is_llama_config", true);  // SmolLM says so
  models::TransformerConfig c = read_sizes(file);
  read_heads(file, c);
  read_swiglu(file);
  c.max_seq_len = file.integer_or("max_position_embeddings", 2048);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  c.attention_bias = file.flag_or("attention_bias", false);
  c.mlp_bias = file.flag_or("mlp_bias", false);
  return c;
}

models::TransformerConfig mistral_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  read_heads(file, c);
  read_swiglu(file);
  c.num_kv_heads = file.integer("num_key_value_heads");
  c.max_seq_len = file.integer_or("max_position_embeddings", 4096 * 32);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  const auto window = file.has("sliding_window") ? file.maybe_integer("sliding_window") : 4096;
  read_windows(
      file, window, [&](std::int64_t) { return window.has_value(); }, c);
  return c;
}

namespace {

// Windows of Qwen2 and Qwen3: off unless asked for, then from a layer on.
void read_qwen_windows(ConfigFile& file, models::TransformerConfig& c) {
  const bool used = file.flag_or("use_sliding_window", false);
  const std::int64_t window = file.integer_or("sliding_window", 4096);
  const std::int64_t first = file.maybe_integer("max_window_layers", 0).value_or(28);
  read_windows(
      file, used ? std::optional(window) : std::nullopt,
      [&](std::int64_t layer) { return used && layer >= first; }, c);
}

}  // namespace

models::TransformerConfig qwen2_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  read_heads(file, c);
  read_swiglu(file);
  c.num_kv_heads = file.integer("num_key_value_heads");
  c.max_seq_len = file.integer_or("max_position_embeddings", 32768);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  c.qkv_bias = true;
  read_qwen_windows(file, c);
  return c;
}

models::TransformerConfig qwen3_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  read_swiglu(file);
  c.num_kv_heads = file.integer("num_key_value_heads");
  c.head_dim = file.integer_or("head_dim", 128);
  c.max_seq_len = file.integer_or("max_position_embeddings", 32768);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  c.attention_bias = file.flag_or("attention_bias", false);
  c.qk_norm = true;
  read_qwen_windows(file, c);
  return c;
}

models::TransformerConfig gemma2_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  const std::string act = file.choice("hidden_act", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  file.choice("hidden_activation", act, {"gelu_pytorch_tanh"});
  file.require_flag("use_bidirectional_attention", false);
  c.num_kv_heads = file.integer("num_key_value_heads");
  c.head_dim = file.integer_or("head_dim", 256);
  c.max_seq_len = file.integer_or("max_position_embeddings", 8192);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  c.norm = "rms_plus_one";
  c.norm_placement = "both";
  c.mlp = "geglu";
  c.scale_embeddings = true;
  c.tie_embeddings = file.flag_or("tie_word_embeddings", true);
  c.attention_bias = file.flag_or("attention_bias", false);
  c.attention_scale = 1 / std::sqrt(file.number_or("query_pre_attn_scalar", 256));
  // null turns a cap off, and only a key that is not there has a default.
  const auto cap = [&](const char* key, double otherwise) {
    return file.has(key) ? file.maybe_number(key).value_or(0) : otherwise;
  };
  c.attention_softcap = cap("attn_logit_softcapping", 50);
  c.logit_softcap = cap("final_logit_softcapping", 30);
  const std::int64_t window = file.integer_or("sliding_window", 4096);
  read_windows(
      file, window, [](std::int64_t layer) { return layer % 2 == 0; }, c);
  return c;
}

models::TransformerConfig phi3_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  read_swiglu(file);
  require_whole_rope(file);
  c.num_kv_heads = file.integer_or("num_key_value_heads", c.num_heads);
  c.max_seq_len = file.integer_or("max_position_embeddings", 4096);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-5);
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  const auto window = file.maybe_integer("sliding_window");
  read_windows(
      file, window, [&](std::int64_t) { return window.has_value(); }, c);
  // The length before it was stretched: read only with the rope type longrope, which is refused.
  constexpr std::string_view kNeutral[] = {"original_max_position_embeddings", "embd_pdrop",
                                           "resid_pdrop"};
  file.skip(kNeutral);
  if (file.flag_or("attention_bias", false)) file.refuse("attention_bias = true is not supported");
  return c;
}

models::TransformerConfig olmo2_config(ConfigFile& file) {
  models::TransformerConfig c = read_sizes(file);
  read_heads(file, c);
  read_swiglu(file);
  c.max_seq_len = file.integer_or("max_position_embeddings", 2048);
  c.norm_eps = file.number_or("rms_norm_eps", 1e-5);
  c.norm_placement = "after";
  c.tie_embeddings = file.flag_or("tie_word_embeddings", false);
  c.attention_bias = file.flag_or("attention_bias", false);
  c.qk_norm = true;
  c.qk_norm_over = "all";
  return c;
}

// ---- tables ----

namespace {

// `theirs`.weight, and .bias where `bias`.
void add_projection(std::vector<TensorRow>& rows, const std::string& theirs,
                    const std::string& ours, bool bias) {
  rows.push_back({theirs + ".weight", ours + "/kernel", Order::out_in});
  if (bias) rows.push_back({theirs + ".bias", ours + "/bias", Order::vector});
}

void add_norm(std::vector<TensorRow>& rows, const std::string& theirs, const std::string& ours) {
  rows.push_back({theirs + ".weight", ours + "/scale", Order::vector});
}

void add_attention(std::vector<TensorRow>& rows, const models::TransformerConfig& c) {
  const std::string theirs = "layers.{}.self_attn.", ours = "layers/attention/";
  const bool qkv_bias = c.attention_bias || c.qkv_bias;
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    add_projection(rows, theirs + part, ours + part, qkv_bias);
  add_projection(rows, theirs + "o_proj", ours + "o_proj", c.attention_bias);
  if (!c.qk_norm) return;
  for (const char* part : {"q_norm", "k_norm"}) add_norm(rows, theirs + part, ours + part);
}

void add_mlp(std::vector<TensorRow>& rows, const models::TransformerConfig& c) {
  for (const std::string part : {"gate_proj", "up_proj", "down_proj"})
    add_projection(rows, "layers.{}.mlp." + part, "layers/mlp/" + part, c.mlp_bias);
}

// What comes before and behind the layers, whose rows `layers` adds.
template <class Layers>
std::vector<TensorRow> with_ends(const models::TransformerConfig& c, Layers layers) {
  std::vector<TensorRow> rows = {{"embed_tokens.weight", "embed_tokens/embedding", Order::table}};
  layers(rows);
  add_norm(rows, "norm", "final_norm");
  if (!c.tie_embeddings) {
    rows.push_back({"lm_head.weight", "lm_head/kernel", Order::table, 0, 0, true});
  }
  return rows;
}

}  // namespace

std::vector<TensorRow> llama_rows(const models::TransformerConfig& c) {
  return with_ends(c, [&](std::vector<TensorRow>& rows) {
    add_norm(rows, "layers.{}.input_layernorm", "layers/attention_norm");
    add_attention(rows, c);
    add_norm(rows, "layers.{}.post_attention_layernorm", "layers/mlp_norm");
    add_mlp(rows, c);
  });
}

std::vector<TensorRow> gemma2_rows(const models::TransformerConfig& c) {
  return with_ends(c, [&](std::vector<TensorRow>& rows) {
    add_norm(rows, "layers.{}.input_layernorm", "layers/attention_norm");
    add_attention(rows, c);
    add_norm(rows, "layers.{}.post_attention_layernorm", "layers/attention_out_norm");
    add_norm(rows, "layers.{}.pre_feedforward_layernorm", "layers/mlp_norm");
    add_mlp(rows, c);
    add_norm(rows, "layers.{}.post_feedforward_layernorm", "layers/mlp_out_norm");
  });
}

std::vector<TensorRow> olmo2_rows(const models::TransformerConfig& c) {
  return with_ends(c, [&](std::vector<TensorRow>& rows) {
    add_attention(rows, c);
    add_norm(rows, "layers.{}.post_attention_layernorm", "layers/attention_out_norm");
    add_mlp(rows, c);
    add_norm(rows, "layers.{}.post_feedforward_layernorm", "layers/mlp_out_norm");
  });
}

std::vector<TensorRow> phi3_rows(const models::TransformerConfig& c) {
  return with_ends(c, [&](std::vector<TensorRow>& rows) {
    const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
    const std::string joined = "layers.{}.self_attn.qkv_proj.weight";
    const std::string gate_up = "layers.{}.mlp.gate_up_proj.weight";
    add_norm(rows, "layers.{}.input_layernorm", "layers/attention_norm");
    rows.insert(rows.end(),
                {{joined, "layers/attention/q_proj/kernel", Order::out_in, 0, q + 2 * kv},
                 {joined, "layers/attention/k_proj/kernel", Order::out_in, q, q + 2 * kv},
                 {joined, "layers/attention/v_proj/kernel", Order::out_in, q + kv, q + 2 * kv}});
    add_projection(rows, "layers.{}.self_attn.o_proj", "layers/attention/o_proj", false);
    add_norm(rows, "layers.{}.post_attention_layernorm", "layers/mlp_norm");
    rows.insert(rows.end(),
                {{gate_up, "layers/mlp/gate_proj/kernel", Order::out_in, 0, 2 * c.mlp_features},
                 {gate_up, "layers/mlp/up_proj/kernel", Order::out_in, c.mlp_features,
                  2 * c.mlp_features}});
    add_projection(rows, "layers.{}.mlp.down_proj", "layers/mlp/down_proj", false);
  });
}

}  // namespace dew::hf
