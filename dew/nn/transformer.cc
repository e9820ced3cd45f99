#include "dew/nn/transformer.h"

#include <cmath>

#include "dew/base/error.h"
#include "dew/nn/names.h"

namespace dew::models {
namespace {

NormKind norm_kind(const TransformerConfig& c) {
  if (c.norm == "layer") return NormKind::layer;
  return c.norm == "rms" ? NormKind::rms : NormKind::rms_plus_one;
}

bool norm_before(const TransformerConfig& c) { return c.norm_placement != "after"; }
bool norm_after(const TransformerConfig& c) { return c.norm_placement != "before"; }

AttentionOptions attention_options(const TransformerConfig& c) {
  return {.width = c.emb_features,
          .heads = c.num_heads,
          .kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .bias = c.attention_bias,
          .qkv_bias = c.attention_bias || c.qkv_bias,
          .qk_norm = c.qk_norm,
          .qk_norm_over_all = c.qk_norm_over == "all",
          .rotary = c.positions == "rope",
          .norm_epsilon = c.norm_eps,
          .softcap = c.attention_softcap,
          .scale = c.attention_scale,
          .rope = {.scaling = c.rope_scaling.type,
                   .factor = c.rope_scaling.factor,
                   .low_freq_factor = c.rope_scaling.low_freq_factor,
                   .high_freq_factor = c.rope_scaling.high_freq_factor,
                   .original_max_seq_len = c.rope_scaling.original_max_seq_len}};
}

MlpOptions mlp_options(const TransformerConfig& c) {
  const MlpKind kind = c.mlp == "swiglu"  ? MlpKind::swiglu
                       : c.mlp == "geglu" ? MlpKind::geglu
                                          : MlpKind::gelu;
  return {.width = c.emb_features, .features = c.mlp_features, .kind = kind, .bias = c.mlp_bias};
}

ParamList declare(const TransformerConfig& c) {
  ParamList list;
  declare_embedding(list, names::kTokenTable, c.vocab_size, names::kVocab, c.emb_features);
  if (c.positions == "learned") {
    declare_embedding(list, names::kPositionTable, c.max_seq_len, names::kPositions,
                      c.emb_features);
  }
  list.begin_stack(names::kStack, c.num_layers);
  const auto declare_norm_of_layer = [&](const char* name, bool wanted) {
    if (wanted) declare_norm(list, name, c.emb_features, names::kEmbed, norm_kind(c));
  };
  declare_norm_of_layer(names::kAttentionNorm, norm_before(c));
  declare_attention(list, names::kAttentionPart, attention_options(c));
  declare_norm_of_layer(names::kAttentionOutNorm, norm_after(c));
  declare_norm_of_layer(names::kMlpNorm, norm_before(c));
  declare_mlp(list, names::kMlpPart, mlp_options(c));
  declare_norm_of_layer(names::kMlpOutNorm, norm_after(c));
  list.end_stack();
  declare_norm(list, names::kFinalNorm, c.emb_features, names::kEmbed, norm_kind(c));
  if (!c.tie_embeddings) {
    list.add(names::kHead, {c.vocab_size, c.emb_features}, {names::kVocab, names::kEmbed},
             dense_init(c.emb_features), ParamKind::embedding);
  }
  return list;
}

// Randomness of one place in the model; does nothing where the model is not trained with dropout.
struct Dropout {
  double rate = 0;
  Counters counters;

  Value operator()(Value x, RandomPurpose purpose) const {
    return rate > 0 ? dropout(x, counters, static_cast<std::int64_t>(purpose), rate) : x;
  }
};

// What a layer is given beside its input and parameters.
struct LayerContext {
  AttentionContext attention;
  Dropout dropout;
};

// The norm of that name, where the layer has it.
Value norm_if(bool wanted, const Scope& p, Value x, const TransformerConfig& c) {
  return wanted ? norm(p, x, norm_kind(c), c.norm_eps) : x;
}

Value layer(const Scope& p, Value x, const LayerContext& context, const TransformerConfig& c) {
  const Value normed = norm_if(norm_before(c), p / names::kAttentionNorm, x, c);
  const Value seen =
      self_attention(p / names::kAttentionPart, normed, context.attention, attention_options(c));
  x = x + context.dropout(norm_if(norm_after(c), p / names::kAttentionOutNorm, seen, c),
                          RandomPurpose::attention_dropout);
  x.program->set_name(x, names::kSavedResidual);
  const Value thought =
      mlp(p / names::kMlpPart, norm_if(norm_before(c), p / names::kMlpNorm, x, c), mlp_options(c));
  return x + context.dropout(norm_if(norm_after(c), p / names::kMlpOutNorm, thought, c),
                             RandomPurpose::mlp_dropout);
}

// Per-layer numbers are slices of the scan, what the step gives is constant in it.
Value run_stack(Value x, const TransformerInputs& in, const TransformerConfig& c,
                std::span<const ParamSpec> params, double dropout_rate) {
  Program& program = *x.program;
  const std::int64_t layers = c.num_layers;
  const std::vector<std::int64_t> windows =
      c.window_pattern.empty() ? std::vector{c.window} : c.window_pattern;
  StackBuilder stack(program, names::kStack, layers);
  const Value inside = stack.carry("x", x);
  ParamValues slices;
  for (const ParamSpec& param : params) {
    if (param.stack == names::kStack)
      slices[param.name] = stack.slice(param.name, in.params.find(param.name)->second);
  }
  LayerContext context;
  context.attention.window = stack.slice("window", layer_pattern(program, layers, windows));
  if (c.positions == "rope") {
    context.attention.rope_base =
        stack.slice("rope_base", constant(program, {DType::f32, {layers}}, c.rope_theta));
  }
  context.dropout.rate = dropout_rate;
  Counters& counters = context.dropout.counters;
  if (dropout_rate > 0)
    counters.layer = stack.slice("layer", iota(program, {DType::i32, {layers}}, 0));
  context.attention.positions = stack.constant("positions", in.positions);
  context.attention.segments = stack.constant("segments", in.segments);
  if (dropout_rate > 0) {
    counters.key = stack.constant("key", in.counters.key);
    counters.step = stack.constant("step", in.counters.step);
    counters.row_ids = stack.constant("row_ids", in.counters.row_ids);
    counters.columns = stack.constant("columns", in.counters.columns);
  }
  const Value after = layer(Scope(slices, names::kStack), inside, context, c);
  return stack.build({&after, 1}).carries.front();
}

void check_params(const ParamValues& values, std::span<const ParamSpec> params) {
  for (const ParamSpec& param : params) {
    const auto it = values.find(param.name);
    DEW_CHECK(it != values.end() && it->second.shape() == param.type.shape,
              "parameter " + param.name);
  }
}

}  // namespace

CausalTransformer::CausalTransformer(const TransformerConfig& config)
    : config_(resolved(config)), params_(declare(config_)) {}

TransformerOutputs CausalTransformer::forward(const TransformerInputs& in) const {
  const TransformerConfig& c = config_;
  check_params(in.params, params());
  const auto table = [&](const char* name) {
    const Value value = in.params.find(name)->second;
    return value.dtype() == in.compute ? value : convert(value, in.compute);
  };
  const Value tokens = table(names::kTokenTable);
  Value x = embed(tokens, in.ids);
  if (c.scale_embeddings) x = x * std::sqrt(static_cast<double>(c.emb_features));
  if (c.positions == "learned") x = x + embed(table(names::kPositionTable), in.positions);
  const double rate = in.training ? c.dropout : 0.0;
  if (rate > 0) {
    Dropout first = {rate, in.counters};
    first.counters.layer = constant(*x.program, {DType::i32, {}}, 0);
    x = first(x, RandomPurpose::embedding_dropout);
  }
  x = run_stack(x, in, c, params(), rate);
  x = norm(Scope(in.params, names::kFinalNorm), x, norm_kind(c), c.norm_eps);
  x.program->pin(x, {names::kBatch, names::kLength, ""});
  return {.states = x, .table = c.tie_embeddings ? tokens : table(names::kHead)};
}

}  // namespace dew::models
