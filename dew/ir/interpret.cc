#include "dew/ir/interpret.h"

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

void run_node(const Program& p, const Node& node, std::vector<Array>& values) {
  std::vector<Array> operands;
  std::vector<Type> types;
  for (const int id : node.operands) operands.push_back(values[static_cast<std::size_t>(id)]);
  for (int i = 0; i < node.result_count; ++i) {
    types.push_back(p.values()[static_cast<std::size_t>(node.first_result + i)].type);
  }
  std::vector<Array> results = node.op->reference(node.attrs, operands, types);
  DEW_CHECK(results.size() == types.size(),
            format("reference of {}: {} results", node.op->name, results.size()));
  for (std::size_t i = 0; i < results.size(); ++i) {
    DEW_CHECK(results[i].shape == types[i].shape,
              format("reference of {}: result {} has shape [{}], not {}", node.op->name, i,
                     join(results[i].shape), to_string(types[i])));
    values[static_cast<std::size_t>(node.first_result) + i] = std::move(results[i]);
  }
}

}  // namespace

std::vector<Array> interpret(const Program& p, std::span<const Array> inputs) {
  DEW_CHECK(inputs.size() == p.inputs().size(),
            format("{}: {} inputs, {} given", p.name(), p.inputs().size(), inputs.size()));
  std::vector<Array> values(p.values().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto id = static_cast<std::size_t>(p.inputs()[i]);
    const ValueInfo& info = p.values()[id];
    DEW_CHECK(inputs[i].shape == info.type.shape,
              format("{}: input {} is [{}], not {}", p.name(), info.name, join(inputs[i].shape),
                     to_string(info.type)));
    values[id] = inputs[i];
  }
  for (const Node& node : p.nodes()) run_node(p, node, values);
  std::vector<Array> outputs;
  for (const Output& o : p.outputs()) outputs.push_back(values[static_cast<std::size_t>(o.value)]);
  return outputs;
}

}  // namespace dew
