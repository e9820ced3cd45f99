#include "dew/plan/plan.h"

namespace dew {

// Not made by op_row(): no program has them, so they need no more than names.
constinit const OpDef start_all_reduce_op = {.name = "start_all_reduce"};
constinit const OpDef start_all_gather_op = {.name = "start_all_gather"};
constinit const OpDef start_reduce_scatter_op = {.name = "start_reduce_scatter"};
constinit const OpDef start_all_to_all_op = {.name = "start_all_to_all"};
constinit const OpDef wait_op = {.name = "wait"};

std::vector<int> MeshPart::members(const Dims& atoms) const {
  Dims sizes;
  for (const std::int64_t a : atoms) sizes.push_back(atom_sizes[static_cast<std::size_t>(a)]);
  Dims where = place;
  std::vector<int> ranks;
  for_each_index(sizes, [&](const Dims& index) {
    for (std::size_t i = 0; i < atoms.size(); ++i)
      where[static_cast<std::size_t>(atoms[i])] = index[i];
    std::int64_t rank = 0;
    for (std::size_t a = 0; a < where.size(); ++a) {
      if (where[a] >= 0) rank = rank * atom_sizes[a] + where[a];
    }
    ranks.push_back(static_cast<int>(rank));
  });
  return ranks;
}

}  // namespace dew
