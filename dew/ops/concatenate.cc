// Joins parts along one dimension.
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::size_t joined_dim(const Attrs& attrs) { return slot(std::get<Axes>(attrs).dims[0]); }

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("concatenate", "first more...", in);
  const Dims& dims = check.attrs<Axes>(attrs).dims;
  check.are_dims("CON-1", dims, 0);
  if (dims.size() != 1) check.refuse("CON-1", format("joins one dimension, not [{}]", join(dims)));
  Type result = in[0];
  for (const Type& part : in.subspan(1)) {
    if (part.dtype != result.dtype) check.refuse("CON-2", "dtypes differ");
    Dims expected = result.shape;
    if (part.rank() == result.rank()) expected[slot(dims[0])] = part.shape[slot(dims[0])];
    if (part.shape != expected)
      check.refuse("CON-3", format("shapes differ beside dim {}", dims[0]));
    result.shape[slot(dims[0])] += part.shape[slot(dims[0])];
  }
  return {result};
}

// The joined dimension stays whole: each operand and the result have a factor of their own there.
FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  const std::size_t dim = joined_dim(attrs);
  FactorRule rule = pointwise_rule(results, results);
  rule.operands.assign(operands.size(), rule.results[0]);
  rule.norep.push_back(static_cast<int>(dim));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    rule.operands[i][dim] = {static_cast<int>(rule.sizes.size())};
    rule.norep.push_back(static_cast<int>(rule.sizes.size()));
    rule.names.push_back(static_cast<char>('A' + i % 26));
    rule.sizes.push_back(operands[i].shape[dim]);
    rule.linear.push_back(static_cast<int>(i));
  }
  rule.mode = FactorRule::LinearMode::all;
  return rule;
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const std::size_t dim = joined_dim(attrs);
  Array y(results[0].shape);
  std::int64_t first = 0;
  for (const Array& part : x) {
    for_each_index(part.shape, [&](const Dims& index) {
      Dims to = index;
      to[dim] += first;
      at(y, to) = at(part, index);
    });
    first += part.shape[dim];
  }
  return {std::move(y)};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const std::size_t dim = joined_dim(args.attrs);
  std::vector<Value> gradients;
  std::int64_t first = 0;
  for (Value part : args.operands) {
    Dims start(part.shape().size(), 0), limit = part.shape();
    start[dim] = first;
    first += limit[dim];
    limit[dim] = first;
    gradients.push_back(is_float(part.dtype()) ? fit(part, slice(args.cotangents[0], start, limit))
                                               : Value{});
  }
  return gradients;
}

}  // namespace

constinit const OpDef concatenate_op = op_row({.name = "concatenate",
                                               .infer = infer,
                                               .factors = factors,
                                               .reference = reference,
                                               .vjp = vjp});

Value concatenate(std::span<const Value> parts, std::int64_t dim) {
  if (parts.empty()) fail(ErrorCode::usage, "concatenate: OP-1 takes at least 1 operands, got 0");
  return parts[0].program->add(concatenate_op, parts, Axes{{dim}})[0];
}

}  // namespace dew
