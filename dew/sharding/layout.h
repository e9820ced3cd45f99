// The layout: from the logical names of dimensions ("mlp", "heads") to the mesh axes that split
// them.
//
//   Mesh mesh = mesh_for_heads(build_mesh({.fsdp = 2, .tensor = 2}, 4), 4, 4);
//   parameter_spec(mesh, {.min_shard = 1}, {256, 1024}, {"embed", "mlp"})   P('fsdp', 'tensor')
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dew/base/shape.h"
#include "dew/ir/program.h"
#include "dew/sharding/mesh.h"
#include "dew/sharding/spec.h"

namespace dew {

// A logical name and the mesh axes that split its dimension together, the first one into the
// largest blocks. No axes: the name is never split.
struct LayoutRule {
  std::string name;
  std::vector<std::string> axes;
  bool operator==(const LayoutRule&) const = default;
};

struct Layout {
  // In order of precedence; a name that comes again is a fallback. Empty: the default table. Rules
  // for parameters alone leave the default ones for activations (names activation_...) as they are,
  // and the other way round.
  std::vector<LayoutRule> rules = {};
  // Parameters with fewer elements, a layer of a stack counted alone, stay whole.
  std::int64_t min_shard = 65536;
  // Largest share of the elements in parameters of at least min_shard that may stay whole.
  double tolerance = 0.02;
  bool operator==(const Layout&) const = default;
};

// The default table:
//   vocab       tensor+fsdp+stage, else tensor+fsdp, else tensor, else fsdp
//   mlp         tensor, else fsdp          heads   tensor+fsdp, else tensor
//   attention   tensor, else fsdp          kv      tensor+fsdp, else tensor
//   embed, head_dim, output   fsdp         exp     expert        layers   stage
//   activation_batch    data+expert+fsdp   activation_length   sequence
//   activation_heads, _kv, _mlp, _vocab    tensor
const std::vector<LayoutRule>& default_rules();

// The mesh on which a model with these heads runs: where num_kv_heads is no multiple of the tensor
// axis, that axis has two atoms, gcd(tensor, num_kv_heads) and the rest, so that heads of keys and
// values are split over the first and the same on the second. Throws ErrorCode::layout_refused,
// with the sizes that work, unless tensor divides num_heads, and divides num_kv_heads or is a
// multiple of it.
Mesh mesh_for_heads(const Mesh& mesh, std::int64_t num_heads, std::int64_t num_kv_heads);

// Where a parameter lives, its optimizer moments and averages too. `shape` and `names` are those of
// one layer, without the dimension `layers` of a stack. Rules are walked in order: one takes a
// dimension of its name that has none yet, if none of its axes (size 1 aside) splits this array
// already. One that does not divide its dimension is dropped for this array and the walk begins
// again; of kv as many atoms are taken, from the first, as divide. Without any name ("" for every
// dimension), the largest dimension that fsdp divides is split over fsdp.
Spec parameter_spec(const Mesh& mesh, const Layout& layout, const Dims& shape,
                    const AxisNames& names);

// A dimension of an activation that stays whole because its rule does not divide it.
struct DroppedPin {
  std::string name;        // "activation_mlp"
  std::int64_t size = 0;   // of the dimension
  std::vector<int> atoms;  // of the rule
  bool operator==(const DroppedPin&) const = default;
};
// "activation_mlp of size 18 stays whole: tensor (4) does not divide it"
std::string to_string(const Mesh& mesh, const DroppedPin& dropped);

// Where an activation that a model pins lives: the same rules, whatever its size. Appends to
// `dropped` what stays whole for not dividing. Numbers of heads that do not divide are refused
// before, by mesh_for_heads().
DimAtoms pin_dims(const Mesh& mesh, const Layout& layout, const Dims& shape, const AxisNames& names,
                  std::vector<DroppedPin>* dropped = nullptr);

// What check_layout() knows of a parameter.
struct LayoutParameter {
  std::string name;
  Dims shape;       // of one layer
  AxisNames names;  // of its dimensions
  std::int64_t layers = 1;
};

// Throws ErrorCode::usage for a name or a mesh axis that there is not, with the nearest one, and
// for axes that a name cannot have; ErrorCode::layout_refused, with the rule, where parameters
// would be split over data.
void check_rules(std::span<const LayoutRule> rules);

// check_rules(), and throws ErrorCode::layout_refused if more than `tolerance` of the elements in
// parameters of at least `min_shard` elements have no split dimension, although an axis of the mesh
// that splits parameters is above 1: with the percentage and the five largest of them.
void check_layout(const Mesh& mesh, const Layout& layout,
                  std::span<const LayoutParameter> parameters);

}  // namespace dew
