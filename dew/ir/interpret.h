// The reference interpreter: runs a program node by node with each row's `reference`, in double
// precision. Slow and obvious; it judges every other way to run a program.
#pragma once

#include <span>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

// `inputs` in the order of program.inputs(), shapes checked; returns the outputs in the order of
// program.outputs().
std::vector<Array> interpret(const Program& program, std::span<const Array> inputs);

}  // namespace dew
