// Where an op is computed: each atom of the mesh votes for its place among the op's factors.
//
// The rule is that of one forward walk: no search, no fixed point. An atom goes where the fewest
// tensors must communicate; sizes matter only through divisibility, so the outcome does not depend
// on batch or sequence length.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dew/ir/factors.h"
#include "dew/sharding/spec.h"

namespace dew {

// What an operand brings: how it is placed now, and whether it is computed from parameters alone.
struct OperandVote {
  Spec spec;
  bool weight = false;
};

// The dimensions that a result should have (a pin, or the place of the value whose cotangent or
// update it is); none if nobody asks. `weight`: of the value that it is like.
struct ResultWish {
  std::optional<DimAtoms> dims;
  bool weight = false;
};

// The outcome: the atoms of each factor, major first, and those over which partial sums pass
// through.
struct Assignment {
  std::vector<std::vector<int>> factors;
  AtomMask partial = 0;
};

Assignment assign(const Mesh& mesh, const FactorRule& rule, std::span<const OperandVote> operands,
                  std::span<const ResultWish> results);

// How the op needs operand `i`, which is placed as `now`.
Spec operand_spec(const FactorRule& rule, const Assignment& at, std::size_t i, const Spec& now);
// How result `i` comes out.
Spec result_spec(const FactorRule& rule, const Assignment& at, std::size_t i);

}  // namespace dew
