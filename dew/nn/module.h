// Parameters of a model: what they are called, how large they are, which logical axis each
// dimension has, how they begin.
//
// A parameter of a stack of like layers is declared once, with a leading dimension `layers`; its
// name has the stack's name where the layer's number goes outside: "layers/mlp/up_proj/kernel"
// holds layers_0/mlp/up_proj/kernel, layers_1/..., and so on. Whatever is judged of a parameter
// (fan-in, initial values, decay, min_shard, digests) is judged per layer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dew/base/rng.h"
#include "dew/ir/program.h"

namespace dew {

// Initial values. `std` is that of one element, for both normal kinds.
struct Init {
  enum class Kind { zeros, ones, normal, truncated_normal };
  Kind kind = Kind::zeros;
  double std = 0;
  bool operator==(const Init&) const = default;
};

// What decides on precision and weight decay. Embeddings are look-up tables and the head; vectors
// are scales and biases (also biases that are written with the two dimensions heads, head_dim).
enum class ParamKind { matrix, embedding, vector };

struct ParamSpec {
  std::string name;   // "embed_tokens/embedding", "layers/mlp/up_proj/kernel"
  Type type;          // f32; of a stack: [layers, ...]
  AxisNames axes;     // one logical name a dimension; of a stack the first is "layers"
  std::string stack;  // "layers", or empty
  Init init;
  ParamKind kind = ParamKind::matrix;

  std::int64_t layers() const { return stack.empty() ? 1 : type.shape[0]; }
  std::int64_t layer_elements() const {
    return stack.empty() ? type.elements() : type.elements() / layers();
  }
  Dims layer_shape() const;  // without the stack's dimension
  // Name outside the program: that of the layer in a slot of the stack
  // ("layers_3/mlp/up_proj/kernel"), else `name`.
  std::string layer_name(std::int64_t slot) const;
};

// The layer that a slot of a stack holds. (Identity until pipelines deal layers to stages and leave
// slots empty: -1.)
constexpr std::int64_t layer_of_slot(std::int64_t slot) { return slot; }

std::int64_t parameter_count(std::span<const ParamSpec> params);

// Elements [first, first + out.size()) of one layer (slot; 0 for a parameter of no stack) in
// row-major order. The same whatever parts they are asked for in: each value depends on the run's
// key, the layer's outside name and its index alone.
void init_part(const ParamSpec& param, RandomKey run_key, std::int64_t slot, std::int64_t first,
               std::span<float> out);

// The list of a model's parameters while its layers declare theirs.
class ParamList {
 public:
  // Parameters declared until end_stack() belong to a stack of that many like layers.
  void begin_stack(std::string name, std::int64_t layers);
  void end_stack();

  // `name`, `shape` and `axes` as of one layer.
  void add(const std::string& name, Dims shape, AxisNames axes, Init init, ParamKind kind);

  const std::vector<ParamSpec>& params() const { return params_; }

 private:
  std::string stack_;
  std::int64_t layers_ = 0;
  std::vector<ParamSpec> params_;
};

// A truncated normal distribution with the standard deviation that keeps the size of a product's
// results.
Init dense_init(std::int64_t fan_in);

}  // namespace dew
