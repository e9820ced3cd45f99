#include <cmath>

#include "dew/nn/names.h"
#include "dew/nn/nn.h"

namespace dew {
namespace {

Projection head_projection(const AttentionOptions& o, std::int64_t heads, const char* axis) {
  return {.fan_in = o.width,
          .in_axis = names::kEmbed,
          .out = {heads, o.head_dim},
          .out_axes = {axis, names::kHeadDim},
          .bias = o.qkv_bias};
}

// Rows of a norm of q or k.
std::int64_t norm_width(const AttentionOptions& o, std::int64_t heads) {
  return o.qk_norm_over_all ? heads * o.head_dim : o.head_dim;
}

Value norm_heads(const Scope& p, Value heads, const AttentionOptions& o) {
  if (!o.qk_norm_over_all) return norm(p, heads, NormKind::rms, o.norm_epsilon);
  const Dims shape = heads.shape();
  const Value joined = reshape(heads, {shape[0], shape[1], shape[2] * shape[3]});
  return reshape(norm(p, joined, NormKind::rms, o.norm_epsilon), shape);
}

// Queries or keys: product, norm, rotation.
Value rotated_heads(const Scope& projection, const Scope& head_norm, Value x, const char* axis,
                    const AttentionContext& context, const AttentionOptions& o) {
  Value heads = project(projection, x, {names::kBatch, names::kLength, axis, ""});
  if (o.qk_norm) heads = norm_heads(head_norm, heads, o);
  if (o.rotary) heads = rope(heads, context.positions, context.rope_base, o.rope);
  return heads;
}

}  // namespace

void declare_attention(ParamList& list, const std::string& name, const AttentionOptions& o) {
  const std::string at = name + "/";
  declare_projection(list, at + names::kQ, head_projection(o, o.heads, names::kHeads));
  declare_projection(list, at + names::kK, head_projection(o, o.kv_heads, names::kKv));
  declare_projection(list, at + names::kV, head_projection(o, o.kv_heads, names::kKv));
  declare_projection(list, at + names::kO,
                     {.fan_in = o.heads * o.head_dim,
                      .in_axis = names::kAttention,
                      .out = {o.width},
                      .out_axes = {names::kEmbed},
                      .bias = o.bias});
  if (!o.qk_norm) return;
  declare_norm(list, at + names::kQNorm, norm_width(o, o.heads), names::kHeadDim, NormKind::rms);
  declare_norm(list, at + names::kKNorm, norm_width(o, o.kv_heads), names::kHeadDim, NormKind::rms);
}

SelfAttention self_attention(const Scope& p, Value x, const AttentionContext& c,
                             const AttentionOptions& o) {
  const bool cached = c.columns.valid();
  const Value q = rotated_heads(p / names::kQ, p / names::kQNorm, x, names::kActivationHeads, c, o);
  Value k = rotated_heads(p / names::kK, p / names::kKNorm, x, names::kActivationKv, c, o);
  Value v = project(p / names::kV, x, {names::kBatch, names::kLength, names::kActivationKv, ""});
  if (cached) {
    k = write_columns(c.cache.keys, c.columns, k);
    v = write_columns(c.cache.values, c.columns, v);
  }
  const AttentionInputs in = {.q = q,
                              .k = k,
                              .v = v,
                              .q_positions = c.positions,
                              .k_positions = cached ? c.cache.positions : c.positions,
                              .q_segments = c.segments,
                              .k_segments = cached ? c.cache.segments : c.segments,
                              .window = c.window};
  const double scale = o.scale > 0 ? o.scale : 1.0 / std::sqrt(static_cast<double>(o.head_dim));
  const Attention seen = attention(in, {.scale = scale, .softcap = o.softcap, .causal = true});
  x.program->set_name(seen.o, names::kSavedAttention);
  x.program->set_name(seen.lse, names::kSavedLse);
  const Value joined = reshape(seen.o, {x.dim(0), x.dim(1), o.heads * o.head_dim});
  return {.y = project(p / names::kO, joined, {names::kBatch, names::kLength, ""}),
          .keys = k,
          .values = v};
}

}  // namespace dew
