#include "dew/autodiff/sweep.h"

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {

Type cotangent_type(const ValueInfo& info) {
  return {info.weight ? DType::f32 : info.type.dtype, info.type.shape};
}

Sweep::Sweep(Program& program, std::span<const Value> wrt, ScanRule scan_rule)
    : program_(program),
      scan_rule_(std::move(scan_rule)),
      node_count_(program.nodes().size()),
      depends_(program.values().size(), false),
      pending_(program.values().size()) {
  for (const Value& v : wrt) depends_[static_cast<std::size_t>(v.id)] = true;
  for (const Node& node : program.nodes()) {
    bool any = false;
    for (const int id : node.operands) any = any || depends_[static_cast<std::size_t>(id)];
    for (int i = 0; any && i < node.result_count; ++i) {
      const auto id = static_cast<std::size_t>(node.first_result + i);
      depends_[id] = is_float(program.values()[id].type.dtype);
    }
  }
}

void Sweep::contribute(Value to, Value cotangent) {
  const auto id = static_cast<std::size_t>(to.id);
  if (!cotangent.valid() || id >= depends_.size() || !depends_[id]) return;
  const Type want = cotangent_type(program_.values()[id]);
  DEW_CHECK(
      cotangent.shape() == want.shape,
      format("cotangent {} of %{} {}", to_string(cotangent.type()), to.id, to_string(to.type())));
  if (cotangent.dtype() != want.dtype) cotangent = convert(cotangent, want.dtype);
  const ValueInfo& info = program_.info(cotangent);
  if (info.like < 0 && info.hint < 0) program_.set_hint(cotangent, to.id);
  pending_[id].push_back(cotangent);
}

Value Sweep::total(int id) {
  std::vector<Value>& parts = pending_[static_cast<std::size_t>(id)];
  if (parts.empty()) return {};
  Value sum = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    sum = add(sum, parts[i]);
    if (i + 1 < parts.size()) program_.set_hint(sum, id);
  }
  if (program_.info(sum).like < 0) program_.set_like(sum, id);
  parts = {sum};
  return sum;
}

void Sweep::visit(int n) {
  // A copy: appending nodes moves the program's own.
  const Node node = program_.nodes()[static_cast<std::size_t>(n)];
  std::vector<Value> operands, results, cotangents;
  std::vector<bool> needs;
  bool any_need = false, any_cotangent = false;
  for (const int id : node.operands) {
    operands.push_back(program_.value(id));
    needs.push_back(depends_[static_cast<std::size_t>(id)]);
    any_need = any_need || needs.back();
  }
  if (!any_need) return;
  for (int i = 0; i < node.result_count; ++i) {
    results.push_back(program_.value(node.first_result + i));
    cotangents.push_back(total(node.first_result + i));
    any_cotangent = any_cotangent || cotangents.back().valid();
  }
  if (!any_cotangent) return;
  std::vector<Value> grads;
  if (node.op == &scan_op) {
    grads = scan_rule_(n, cotangents, needs);
  } else {
    DEW_CHECK(node.op->vjp != nullptr, format("{} has no gradient", node.op->name));
    grads = node.op->vjp({node.attrs, operands, results, cotangents});
  }
  DEW_CHECK(grads.size() == operands.size(),
            format("vjp of {}: {} cotangents", node.op->name, grads.size()));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (needs[i]) contribute(operands[i], grads[i]);
  }
}

void Sweep::run() {
  for (std::size_t n = node_count_; n-- > 0;) visit(static_cast<int>(n));
}

}  // namespace dew
