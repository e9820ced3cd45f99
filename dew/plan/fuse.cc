#include "dew/plan/fuse.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

// Bounds what a tile of a group holds in L1.
constexpr std::size_t kMaxOps = 24;

class Fuser {
 public:
  explicit Fuser(const Program& p)
      : p_(p), absorbed_(absorbed_conversions(p)), unit_of_(p.nodes().size(), -1) {}

  std::vector<Unit> run() {
    for (std::size_t n = 0; n < p_.nodes().size(); ++n) {
      const Node& node = p_.nodes()[n];
      if (needs_no_step(node) || absorbed_[n]) continue;
      const int unit = node.op->has(kPointwise) ? find_group(node) : -1;
      if (unit < 0) {
        units_.push_back({{}, node.op->has(kPointwise)});
        needs_.emplace_back();
      }
      join(static_cast<int>(n), unit < 0 ? static_cast<int>(units_.size()) - 1 : unit);
    }
    return ordered();
  }

 private:
  void join(int n, int unit) {
    units_[static_cast<std::size_t>(unit)].nodes.push_back(n);
    unit_of_[static_cast<std::size_t>(n)] = unit;
    for (const int operand : p_.nodes()[static_cast<std::size_t>(n)].operands) {
      const int producer = producer_unit(operand);
      if (producer >= 0 && producer != unit)
        needs_[static_cast<std::size_t>(unit)].push_back(producer);
    }
  }

  // The unit that makes a value, looking through views; -1 for inputs and constants.
  int producer_unit(int value) const {
    for (;;) {
      const int n = p_.values()[static_cast<std::size_t>(value)].node;
      if (n < 0) return -1;
      const Node& node = p_.nodes()[static_cast<std::size_t>(n)];
      if (!stepless(n)) return unit_of_[static_cast<std::size_t>(n)];
      if (node.operands.empty()) return -1;
      value = node.operands.front();
    }
  }

  // A group that makes an operand, has the same shape, and does not feed another operand by a
  // detour. The latest such group is tried first.
  int find_group(const Node& node) const {
    std::vector<int> candidates;
    for (const int operand : node.operands) {
      const int n = p_.values()[static_cast<std::size_t>(operand)].node;
      const int unit = n < 0 ? -1 : unit_of_[static_cast<std::size_t>(n)];
      if (unit >= 0 && joinable(node, unit)) candidates.push_back(unit);
    }
    std::ranges::sort(candidates, std::greater<>());
    for (const int unit : candidates) {
      if (!detour(node, unit)) return unit;
    }
    return -1;
  }

  bool joinable(const Node& node, int unit) const {
    const Unit& u = units_[static_cast<std::size_t>(unit)];
    if (!u.pointwise || u.nodes.size() >= kMaxOps) return false;
    const Node& first = p_.nodes()[static_cast<std::size_t>(u.nodes.front())];
    const ValueInfo &a = p_.values()[static_cast<std::size_t>(first.first_result)],
                    &b = p_.values()[static_cast<std::size_t>(node.first_result)];
    return a.type.shape == b.type.shape && same_atoms(a.shards, b.shards) && a.stacked == b.stacked;
  }

  static bool same_atoms(const Dims& a, const Dims& b) { return std::ranges::is_permutation(a, b); }

  bool detour(const Node& node, int unit) const {
    std::vector<bool> seen(units_.size(), false);
    std::vector<int> stack;
    for (const int operand : node.operands) {
      const int producer = producer_unit(operand);
      if (producer == unit && !direct(operand))
        return true;  // through a view: the group cannot read what it makes so
      if (producer >= 0 && producer != unit) stack.push_back(producer);
    }
    while (!stack.empty()) {
      const auto u = static_cast<std::size_t>(stack.back());
      stack.pop_back();
      if (static_cast<int>(u) == unit) return true;
      if (seen[u]) continue;
      seen[u] = true;
      stack.insert(stack.end(), needs_[u].begin(), needs_[u].end());
    }
    return false;
  }

  bool direct(int value) const {
    const int n = p_.values()[static_cast<std::size_t>(value)].node;
    return n >= 0 && !stepless(n);
  }

  bool stepless(int n) const {
    return absorbed_[static_cast<std::size_t>(n)] ||
           needs_no_step(p_.nodes()[static_cast<std::size_t>(n)]);
  }

  std::vector<Unit> ordered() const {
    std::vector<Unit> out;
    std::vector<char> state(units_.size(), 0);  // 0 new, 1 waiting for its needs, 2 done
    std::vector<int> stack;
    for (std::size_t first = 0; first < units_.size(); ++first) {
      stack.push_back(static_cast<int>(first));
      while (!stack.empty()) {
        const auto u = static_cast<std::size_t>(stack.back());
        if (state[u] == 0) {
          state[u] = 1;
          for (const int need : needs_[u]) {
            if (state[static_cast<std::size_t>(need)] == 0) stack.push_back(need);
          }
          continue;
        }
        stack.pop_back();
        if (state[u] == 1) out.push_back(units_[u]);
        state[u] = 2;
      }
    }
    DEW_CHECK(out.size() == units_.size(), "fusing made a cycle");
    return out;
  }

  const Program& p_;
  std::vector<bool> absorbed_;
  std::vector<int> unit_of_;
  std::vector<Unit> units_;
  std::vector<std::vector<int>> needs_;
};

}  // namespace

std::vector<bool> absorbed_conversions(const Program& p) {
  std::vector<bool> absorbed(p.nodes().size(), false), other_use(p.values().size(), false);
  for (const Node& node : p.nodes()) {
    for (const int id : node.operands) {
      if (node.op != &reduce_sum_op) other_use[static_cast<std::size_t>(id)] = true;
    }
  }
  for (const Output& o : p.outputs()) other_use[static_cast<std::size_t>(o.value)] = true;
  for (std::size_t n = 0; n < p.nodes().size(); ++n) {
    const Node& node = p.nodes()[n];
    if (node.op != &convert_op || other_use[static_cast<std::size_t>(node.first_result)]) continue;
    absorbed[n] =
        p.values()[static_cast<std::size_t>(node.operands[0])].type.dtype == DType::bf16 &&
        p.values()[static_cast<std::size_t>(node.first_result)].type.dtype == DType::f32;
  }
  return absorbed;
}

bool needs_no_step(const Node& node) { return node.op->has(kView) || node.operands.empty(); }

std::vector<Unit> fuse(const Program& program) { return Fuser(program).run(); }

}  // namespace dew
