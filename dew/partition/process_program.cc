#include "dew/partition/process_program.h"

#include <memory>

#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

class ProcessProgram {
 public:
  ProcessProgram(const Program& from, const ProcessGrid& grid)
      : from_(from), grid_(grid), to_(from.name()), values_(from.values().size()) {
    to_.set_likes_of(from.likes_of());
  }

  Program run() {
    for (int id = 0; id < static_cast<int>(values_.size()); ++id) {
      const ValueInfo& info = from_.values()[static_cast<std::size_t>(id)];
      if (info.node < 0) {
        values_[static_cast<std::size_t>(id)] = to_.input(info.name, info.type, info.weight);
        annotate(id);
      } else if (info.result == 0) {
        node(from_.nodes()[static_cast<std::size_t>(info.node)]);
      }
    }
    for (const Output& o : from_.outputs())
      to_.output(o.name, values_[static_cast<std::size_t>(o.value)]);
    return std::move(to_);
  }

 private:
  Dims all_parts(const Dims& atoms) const {
    Dims out;
    for (const std::int64_t a : atoms) {
      const std::vector<int>& parts = grid_.parts[static_cast<std::size_t>(a)];
      out.insert(out.end(), parts.begin(), parts.end());
    }
    return out;
  }

  void annotate(int id) {
    const ValueInfo& info = from_.values()[static_cast<std::size_t>(id)];
    Dims inside = all_parts(info.shards);
    std::erase_if(inside,
                  [&](std::int64_t a) { return grid_.crosses[static_cast<std::size_t>(a)]; });
    to_.set_shards(values_[static_cast<std::size_t>(id)], std::move(inside), info.stacked);
  }

  void node(const Node& n) {
    Attrs attrs = n.attrs;
    if (auto* group = std::get_if<GroupAttrs>(&attrs)) {
      group->atoms = all_parts(group->atoms);
      group->to = all_parts(group->to);
    }
    if (auto* head = std::get_if<HeadAttrs>(&attrs)) head->atoms = all_parts(head->atoms);
    if (auto* scan = std::get_if<ScanAttrs>(&attrs))
      scan->body = std::make_shared<const Program>(ProcessProgram(*scan->body, grid_).run());
    std::vector<Value> operands;
    for (const int id : n.operands) operands.push_back(values_[static_cast<std::size_t>(id)]);
    const std::vector<Value> results = to_.add(*n.op, operands, std::move(attrs));
    for (int i = 0; i < n.result_count; ++i) {
      values_[static_cast<std::size_t>(n.first_result + i)] = results[static_cast<std::size_t>(i)];
      annotate(n.first_result + i);
    }
  }

  const Program& from_;
  const ProcessGrid& grid_;
  Program to_;
  std::vector<Value> values_;
};

Spec with_parts(const Spec& spec, const ProcessGrid& grid) {
  Spec out{DimAtoms(spec.dims.size()), 0};
  for (std::size_t a = 0; a < grid.parts.size(); ++a) {
    for (const int part : grid.parts[a]) {
      if (has(spec.partial, static_cast<int>(a))) out.partial |= bit(part);
    }
  }
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    for (const int a : spec.dims[d]) {
      const std::vector<int>& parts = grid.parts[static_cast<std::size_t>(a)];
      out.dims[d].insert(out.dims[d].end(), parts.begin(), parts.end());
    }
  }
  return out;
}

}  // namespace

Partitioned for_process(Partitioned parts, const ProcessGrid& grid) {
  for (Program& p : parts.module.programs) p = ProcessProgram(p, grid).run();
  for (Spec& spec : parts.registers) spec = with_parts(spec, grid);
  return parts;
}

}  // namespace dew
