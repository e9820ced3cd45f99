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
                       : c.mlp == "gelu"  ? MlpKind::gelu
                                          : MlpKind::gelu_erf;
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

// `y` of the result is that of the whole layer.
SelfAttention layer(const Scope& p, Value x, const LayerContext& context,
                    const TransformerConfig& c) {
  const Value normed = norm_if(norm_before(c), p / names::kAttentionNorm, x, c);
  const SelfAttention seen =
      self_attention(p / names::kAttentionPart, normed, context.attention, attention_options(c));
  x = x + context.dropout(norm_if(norm_after(c), p / names::kAttentionOutNorm, seen.y, c),
                          RandomPurpose::attention_dropout);
  x.program->set_name(x, names::kSavedResidual);
  const Value thought =
      mlp(p / names::kMlpPart, norm_if(norm_before(c), p / names::kMlpNorm, x, c), mlp_options(c));
  return {.y = x + context.dropout(norm_if(norm_after(c), p / names::kMlpOutNorm, thought, c),
                                   RandomPurpose::mlp_dropout),
          .keys = seen.keys,
          .values = seen.values};
}

// What differs from layer to layer: slices of the scan. Per-layer numbers, and the cache of each.
void add_slices(StackBuilder& stack, Program& program, const TransformerInputs& in,
                const TransformerConfig& c, LayerContext& context) {
  const std::int64_t layers = c.num_layers;
  const std::vector<std::int64_t> windows =
      c.window_pattern.empty() ? std::vector{c.window} : c.window_pattern;
  AttentionContext& attention = context.attention;
  attention.window = stack.slice("window", layer_pattern(program, layers, windows));
  if (c.positions == "rope") {
    attention.rope_base =
        stack.slice("rope_base", constant(program, {DType::f32, {layers}}, c.rope_theta));
  }
  if (in.columns.valid()) {
    attention.cache.keys = stack.slice("cached_keys", in.cache.keys);
    attention.cache.values = stack.slice("cached_values", in.cache.values);
  }
  if (context.dropout.rate > 0)
    context.dropout.counters.layer = stack.slice("layer", iota(program, {DType::i32, {layers}}, 0));
}

// What the call gives: constant in the scan.
void add_constants(StackBuilder& stack, const TransformerInputs& in, LayerContext& context) {
  AttentionContext& attention = context.attention;
  attention.positions = stack.constant("positions", in.positions);
  attention.segments = stack.constant("segments", in.segments);
  if (in.columns.valid()) {
    attention.columns = stack.constant("cache_columns", in.columns);
    attention.cache.positions = stack.constant("cached_positions", in.cache.positions);
    attention.cache.segments = stack.constant("cached_segments", in.cache.segments);
  }
  if (context.dropout.rate > 0) {
    Counters& counters = context.dropout.counters;
    counters.key = stack.constant("key", in.counters.key);
    counters.step = stack.constant("step", in.counters.step);
    counters.row_ids = stack.constant("row_ids", in.counters.row_ids);
    counters.columns = stack.constant("columns", in.counters.columns);
  }
}

struct StackResult {
  Value x;
  KeyValueCache cache;
};

StackResult run_stack(Value x, const TransformerInputs& in, const TransformerConfig& c,
                      std::span<const ParamSpec> params, double dropout_rate) {
  StackBuilder stack(*x.program, names::kStack, c.num_layers);
  const Value inside = stack.carry("x", x);
  ParamValues slices;
  for (const ParamSpec& param : params) {
    if (param.stack == names::kStack)
      slices[param.name] = stack.slice(param.name, in.params.find(param.name)->second);
  }
  LayerContext context;
  context.dropout.rate = dropout_rate;
  add_slices(stack, *x.program, in, c, context);
  add_constants(stack, in, context);
  const SelfAttention after = layer(Scope(slices, names::kStack), inside, context, c);
  if (!in.columns.valid()) return {.x = stack.build({&after.y, 1}).carries[0], .cache = {}};
  const Value stacked[] = {after.keys, after.values};
  const Scan scan = stack.build({&after.y, 1}, stacked);
  StackResult result = {.x = scan.carries[0], .cache = in.cache};
  result.cache.keys = scan.stacked[0];
  result.cache.values = scan.stacked[1];
  return result;
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

TransformerOutputs CausalTransformer::forward(const TransformerInputs& given) const {
  const TransformerConfig& c = config_;
  TransformerInputs in = given;
  if (in.columns.valid()) {
    in.cache.positions = write_columns(in.cache.positions, in.columns, in.positions);
    in.cache.segments = write_columns(in.cache.segments, in.columns, in.segments);
  }
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
  const StackResult stack = run_stack(x, in, c, params(), rate);
  x = norm(Scope(in.params, names::kFinalNorm), stack.x, norm_kind(c), c.norm_eps);
  x.program->pin(x, {names::kBatch, names::kLength, ""});
  return {
      .states = x, .table = c.tie_embeddings ? tokens : table(names::kHead), .cache = stack.cache};
}

}  // namespace dew::models
