// Products of rows: what attention's gradient needs of its result and the result's cotangent.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("row_dot", "a b", in);
  check.attrs<NoAttrs>(attrs);
  if (in[0] != in[1]) check.refuse("ROW-1", "operands differ");
  if (!is_float(in[0].dtype) || in[0].rank() < 1)
    check.refuse("ROW-2", "takes floats of rank 1 or more");
  return {{DType::f32, Dims(in[0].shape.begin(), in[0].shape.end() - 1)}};
}

FactorRule factors(const Attrs&, Types operands, Types results) {
  const std::string kept = letters(operands[0].rank() - 1);
  return factor_rule(kept + " d, " + kept + " d -> " + kept + " | linear each 0 1", operands,
                     results);
}

std::vector<Array> reference(const Attrs&, std::span<const Array> in, Types results) {
  Array y(results[0].shape);
  const std::int64_t width = in[0].shape.back();
  for (std::size_t i = 0; i < in[0].data.size(); ++i) {
    y.data[i / slot(width)] += in[0].data[i] * in[1].data[i];
  }
  return {y};
}

std::vector<Value> vjp(const VjpArgs& args) {
  const Value a = args.operands[0], b = args.operands[1];
  const Value g = broadcast(args.cotangents[0], a.shape(), counting(a.type().rank() - 1));
  const auto product = [&](Value of, Value other) {
    return fit(of, g * convert(other, DType::f32));
  };
  return {product(a, b), product(b, a)};
}

}  // namespace

constinit const OpDef row_dot_op = op_row(
    {.name = "row_dot", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});

Value row_dot(Value a, Value b) { return a.program->add1(row_dot_op, {a, b}); }

}  // namespace dew
