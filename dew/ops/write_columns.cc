// Columns of an array replaced by others: how a cache of keys and values takes those of new tokens.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("write_columns", "base columns updates", in);
  check.attrs<NoAttrs>(attrs);
  if (check[0].rank() < 2) check.refuse("WRI-1", "base must be [b, s, ..]");
  const Dims& shape = check[0].shape;
  if (check[1].dtype != DType::i32 || check[1].rank() != 2 || check[1].shape[0] != shape[0])
    check.refuse("WRI-2", format("columns must be i32[{}, t]", shape[0]));
  Type updates = check[0];
  updates.shape[1] = check[1].shape[1];
  check.is("WRI-3", 2, updates);
  return {check[0]};
}

// Split over s, each part takes the tokens whose columns it holds; the others are outside of it.
FactorRule factors(const Attrs&, Types operands, Types results) {
  const std::string base = letters(operands[0].rank());  // "a b c f": a rows, b columns
  const std::string updates = "a n" + base.substr(3);    // n tokens
  return factor_rule(
      base + ", a n, " + updates + " -> " + base + " | norep n | linear all 0 2 | index b:1",
      operands, results);
}

std::vector<Array> reference(const Attrs&, std::span<const Array> x, Types) {
  Array y = x[0];
  for_each_index(x[2].shape, [&](const Dims& from) {
    Dims to = from;
    to[1] = static_cast<std::int64_t>(at(x[1], {from[0], from[1]}));
    if (to[1] >= 0 && to[1] < y.shape[1]) at(y, to) = at(x[2], from);
  });
  return {std::move(y)};
}

}  // namespace

constinit const OpDef write_columns_op = op_row({.name = "write_columns",
                                                 .infer = infer,
                                                 .factors = factors,
                                                 .reference = reference,
                                                 .traits = kAccumulates});

Value write_columns(Value base, Value columns, Value updates) {
  return base.program->add1(write_columns_op, {base, columns, updates});
}

}  // namespace dew
