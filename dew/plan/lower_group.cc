#include "dew/plan/lowering.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// A group's registers are its inputs in order of first use, then its ops.
class Lowering::GroupBuilder {
 public:
  GroupBuilder(Lowering& lowering, Frame& f, const Unit& unit)
      : lowering_(lowering), f_(f), unit_(unit) {}

  Step build() {
    const Program& p = f_.program;
    const Node& first = p.nodes()[at(unit_.nodes.front())];
    const ValueInfo& info = info_of(f_, first.first_result);
    place(info);
    for (const int n : unit_.nodes) {
      for (const int id : p.nodes()[at(n)].operands) add_input(id);
    }
    int next = static_cast<int>(step_.inputs.size());
    for (const int n : unit_.nodes) registers_[p.nodes()[at(n)].first_result] = next++;
    for (const int n : unit_.nodes) add_op(p.nodes()[at(n)]);
    add_outputs();
    step_.name = format("%{} fused", first.first_result);
    return std::move(step_);
  }

 private:
  // The iteration space is a result's memory.
  void place(const ValueInfo& info) {
    atoms_ = lowering_.result_atoms(info);
    stacked_ = info.stacked;
    const MemoryLayout layout = layout_of(info.type, atoms_, stacked_, lowering_.atom_sizes_);
    step_.group.shape = layout.memory.shape;
  }

  bool made_here(int id) const {
    const int n = f_.program.values()[at(id)].node;
    return n >= 0 && std::ranges::binary_search(unit_.nodes, n);
  }

  void add_input(int id) {
    if (made_here(id) || registers_.contains(id)) return;
    Seen x = lowering_.seen(f_, id);
    const Type& type = type_of(f_, id);
    if (type.rank() == 0) {  // stands for all
      const Type& result = type_of(f_, f_.program.nodes()[at(unit_.nodes.front())].first_result);
      x.view.type.shape = result.shape;
      x.view.strides.assign(result.shape.size(), 0);
    }
    const View v = expanded(x, atoms_, stacked_, lowering_.atom_sizes_);
    registers_[id] = static_cast<int>(step_.inputs.size());
    step_.group.inputs.push_back(v.type.dtype);
    step_.inputs.push_back(v);
  }

  void add_op(const Node& node) {
    MicroOp op{.op = node.op,
               .attrs = node.attrs,
               .registers = {},
               .dtype = type_of(f_, node.first_result).dtype};
    for (const int id : node.operands) op.registers.push_back(registers_.at(id));
    step_.group.ops.push_back(std::move(op));
  }

  // Results that something outside of the group reads.
  void add_outputs() {
    const Program& p = f_.program;
    std::vector<bool> used(p.values().size(), false);
    for (std::size_t n = 0; n < p.nodes().size(); ++n) {
      if (std::ranges::binary_search(unit_.nodes, static_cast<int>(n))) continue;
      for (const int id : p.nodes()[n].operands) used[static_cast<std::size_t>(id)] = true;
    }
    for (const Output& o : p.outputs()) used[static_cast<std::size_t>(o.value)] = true;
    for (const int n : unit_.nodes) {
      const int id = p.nodes()[static_cast<std::size_t>(n)].first_result;
      if (!used[static_cast<std::size_t>(id)]) continue;
      step_.group.outputs.push_back(registers_.at(id));
      const Seen made = lowering_.new_memory(type_of(f_, id), atoms_, stacked_, f_.loop);
      f_.seen[at(id)] = made;
      step_.outputs.push_back(expanded(made, atoms_, stacked_, lowering_.atom_sizes_));
    }
  }

  Lowering& lowering_;
  Frame& f_;
  const Unit& unit_;
  Step step_;
  Dims atoms_;
  bool stacked_ = false;
  std::map<int, int> registers_;
};

void Lowering::lower_group(Frame& f, const Unit& unit) {
  Step step = GroupBuilder(*this, f, unit).build();
  if (step.outputs.empty()) return;  // dead code
  const std::string name = step.name;
  push(std::move(step));
  for (const int n : unit.nodes) {
    const int id = f.program.nodes()[at(n)].first_result;
    if (f.seen[at(id)].view.buffer >= 0) check_replicas(info_of(f, id), f.seen[at(id)], name);
  }
}

}  // namespace dew
