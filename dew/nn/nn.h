// The layers: for each, `declare_x` adds its parameters to a list and `x` writes its forward pass
// onto the program of its input. docs/adding_a_layer.md walks through one. Shapes: b rows, t
// columns, e residual width; rows and columns are never merged, so that both can be split over
// devices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dew/nn/module.h"
#include "dew/ops/ops.h"

namespace dew {

// Parameters as values of a program, by name; inside a stack's body those of the layer at hand,
// under the same names.
using ParamValues = std::map<std::string, Value, std::less<>>;

// A view of the parameters whose names begin alike: Scope(values, "layers/mlp")("up_proj/kernel").
class Scope {
 public:
  Scope(const ParamValues& values, std::string prefix)
      : values_(&values), prefix_(std::move(prefix)) {}

  Scope operator/(const std::string& part) const { return {*values_, prefix_ + "/" + part}; }
  bool has(const std::string& name) const { return values_->contains(prefix_ + "/" + name); }
  Value operator()(const std::string& name) const;  // internal error if there is none
  // The same as an operand of a product or look-up in that type.
  Value operator()(const std::string& name, DType dtype) const;

 private:
  const ParamValues* values_;
  std::string prefix_;
};

// ---- norm.cc ----
enum class NormKind { rms, rms_plus_one, layer };  // the second: times 1 + scale
void declare_norm(ParamList& list, const std::string& name, std::int64_t width, const char* axis,
                  NormKind kind);
// Over the last dimension; statistics f32, result in x's type.
Value norm(const Scope& p, Value x, NormKind kind, double epsilon);

// ---- linear.cc ----
// A kernel [fan_in, out...] and, if asked, a bias [out...].
struct Projection {
  std::int64_t fan_in = 0;
  std::string in_axis = {};
  Dims out = {};
  AxisNames out_axes = {};
  bool bias = false;
};
void declare_projection(ParamList& list, const std::string& name, const Projection& projection);
// x [b, t, in] -> [b, t, out...]. The product is pinned to `pin` before a bias is added: a product
// that is complete where it is made is reduced once, and the bias counts once.
Value project(const Scope& p, Value x, AxisNames pin);

// ---- embedding.cc ----
void declare_embedding(ParamList& list, const std::string& name, std::int64_t rows,
                       const char* axis, std::int64_t width);
// ids [b, t] -> [b, t, e].
Value embed(Value table, Value ids);
// The scores of all ids: states [.., e], table [v, e] -> f32[.., v]; softcap > 0 makes them softcap
// * tanh(score / softcap).
Value logits(Value states, Value table, double softcap);

// ---- attention.cc ----
struct AttentionOptions {
  std::int64_t width = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool bias = false, qkv_bias = false;  // of o; of q, k and v
  bool qk_norm = true, qk_norm_over_all = false, rotary = true;
  double norm_epsilon = 1e-5, softcap = 0;
  double scale = 0;  // of the scores; 0: 1 / sqrt(head_dim)
  RopeDims rope = {};
};
// Keys and values of tokens read by earlier calls: s columns a row, in any order; a column whose
// segment is no query's is empty.
struct KeyValueCache {
  Value keys, values;         // [b, s, k, d]; of a stack of layers [layers, b, s, k, d]
  Value positions, segments;  // i32[b, s]
};
struct AttentionContext {
  Value positions, segments;  // i32[b, t]
  Value window, rope_base;    // i32[], f32[]
  // If valid, tokens are first written to these columns of the cache (i32[b, t]; -1: to none), and
  // see what it then holds. Its positions and segments are those after writing.
  Value columns = {};
  KeyValueCache cache = {};
};
struct SelfAttention {
  Value y;             // [b, t, e]
  Value keys, values;  // that were seen: [b, t, k, d], or the cache after writing
};
void declare_attention(ParamList& list, const std::string& name, const AttentionOptions& options);
SelfAttention self_attention(const Scope& p, Value x, const AttentionContext& context,
                             const AttentionOptions& options);

// ---- mlp.cc ----
// Those of gelu alone have no gate; gelu and geglu take the tanh formula, gelu_erf the function.
enum class MlpKind { swiglu, geglu, gelu, gelu_erf };
struct MlpOptions {
  std::int64_t width = 0, features = 0;
  MlpKind kind = MlpKind::swiglu;
  bool bias = false;
};
void declare_mlp(ParamList& list, const std::string& name, const MlpOptions& options);
Value mlp(const Scope& p, Value x, const MlpOptions& options);

// ---- stack.cc ----
// Writes a scan: each call makes an input of the body for a value outside and returns it.
// REQUIRES: carries first, then slices, then constants.
class StackBuilder {
 public:
  // `program` outlives the builder.
  StackBuilder(Program& program, std::string name, std::int64_t layers);

  Program& body() { return *body_; }
  Value carry(std::string name, Value outside);
  Value slice(std::string name, Value outside);  // outside is [layers, ...], inside [...]
  Value constant(std::string name, Value outside);
  Scan build(std::span<const Value> carries, std::span<const Value> stacked = {});

 private:
  Value body_input(std::string name, Value outside, Type type);

  Program& program_;
  std::shared_ptr<Program> body_;
  std::int64_t layers_;
  std::vector<Value> carries_, slices_, constants_;
};

// i32[layers]: pattern[layer % size].
Value layer_pattern(Program& program, std::int64_t layers, std::span<const std::int64_t> pattern);

// Purposes of random numbers on activations, for dropout(); never renumbered.
enum class RandomPurpose : std::int64_t {
  embedding_dropout = 1,
  attention_dropout = 2,
  mlp_dropout = 3
};

}  // namespace dew
