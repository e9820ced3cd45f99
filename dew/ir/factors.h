// How the dimensions of an op's operands and results relate. A factor is a dimension that operands
// and results share; it may be split over devices. The vocabulary is shared by the rows of ops, the
// sharding walk and the tests; it knows no op.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dew/ir/type.h"

namespace dew {

struct FactorRule {
  // For one value: dimension -> its factors, major first (usually one).
  using DimFactors = std::vector<std::vector<int>>;
  enum class LinearMode {
    each,  // linear in each listed operand while the others are whole (products)
    all,   // linear in all listed operands together (sums)
  };

  Dims sizes;               // of each factor
  std::vector<char> names;  // one letter each, for messages
  std::vector<DimFactors> operands, results;
  std::vector<int> norep;  // factors that must be whole to compute
  std::vector<std::pair<int, int>>
      inner;                // {factor, result}: the op itself reduces that missing factor
  std::vector<int> linear;  // operands through which a partial sum passes
  LinearMode mode = LinearMode::each;
  std::vector<std::pair<int, int>>
      index;  // {factor, operand}: its integers count along the factor; a part of the factor
              // gets them less the number of its first element
  std::vector<int> once;  // operands that are added to the result: where the result is summed over
                          // a factor that they lack, they are zero on all parts but the first

  // A factor that a result lacks is summed there, unless the op does that itself.
  bool result_has(int result, int factor) const;
  bool is_inner(int factor, int result) const;
};

// Reads a rule written as text, with the sizes taken from the types:
//   "b s e, e f -> b s f | linear each 0 1"
//   "b t (k g) d, b s k d, b s k d -> b t (k g) d, b t (k g) | norep s d"
//   "b s e, v e, b s -> ; v e | norep e | inner v:0"    (an empty list between commas or semicolons
//   is a scalar) "v e, b s, b s e -> v e | index v:1 | once 0"
// A dimension of size that does not match its factors is a bug of ours (DEW_CHECK).
FactorRule factor_rule(std::string_view text, std::span<const Type> operands,
                       std::span<const Type> results);

// Every dimension of equal place is one factor; operands of rank 0 have none. For elementwise ops.
FactorRule pointwise_rule(std::span<const Type> operands, std::span<const Type> results);

}  // namespace dew
