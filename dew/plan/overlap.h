// The order of a program's nodes when some of them exchange with other processes.
#pragma once

#include <vector>

#include "dew/plan/fuse.h"
#include "dew/plan/plan.h"

namespace dew {

// What is lowered at once: a unit, or a node that only moves, but between processes.
struct LoweringItem {
  Unit unit;
  int moves = -1;  // the node; the unit is empty then
};

// Items in an order in which each comes after what it needs. On one process that is the order of
// the units. On several, exchanges come as soon as what they send is there, and what needs their
// results as late as something else can be done, in the order in which those were started: so they
// go on beside it and beside one another. Exchanges of more than a few MiB stay behind the scan
// that they stand behind, since their results take memory.
std::vector<LoweringItem> order_items(const Program& program, std::vector<Unit> units,
                                      const MeshPart& part);

}  // namespace dew
