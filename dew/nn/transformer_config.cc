#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/nn/transformer.h"

namespace dew::models {
namespace {

constexpr std::int64_t kLargest = 2147483647;  // sizes of dimensions, ids and positions are i32

[[noreturn]] void refuse(const std::string& message) { fail(ErrorCode::usage, "model." + message); }

void check_size(const char* key, std::int64_t value, std::int64_t least) {
  if (value >= least && value <= kLargest) return;
  refuse(format("{} = {}, but it must be from {} to {}", key, value, least, kLargest));
}

void check_choice(const std::string& key, const std::string& value,
                  std::initializer_list<const char*> choices) {
  const auto same = [&](const char* choice) { return value == choice; };
  if (std::any_of(choices.begin(), choices.end(), same)) return;
  refuse(format("{} = \"{}\", but it must be one of {}", key, value, fmt::join(choices, ", ")));
}

// `most` itself is excluded.
void check_number(const std::string& key, double value, bool zero, double most = INFINITY) {
  if ((value > 0 || (zero && value == 0)) && value < most) return;
  const std::string below = std::isfinite(most) ? format(" and below {}", most) : " and finite";
  refuse(format("{} = {}, but it must be {}{}", key, value, zero ? "0 or more" : "above 0", below));
}

// Programs compute in f32: what that cannot hold would become zero or infinite unseen.
void check_f32(const std::string& key, double value) {
  const float held = static_cast<float>(value);
  if (std::isfinite(held) && (held > 0) == (value > 0)) return;
  refuse(format("{} = {}, but it must be within the range of f32", key, value));
}

// Below it angles grow without bound, until f32 has no sine of them.
void check_at_least_1(const std::string& key, double value) {
  if (value >= 1) return;
  refuse(format("{} = {}, but it must be at least 1", key, value));
}

std::string divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(n, 4096); ++d) {
    if (n % d == 0) found.push_back(d);
  }
  return format("{}", fmt::join(found, ", "));
}

void check_choices(const TransformerConfig& c) {
  check_choice("mlp", c.mlp, {"swiglu", "geglu", "gelu", "gelu_erf"});
  check_choice("positions", c.positions, {"rope", "learned"});
  check_choice("norm", c.norm, {"rms", "rms_plus_one", "layer"});
  check_choice("norm_placement", c.norm_placement, {"before", "after", "both"});
  check_choice("qk_norm_over", c.qk_norm_over, {"head", "all"});
  check_choice("remat", c.remat, {"none", "save_list", "full"});
  check_choice("rope_scaling.type", c.rope_scaling.type, {"none", "linear", "llama3"});
}

void check_numbers(const TransformerConfig& c) {
  check_number("norm_eps", c.norm_eps, false);
  check_at_least_1("rope_theta", c.rope_theta);
  check_number("dropout", c.dropout, true, 1);
  check_number("logit_softcap", c.logit_softcap, true);
  check_number("attention_softcap", c.attention_softcap, true);
  check_number("attention_scale", c.attention_scale, true);
  for (const auto& [key, value] : {std::pair{"norm_eps", c.norm_eps},
                                   {"rope_theta", c.rope_theta},
                                   {"logit_softcap", c.logit_softcap},
                                   {"attention_softcap", c.attention_softcap},
                                   {"attention_scale", c.attention_scale}}) {
    check_f32(key, value);
  }
}

void check_sizes(const TransformerConfig& c) {
  check_size("vocab_size", c.vocab_size, 1);
  check_size("emb_features", c.emb_features, 1);
  check_size("num_layers", c.num_layers, 1);
  check_size("num_heads", c.num_heads, 1);
  check_size("num_kv_heads", c.num_kv_heads, 0);
  check_size("head_dim", c.head_dim, 0);
  check_size("mlp_features", c.mlp_features, 0);
  check_size("max_seq_len", c.max_seq_len, 0);
}

void check_heads(const TransformerConfig& c) {
  if (c.head_dim == 0 && c.emb_features % c.num_heads != 0) {
    refuse(
        format("num_heads = {} does not divide emb_features = {}: give head_dim, or a number of "
               "heads among {}",
               c.num_heads, c.emb_features, divisors(c.emb_features)));
  }
  if (c.num_kv_heads > 0 && c.num_heads % c.num_kv_heads != 0) {
    refuse(format("num_kv_heads = {} does not divide num_heads = {}: it must be one of {}",
                  c.num_kv_heads, c.num_heads, divisors(c.num_heads)));
  }
  const std::int64_t head_dim = c.head_dim > 0 ? c.head_dim : c.emb_features / c.num_heads;
  if (c.positions == "rope" && head_dim % 2 != 0) {
    refuse(
        format("head_dim = {} is odd: rope turns pairs of features, so it must be even", head_dim));
  }
}

void check_attention(const TransformerConfig& c) {
  if (c.attention_bias && c.qkv_bias) {
    refuse("qkv_bias = true and attention_bias = true are both given: the second has all biases");
  }
  if (!c.qk_norm && c.qk_norm_over != "head") {
    refuse(format("qk_norm_over = \"{}\" with qk_norm = false: there is no such norm",
                  c.qk_norm_over));
  }
}

void check_positions(const TransformerConfig& c) {
  if (c.positions == "learned" && c.max_seq_len == 0) {
    refuse("positions = \"learned\" needs max_seq_len, the number of positions that have a vector");
  }
  const RopeScaling& s = c.rope_scaling;
  if (s.type == "none") return;
  if (c.positions != "rope") {
    refuse(format("rope_scaling.type = \"{}\" with positions = \"{}\": there is no rope to scale",
                  s.type, c.positions));
  }
  check_at_least_1("rope_scaling.factor", s.factor);
  check_f32("rope_scaling.factor", s.factor);
  if (s.type != "llama3") return;
  check_number("rope_scaling.low_freq_factor", s.low_freq_factor, false);
  if (!(s.high_freq_factor > s.low_freq_factor) || !std::isfinite(s.high_freq_factor)) {
    refuse(format("rope_scaling.high_freq_factor = {} must be above low_freq_factor = {}",
                  s.high_freq_factor, s.low_freq_factor));
  }
  check_f32("rope_scaling.low_freq_factor", s.low_freq_factor);
  check_f32("rope_scaling.high_freq_factor", s.high_freq_factor);
  check_size("rope_scaling.original_max_seq_len", s.original_max_seq_len, 1);
}

void check_windows(const TransformerConfig& c) {
  check_size("window", c.window, 0);
  for (const std::int64_t window : c.window_pattern) check_size("window_pattern", window, 0);
  if (c.window > 0 && !c.window_pattern.empty()) {
    refuse(format("window = {} and window_pattern = [{}] are both given: keep one", c.window,
                  join(c.window_pattern)));
  }
  if (static_cast<std::int64_t>(c.window_pattern.size()) > c.num_layers) {
    refuse(format("window_pattern has {} windows, but num_layers = {}: it must not be longer",
                  c.window_pattern.size(), c.num_layers));
  }
}

// Products of sizes stay far inside 64 bits afterwards.
void check_total(const TransformerConfig& c) {
  const auto width = static_cast<double>(c.emb_features),
             layers = static_cast<double>(c.num_layers);
  const double heads = static_cast<double>(c.num_heads) * static_cast<double>(c.head_dim);
  const double table =
      (static_cast<double>(c.vocab_size) + static_cast<double>(c.max_seq_len)) * width;
  const double total =
      2 * table + layers * width * (4 * heads + 3 * static_cast<double>(c.mlp_features));
  if (total > 1e15)
    refuse(format("num_layers = {} and the other sizes make {:.2g} parameters: at most 1e15",
                  c.num_layers, total));
}

}  // namespace

TransformerConfig resolved(TransformerConfig c) {
  check_choices(c);
  check_numbers(c);
  check_sizes(c);
  check_heads(c);
  check_attention(c);
  check_positions(c);
  check_windows(c);
  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_heads;
  if (c.head_dim == 0) c.head_dim = c.emb_features / c.num_heads;
  if (c.mlp_features == 0) c.mlp_features = 4 * c.emb_features;
  check_total(c);
  return c;
}

void validate(const TransformerConfig& config) { resolved(config); }

}  // namespace dew::models
