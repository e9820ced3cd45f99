// Reverse-mode gradients: extends a program by the cotangents of some of its values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

// What the forward pass of a scan keeps for its backward pass; everything else is made again there.
enum class Remat {
  none,  // every value that a gradient uses, but those that are cheap to make again (pointwise ops,
         // norms, rope)
  save_list,  // the loop's carried values and the values that the model has named
  full,       // the loop's carried values only
};

// "none", "save_list", "full"; ErrorCode::usage for another text.
Remat parse_remat(const std::string& text);

// Appends the gradient of `loss` (f32[]) and returns the cotangents of `wrt`, in order: f32 for
// weights, else of the value's type; zeros where the loss does not depend on a value. Marks
// contributions and totals with `hint` and `like`.
//
// A scan on the way is appended once more with the residuals as further results;
// without_duplicates() (ir/rewrite.h) then leaves only that one.
std::vector<Value> gradients(Program& program, Value loss, std::span<const Value> wrt,
                             Remat remat = Remat::none);

}  // namespace dew
