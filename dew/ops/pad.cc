// Zeros before and behind each dimension.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("pad", "x", in);
  const auto& by = check.attrs<PadDims>(attrs);
  if (by.low.size() != in[0].shape.size() || by.high.size() != in[0].shape.size()) {
    check.refuse("PAD-1", "needs a low and a high count for each dimension");
  }
  Type result = in[0];
  for (std::size_t d = 0; d < by.low.size(); ++d) {
    if (by.low[d] < 0 || by.high[d] < 0) {
      check.refuse("PAD-2", format("dim {}: counts {} and {} must not be negative", d, by.low[d],
                                   by.high[d]));
    }
    result.shape[d] += by.low[d] + by.high[d];
  }
  return {result};
}

// As for slice: dimensions that grow stay whole.
FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  FactorRule rule = slice_op.factors(attrs, results, operands);
  std::swap(rule.operands, rule.results);
  return rule;
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const Dims& low = std::get<PadDims>(attrs).low;
  Array y(results[0].shape);
  for_each_index(x[0].shape, [&](const Dims& index) {
    Dims to = index;
    for (std::size_t d = 0; d < to.size(); ++d) to[d] += low[d];
    at(y, to) = at(x[0], index);
  });
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const auto& by = std::get<PadDims>(args.attrs);
  Dims limit = args.operands[0].shape();
  for (std::size_t d = 0; d < limit.size(); ++d) limit[d] += by.low[d];
  return {fit(args.operands[0], slice(args.cotangents[0], by.low, limit))};
}

}  // namespace

constinit const OpDef pad_op =
    op_row({.name = "pad", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});

Value pad(Value x, Dims low, Dims high) {
  return x.program->add1(pad_op, {x}, PadDims{std::move(low), std::move(high)});
}

}  // namespace dew
