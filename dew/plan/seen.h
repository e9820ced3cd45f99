// How a value of a device's program lies in memory: one array for all devices of the mesh, with a
// dimension for each atom over which they hold different bits, and none for the others.
#pragma once

#include <optional>
#include <vector>

#include "dew/ops/ops.h"
#include "dew/plan/plan.h"

namespace dew {

// `view` is what one device holds (the first one); the others' parts lie at multiples of the
// strides of the atoms. Example, 4 devices along atom 0 and rows split over them: memory [4, 2, 8],
// view [2, 8] with strides (8, 1), atom 0 with stride 16.
struct Seen {
  View view;
  Dims atoms, strides;  // in the order in which memory holds them, as far as it is known

  bool has(std::int64_t atom) const { return contains(atoms, atom); }
  std::int64_t stride(std::int64_t atom) const;  // 0 if it has none
};
// As the first member along the atom has it.
void remove_atom(Seen& x, std::int64_t atom);

// Memory for a value: its shape [atoms.., local..], of a stack [layers, atoms.., local..], and the
// value as seen there.
struct MemoryLayout {
  Type memory;
  Seen seen;  // of buffer -1
};
MemoryLayout layout_of(const Type& local, const Dims& atoms, bool stacked, const Dims& atom_sizes);

// All devices' parts as one view: dimensions for `atoms` (0 strides for those that it lacks) before
// the local ones, or behind the first one for a stack.
View expanded(const Seen& seen, const Dims& atoms, bool stacked, const Dims& atom_sizes);

// Strides after a reshape, if the old strides allow it without a copy.
std::optional<Dims> reshaped_strides(const Dims& shape, const Dims& strides, const Dims& to);

// What collectives that only move look like as views. None: the memory must be dense first.
Seen own_part_view(Seen x, const GroupAttrs& group, const Dims& atom_sizes);
std::optional<Seen> gathered_view(Seen x, const GroupAttrs& group, const Dims& atom_sizes);
std::optional<Seen> permuted_view(const Seen& x, const GroupAttrs& group, const Dims& atom_sizes);

// How a step takes the atoms of its operands and results.
struct AtomUse {
  // All as dimensions of their own, in the same places of every operand: the op goes element by
  // element.
  bool elementwise = false;
  Dims merged;  // into the first dimension of everything that has the factor there: more rows
  Dims looped;  // one position after another
  int factor = -1;
};
AtomUse use_of_atoms(const FactorRule& rule, const std::vector<Seen>& operands,
                     const std::vector<Dims>& result_atoms);

// What an operand or result is at one position of a step. `rows`: its first dimension is
// use.factor, which merged atoms make longer.
View part_at_position(const Seen& x, const AtomUse& use, bool rows, const Dims& atom_sizes);

// Sets attributes, inputs and outputs of a product. It reads and writes any strides, so all atoms
// become dimensions: those of both operands batch, the others free.
void place_dot(Step& step, const Seen& lhs, const Seen& rhs, const Seen& out,
               const Dims& atom_sizes);

}  // namespace dew
