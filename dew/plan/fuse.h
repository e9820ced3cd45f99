// Groups of pointwise nodes that run as one pass over memory.
#pragma once

#include <vector>

#include "dew/ir/program.h"

namespace dew {

// Nodes that become one step: a fused group of pointwise nodes of one shape, or any other single
// node.
struct Unit {
  std::vector<int> nodes;  // ascending
  bool pointwise = false;
};

// All nodes but those that need no step (views and constants), grouped; in an order in which each
// unit comes after what it needs, otherwise as in the program.
std::vector<Unit> fuse(const Program& program);

// Nodes that convert bf16 to f32 for sums alone: the sum reads bf16 itself, so that no f32 copy of
// it is stored.
std::vector<bool> absorbed_conversions(const Program& program);

// True for reshape, broadcast, slice, transpose: other ways to look at an operand; and for
// constants.
bool needs_no_step(const Node& node);

}  // namespace dew
