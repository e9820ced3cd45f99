// Reorders dimensions.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("transpose", "x", in);
  const Dims& order = check.attrs<Permutation>(attrs).order;
  check.are_dims("TRA-1", order, 0);
  if (order.size() != in[0].shape.size())
    check.refuse("TRA-2", format("[{}] leaves dimensions out", join(order)));
  Type result{in[0].dtype, {}};
  for (std::int64_t d : order) result.shape.push_back(in[0].shape[slot(d)]);
  return {result};
}

FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  const std::string all = letters(operands[0].rank());
  std::string moved;
  for (std::int64_t d : std::get<Permutation>(attrs).order) moved += {all[slot(2 * d)], ' '};
  return factor_rule(all + " -> " + moved + "| linear each 0", operands, results);
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const Dims& order = std::get<Permutation>(attrs).order;
  Array y(results[0].shape);
  Dims from(order.size());
  for_each_index(y.shape, [&](const Dims& index) {
    for (std::size_t i = 0; i < order.size(); ++i) from[slot(order[i])] = index[i];
    at(y, index) = at(x[0], from);
  });
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const Dims& order = std::get<Permutation>(args.attrs).order;
  Dims inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[slot(order[i])] = static_cast<std::int64_t>(i);
  return {fit(args.operands[0], transpose(args.cotangents[0], inverse))};
}

}  // namespace

constinit const OpDef transpose_op = op_row({.name = "transpose",
                                             .infer = infer,
                                             .factors = factors,
                                             .reference = reference,
                                             .vjp = vjp,
                                             .traits = kView});

Value transpose(Value x, Dims order) {
  return x.program->add1(transpose_op, {x}, Permutation{std::move(order)});
}

}  // namespace dew
