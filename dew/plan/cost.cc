#include "dew/plan/cost.h"

#include "dew/ops/ops.h"

namespace dew {
namespace {

double elements(const Type& type) { return static_cast<double>(element_count(type.shape)); }

double sizes_of(const Type& type, const Dims& dims) {
  double product = 1;
  for (const std::int64_t d : dims)
    product *= static_cast<double>(type.shape[static_cast<std::size_t>(d)]);
  return product;
}

double dot_flops(const Step& step) {
  const auto& dims = std::get<DotDims>(step.attrs);
  const Type &lhs = step.inputs[0].type, &rhs = step.inputs[1].type;
  const double shared = sizes_of(lhs, dims.lhs_contract) * sizes_of(lhs, dims.lhs_batch);
  return shared == 0 ? 0 : 2 * elements(lhs) * elements(rhs) / shared;
}

// Counted from the last dimension: those of devices stand before the op's own.
double size_from_back(const Type& type, std::size_t d) {
  return static_cast<double>(type.shape[type.shape.size() - d]);
}

// Two products forward; five backward, where the scores are made again. q is [b, t, h, d], k is
// [b, s, k, d].
double attention_flops(const Step& step, int products) {
  const Type &q = step.inputs[0].type, &k = step.inputs[1].type;
  const double visible = std::get<AttentionAttrs>(step.attrs).causal ? 0.5 : 1;
  return 2 * products * visible * elements(q) * size_from_back(k, 3);
}

// Logits, and where they are asked for the gradients of h [.., e] and of the table [v, e].
double head_flops(const Step& step) {
  const int products = std::get<HeadAttrs>(step.attrs).gradients ? 3 : 1;
  return 2 * products * elements(step.inputs[0].type) * size_from_back(step.inputs[1].type, 2);
}

double flops_at_a_position(const Step& step) {
  if (step.op == nullptr)
    return static_cast<double>(element_count(step.group.shape)) *
           static_cast<double>(step.group.ops.size());
  if (step.op == &dot_op) return dot_flops(step);
  if (step.op == &attention_op) return attention_flops(step, 2);
  if (step.op == &attention_grad_op) return attention_flops(step, 5);
  return step.op == &head_loss_op ? head_flops(step) : 0;
}

// Elements that differ in place: a stride of zero repeats what was read.
double bytes_of(const Step& step, const View& view) {
  double count = 1;
  for (std::size_t d = 0; d < view.strides.size(); ++d)
    count *= view.strides[d] == 0 && view.type.shape[d] > 0
                 ? 1
                 : static_cast<double>(view.type.shape[d]);
  for (std::size_t d = 0; d < view.outer.size(); ++d)
    count *= view.outer[d] == 0 ? 1 : static_cast<double>(step.outer[d]);
  return count * static_cast<double>(byte_size(view.type.dtype));
}

// Of a table only some rows are touched: as much as the other operand holds, read and written.
bool touches_rows(const Step& step) {
  return step.op == &gather_rows_op || step.op == &scatter_add_rows_op;
}

}  // namespace

StepCost cost_of(const Step& step) {
  StepCost cost{.flops = flops_at_a_position(step) * static_cast<double>(step.positions())};
  if (touches_rows(step)) {
    const View& rows = step.op == &gather_rows_op ? step.outputs[0] : step.inputs[2];
    cost.bytes = (step.op == &gather_rows_op ? 2 : 3) * bytes_of(step, rows);
    return cost;
  }
  for (const auto* views : {&step.inputs, &step.outputs}) {
    for (const View& v : *views) cost.bytes += bytes_of(step, v);
  }
  return cost;
}

}  // namespace dew
