#include <set>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ir/program.h"

namespace dew {
namespace {

void verify_node(const Program& p, const Node& node) {
  std::vector<Type> operands;
  for (const int id : node.operands) {
    DEW_CHECK(id >= 0 && id < node.first_result,
              format("{}: {} uses %{} before it is defined", p.name(), node.op->name, id));
    operands.push_back(p.values()[static_cast<std::size_t>(id)].type);
  }
  const std::vector<Type> results = node.op->infer(node.attrs, operands);
  DEW_CHECK(static_cast<int>(results.size()) == node.result_count,
            format("{}: results of {}", p.name(), node.op->name));
  for (int i = 0; i < node.result_count; ++i) {
    const ValueInfo& info = p.values()[static_cast<std::size_t>(node.first_result + i)];
    DEW_CHECK(info.type == results[static_cast<std::size_t>(i)],
              format("{}: %{} is {}", p.name(), node.first_result + i, to_string(info.type)));
  }
  if (const auto* scan = std::get_if<ScanAttrs>(&node.attrs)) verify(*scan->body);
}

void verify_annotations(const Program& p, int id) {
  const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
  const auto same_shape = [&](int other, const char* what) {
    if (other < 0 || !p.likes_of().empty()) return;
    DEW_CHECK(other < static_cast<int>(p.values().size()),
              format("{}: {} of %{}", p.name(), what, id));
    DEW_CHECK(p.values()[static_cast<std::size_t>(other)].type.shape == info.type.shape,
              format("{}: %{} {} %{} of another shape", p.name(), id, what, other));
  };
  same_shape(info.like, "like");
  same_shape(info.hint, "hint");
  DEW_CHECK(info.pin.empty() || info.pin.front().size() == info.type.shape.size(),
            format("{}: pin of %{}", p.name(), id));
}

}  // namespace

void verify(const Program& p) {
  std::set<std::string> names;
  for (const int id : p.inputs()) {
    const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
    DEW_CHECK(info.node < 0 && names.insert(info.name).second,
              format("{}: input {}", p.name(), info.name));
  }
  for (const Node& node : p.nodes()) verify_node(p, node);
  for (int id = 0; id < static_cast<int>(p.values().size()); ++id) verify_annotations(p, id);
  names.clear();
  for (const Output& o : p.outputs()) {
    DEW_CHECK(o.value >= 0 && o.value < static_cast<int>(p.values().size()) &&
                  names.insert(o.name).second,
              format("{}: output {}", p.name(), o.name));
  }
}

}  // namespace dew
