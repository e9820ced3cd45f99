// Repeats elements along new dimensions.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("broadcast", "x", in);
  const auto& to = check.attrs<NewShape>(attrs);
  if (to.dims.size() != in[0].shape.size()) {
    check.refuse("BRO-1", format("needs one result dimension for each of the operand's, got [{}]",
                                 join(to.dims)));
  }
  for (std::int64_t size : to.shape) {
    if (size < 0) check.refuse("BRO-4", format("sizes [{}] must not be negative", join(to.shape)));
  }
  std::int64_t last = -1;
  for (std::size_t i = 0; i < to.dims.size(); ++i) {
    const std::int64_t d = to.dims[i];
    if (d <= last || d >= static_cast<std::int64_t>(to.shape.size())) {
      check.refuse("BRO-2", format("[{}] are not ascending dimensions of [{}]", join(to.dims),
                                   join(to.shape)));
    }
    if (to.shape[slot(d)] != in[0].shape[i]) {
      check.refuse("BRO-3", format("x dim {} = {}, result dim {} = {}", i, in[0].shape[i], d,
                                   to.shape[slot(d)]));
    }
    last = d;
  }
  return {{in[0].dtype, to.shape}};
}

FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  const std::string all = letters(results[0].rank());
  std::string kept;
  for (std::int64_t d : std::get<NewShape>(attrs).dims) kept += {all[slot(2 * d)], ' '};
  return factor_rule(kept + "-> " + all + " | linear each 0", operands, results);
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const Dims& dims = std::get<NewShape>(attrs).dims;
  Array y(results[0].shape);
  Dims from(dims.size());
  for_each_index(y.shape, [&](const Dims& index) {
    for (std::size_t i = 0; i < dims.size(); ++i) from[i] = index[slot(dims[i])];
    at(y, index) = at(x[0], from);
  });
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const auto& to = std::get<NewShape>(args.attrs);
  Dims added;
  for (std::int64_t d = 0; d < args.results[0].type().rank(); ++d) {
    if (!contains(to.dims, d)) added.push_back(d);
  }
  return {fit(args.operands[0],
              added.empty() ? args.cotangents[0] : reduce_sum(args.cotangents[0], added))};
}

Attrs localize(const Attrs& attrs, Types local_results) {
  return NewShape{local_results[0].shape, std::get<NewShape>(attrs).dims};
}

}  // namespace

constinit const OpDef broadcast_op = op_row({.name = "broadcast",
                                             .infer = infer,
                                             .factors = factors,
                                             .reference = reference,
                                             .vjp = vjp,
                                             .localize = localize,
                                             .traits = kView});

Value broadcast(Value x, Dims shape, Dims dims) {
  return x.program->add1(broadcast_op, {x}, NewShape{std::move(shape), std::move(dims)});
}

}  // namespace dew
