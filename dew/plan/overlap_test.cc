#include "dew/plan/overlap.h"

#include <gtest/gtest.h>

#include <string>

#include "dew/ops/ops.h"

namespace dew {
namespace {

std::vector<std::string> ordered_ops(const Program& p, const MeshPart& part) {
  std::vector<std::string> names;
  for (const LoweringItem& item : order_items(p, fuse(p), part)) {
    const int node = item.moves >= 0 ? item.moves : item.unit.nodes.front();
    names.emplace_back(p.nodes()[static_cast<std::size_t>(node)].op->name);
  }
  return names;
}

// Sums that come back before the next one is begun would wait one after another.
TEST(Overlap, ExchangesBehindExchangesAreStartedBeforeAnyIsUsed) {
  Program p("update");
  const GroupAttrs group{.atoms = {0}, .members = 2, .dims = {0}, .to = {}};
  for (const char* name : {"a", "b"}) {
    const Value part = reduce_scatter(p.input(name, {DType::f32, {4, 8}}), group);
    p.output(name, sum_squares(all_gather(part, group)));
  }
  const MeshPart part{.atom_sizes = {2}, .place = {0}};
  EXPECT_EQ(ordered_ops(p, part),
            (std::vector<std::string>{"reduce_scatter", "reduce_scatter", "all_gather",
                                      "all_gather", "sum_squares", "sum_squares"}));
}

}  // namespace
}  // namespace dew
