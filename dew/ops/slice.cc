// A box of elements.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("slice", "x", in);
  const auto& box = check.attrs<SliceDims>(attrs);
  if (box.start.size() != in[0].shape.size() || box.limit.size() != in[0].shape.size()) {
    check.refuse("SLI-1", "needs a start and a limit for each dimension");
  }
  Type result{in[0].dtype, {}};
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    if (box.start[d] < 0 || box.start[d] > box.limit[d] || box.limit[d] > in[0].shape[d]) {
      check.refuse("SLI-2", format("dim {}: elements {} to {} of {}", d, box.start[d], box.limit[d],
                                   in[0].shape[d]));
    }
    result.shape.push_back(box.limit[d] - box.start[d]);
  }
  return {result};
}

// A dimension that is taken whole is a factor; of a cut one, operand and result have a factor each,
// which stay whole.
FactorRule factors(const Attrs&, Types operands, Types results) {
  FactorRule rule = pointwise_rule(results, results);
  for (std::size_t d = 0; d < results[0].shape.size(); ++d) {
    const std::int64_t size = operands[0].shape[d];
    if (size == results[0].shape[d]) continue;
    rule.norep.push_back(static_cast<int>(d));
    rule.norep.push_back(static_cast<int>(rule.sizes.size()));
    rule.operands[0][d] = {static_cast<int>(rule.sizes.size())};
    rule.names.push_back(static_cast<char>('A' + d % 26));
    rule.sizes.push_back(size);
  }
  rule.linear = {0};
  return rule;
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const Dims& start = std::get<SliceDims>(attrs).start;
  Array y(results[0].shape);
  for_each_index(y.shape, [&](const Dims& index) {
    Dims from = index;
    for (std::size_t d = 0; d < from.size(); ++d) from[d] += start[d];
    at(y, index) = at(x[0], from);
  });
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const auto& box = std::get<SliceDims>(args.attrs);
  Dims behind = args.operands[0].shape();
  for (std::size_t d = 0; d < behind.size(); ++d) behind[d] -= box.limit[d];
  return {fit(args.operands[0], pad(args.cotangents[0], box.start, behind))};
}

Attrs localize(const Attrs& attrs, Types local_results) {
  SliceDims box = std::get<SliceDims>(attrs);
  for (std::size_t d = 0; d < box.start.size(); ++d)
    box.limit[d] = box.start[d] + local_results[0].shape[d];
  return box;
}

}  // namespace

constinit const OpDef slice_op = op_row({.name = "slice",
                                         .infer = infer,
                                         .factors = factors,
                                         .reference = reference,
                                         .vjp = vjp,
                                         .localize = localize,
                                         .traits = kView});

Value slice(Value x, Dims start, Dims limit) {
  return x.program->add1(slice_op, {x}, SliceDims{std::move(start), std::move(limit)});
}

}  // namespace dew
