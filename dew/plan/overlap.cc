#include "dew/plan/overlap.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dew/base/error.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

constexpr std::int64_t kEarlyBytes = std::int64_t{4} << 20;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool crosses(const Node& node, const MeshPart& part) {
  if (!node.op->has(kCollective) || node.op == &own_part_op || node.op == &device_index_op)
    return false;
  return std::ranges::any_of(std::get<GroupAttrs>(node.attrs).atoms,
                             [&](std::int64_t a) { return part.crosses(a); });
}

class Ordering {
 public:
  Ordering(const Program& p, std::vector<Unit> units, const MeshPart& part)
      : p_(p), absorbed_(absorbed_conversions(p)), item_of_(p.nodes().size(), -1) {
    for (Unit& unit : units) add({std::move(unit), -1});
    for (std::size_t n = 0; n < p.nodes().size(); ++n) {
      const Node& node = p.nodes()[n];
      if (needs_no_step(node) && crosses(node, part)) add({{}, static_cast<int>(n)});
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Node& node = p.nodes()[at(first_node(i))];
      exchanges_.push_back(crosses(node, part));
      scans_.push_back(node.op == &scan_op);
      sends_much_.push_back(exchanges_[i] &&
                            p.values()[at(node.first_result)].type.bytes() > kEarlyBytes);
    }
    find_needs();
  }

  std::vector<LoweringItem> run() {
    done_.assign(items_.size(), false);
    std::vector<LoweringItem> out;
    for (std::size_t count = 0; count < items_.size(); ++count) {
      const std::size_t i = next();
      done_[i] = true;
      if (exchanges_[i]) under_way_[static_cast<int>(i)] = started_++;
      for (const int need : needs_[i]) under_way_.erase(need);  // somebody has waited for it
      out.push_back(std::move(items_[i]));
    }
    return out;
  }

 private:
  void add(LoweringItem item) {
    const auto number = static_cast<int>(items_.size());
    for (const int n : item.unit.nodes) item_of_[at(n)] = number;
    if (item.moves >= 0) item_of_[at(item.moves)] = number;
    items_.push_back(std::move(item));
  }

  int first_node(std::size_t i) const {
    return items_[i].moves >= 0 ? items_[i].moves : items_[i].unit.nodes.front();
  }

  // The item that makes a value, looking through what needs no step; -1 for inputs and constants.
  int maker(int value) const {
    for (;;) {
      const int n = p_.values()[at(value)].node;
      if (n < 0) return -1;
      if (item_of_[at(n)] >= 0) return item_of_[at(n)];
      const Node& node = p_.nodes()[at(n)];
      DEW_CHECK(absorbed_[at(n)] || needs_no_step(node), node.op->name);
      if (node.operands.empty()) return -1;
      value = node.operands.front();
    }
  }

  void find_needs() {
    needs_.resize(items_.size());
    for (std::size_t n = 0; n < p_.nodes().size(); ++n) {
      const int user = item_of_[n];
      if (user < 0) continue;
      for (const int operand : p_.nodes()[n].operands) {
        const int need = maker(operand);
        if (need >= 0 && need != user) needs_[at(user)].insert(need);
      }
    }
    // Large exchanges follow the last scan before them.
    int scan = -1;
    for (std::size_t k = 0; k < p_.nodes().size(); ++k) {
      const int i = item_of_[k];
      if (i < 0) continue;
      if (scans_[at(i)]) scan = i;
      if (sends_much_[at(i)] && scan >= 0 && !is_needed(i, scan)) needs_[at(i)].insert(scan);
    }
  }

  // Does item `by` come after `i`, whatever the order?
  bool is_needed(int i, int by) const {
    std::vector<int> stack = {by};
    std::set<int> seen;
    while (!stack.empty()) {
      const int here = stack.back();
      stack.pop_back();
      if (here == i) return true;
      if (!seen.insert(here).second) continue;
      stack.insert(stack.end(), needs_[at(here)].begin(), needs_[at(here)].end());
    }
    return false;
  }

  bool ready(std::size_t i) const {
    return !done_[i] && std::ranges::all_of(needs_[i], [&](int need) { return done_[at(need)]; });
  }
  // The last one to start of the exchanges that the item must wait for; -1: of none.
  int waits_for(std::size_t i) const {
    int last = -1;
    for (const int need : needs_[i]) {
      const auto exchange = under_way_.find(need);
      if (exchange != under_way_.end()) last = std::max(last, exchange->second);
    }
    return last;
  }

  // The first exchange that can be started; else what need not wait for one; else what waits for
  // those that have been under way for longest.
  std::size_t next() const {
    std::size_t best = items_.size();
    int shortest = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (!ready(i)) continue;
      const int wait = waits_for(i);
      if (exchanges_[i] && wait < 0) return i;
      if (best < items_.size() && wait >= shortest) continue;
      best = i;
      shortest = wait;
    }
    DEW_CHECK(best < items_.size(), "items need each other");
    return best;
  }

  const Program& p_;
  std::vector<bool> absorbed_;
  std::vector<int> item_of_;  // by node
  std::vector<LoweringItem> items_;
  std::vector<bool> exchanges_, scans_, sends_much_, done_;
  std::vector<std::set<int>> needs_;
  std::map<int, int> under_way_;  // nobody has waited for them; the number of each start
  int started_ = 0;
};

}  // namespace

std::vector<LoweringItem> order_items(const Program& program, std::vector<Unit> units,
                                      const MeshPart& part) {
  if (!part.place.empty()) return Ordering(program, std::move(units), part).run();
  std::vector<LoweringItem> items;
  for (Unit& unit : units) items.push_back({std::move(unit), -1});
  return items;
}

}  // namespace dew
