// What an op is: one row of data and plain functions. The address of the row is the op's identity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dew/ir/attrs.h"
#include "dew/ir/factors.h"

namespace dew {

struct Value;

using Types = std::span<const Type>;

// What a vjp is given: the node's operands, results and the results' cotangents (an invalid Value
// where there is none).
struct VjpArgs {
  const Attrs& attrs;
  std::span<const Value> operands, results, cotangents;
};

enum Trait : std::uint32_t {
  kPointwise = 1u << 0,    // result element depends on the operands' elements of the same index (or
                           // rank-0 operands)
  kView = 1u << 1,         // moves or repeats elements, computes nothing
  kRandom = 1u << 2,       // result depends on counters
  kUpdate = 1u << 3,       // result i may overwrite operand i (optimizer updates)
  kAccumulates = 1u << 4,  // the result is operand 0 with something added or replaced: may
                           // overwrite it
  kCollective = 1u << 6,   // between devices: has no reference of its own, no factors, no gradient
  kNorm = 1u << 5,  // cheap to make again from its operands: not worth saving for the backward pass
};

struct OpDef {
  const char* name = nullptr;

  // Result types; throws ErrorCode::usage with a numbered constraint ("dot: DOT-3 contracted sizes
  // differ: ...").
  std::vector<Type> (*infer)(const Attrs&, Types operands) = nullptr;

  // How dimensions relate; empty only for scan, whose body has the rules.
  FactorRule (*factors)(const Attrs&, Types operands, Types results) = nullptr;

  // What the op means, in double precision, by the most obvious loop.
  std::vector<Array> (*reference)(const Attrs&, std::span<const Array> operands,
                                  Types results) = nullptr;

  // Cotangents of the operands, built from ops; an invalid Value for an operand without one. Empty:
  // not differentiable.
  std::vector<Value> (*vjp)(const VjpArgs&) = nullptr;

  // Attributes of the same op on a part of its results; empty: the same attributes.
  Attrs (*localize)(const Attrs&, Types local_results) = nullptr;

  // For pointwise ops: the op on one element.
  double (*scalar)(const Attrs&, const double* operands) = nullptr;

  std::uint32_t traits = 0;

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

// Refuses, at compile time, a row with an empty mandatory cell.
consteval OpDef op_row(OpDef row) {
  if (row.name == nullptr || row.infer == nullptr || row.reference == nullptr ||
      row.factors == nullptr) {
    throw "a row needs name, infer, factors and reference";
  }
  return row;
}

}  // namespace dew
