// A spec says where an array lives on a mesh: which atoms split which dimension.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "dew/base/shape.h"
#include "dew/sharding/mesh.h"

namespace dew {

// Atoms of a mesh as a set of bits; meshes have at most 16.
using AtomMask = std::uint32_t;

// For each dimension the atoms that split it, major first.
using DimAtoms = std::vector<std::vector<int>>;

// An atom stands at most once in dims and partial together. The atoms of a dimension always divide
// it. Over the atoms of `partial` the devices hold parts of a sum; over all others that are not in
// dims they hold the same bits.
struct Spec {
  DimAtoms dims;
  AtomMask partial = 0;
  auto operator<=>(const Spec&) const = default;
};

inline AtomMask bit(int atom) { return AtomMask{1} << atom; }
inline bool has(AtomMask mask, int atom) { return (mask >> atom & 1U) != 0; }

// Every device holds all of it.
Spec whole_spec(std::size_t rank);
// Atoms of all dimensions.
AtomMask atoms_in(const DimAtoms& dims);
// What one device holds. REQUIRES: the spec divides the shape.
Dims local_shape(const Mesh& mesh, const Dims& shape, const Spec& spec);
bool divides(const Mesh& mesh, const Dims& shape, const Spec& spec);

// The atoms over which devices hold different bits, in the order in which a buffer holds the parts,
// outermost first: those of the first dimension stand last, so that its parts lie one after
// another.
std::vector<int> distinct_atoms(const Spec& spec);
// The same for an array whose first dimension may be a stack's: memory holds that outside of all
// parts, so it is the second dimension's parts that lie one after another.
std::vector<int> memory_order(const Spec& spec, bool stacked);

// As compiler dumps print it: "[{data,fsdp},-,{tensor.0}] partial{tensor.1}".
std::string to_string(const Mesh& mesh, const Spec& spec);
// As users read it: "P('fsdp',)", "P()", "P(('tensor', 'fsdp'),)", parts of an axis as
// "P('tensor:(1)8')"; whole dimensions at the end are left out.
std::string to_user_string(const Mesh& mesh, const Spec& spec);

}  // namespace dew
