// Values made from nothing: equal elements, and numbers counted along a dimension.
#include <cmath>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

Type checked_type(const Checks& check, const Fill& fill) {
  for (std::int64_t size : fill.type.shape) {
    if (size < 0)
      check.refuse("CST-1", format("sizes of {} must not be negative", to_string(fill.type)));
  }
  return fill.type;
}

std::vector<Type> infer_constant(const Attrs& attrs, Types in) {
  const Checks check("constant", "", in);
  const auto& fill = check.attrs<Fill>(attrs);
  const bool whole = is_float(fill.type.dtype) || (std::trunc(fill.value) == fill.value);
  if (!whole) check.refuse("CST-2", format("{} is no {}", fill.value, name(fill.type.dtype)));
  return {checked_type(check, fill)};
}

std::vector<Type> infer_iota(const Attrs& attrs, Types in) {
  const Checks check("iota", "", in);
  const auto& fill = check.attrs<Fill>(attrs);
  const Type type = checked_type(check, fill);
  if (type.dtype == DType::pred) check.refuse("CST-3", "counts numbers, not pred");
  const auto dim = static_cast<std::int64_t>(fill.value);
  if (dim < 0 || dim >= type.rank())
    check.refuse("CST-4", format("dim {} is none of {}", dim, to_string(type)));
  return {type};
}

FactorRule factors_constant(const Attrs&, Types operands, Types results) {
  return factor_rule("-> " + letters(results[0].rank()), operands, results);
}

// A part of the counted dimension would begin at another number.
FactorRule factors_iota(const Attrs& attrs, Types operands, Types results) {
  FactorRule rule = factors_constant(attrs, operands, results);
  rule.norep = {static_cast<int>(std::get<Fill>(attrs).value)};
  return rule;
}

std::vector<Array> reference_constant(const Attrs& attrs, std::span<const Array>, Types results) {
  return {Array(results[0].shape, std::get<Fill>(attrs).value)};
}

std::vector<Array> reference_iota(const Attrs& attrs, std::span<const Array>, Types results) {
  const auto dim = static_cast<std::size_t>(std::get<Fill>(attrs).value);
  Array y(results[0].shape);
  for_each_index(y.shape,
                 [&](const Dims& index) { at(y, index) = static_cast<double>(index[dim]); });
  return {std::move(y)};
}

Attrs localize(const Attrs& attrs, Types local_results) {
  return Fill{local_results[0], std::get<Fill>(attrs).value};
}

}  // namespace

constinit const OpDef constant_op = op_row({.name = "constant",
                                            .infer = infer_constant,
                                            .factors = factors_constant,
                                            .reference = reference_constant,
                                            .localize = localize});
constinit const OpDef iota_op = op_row({.name = "iota",
                                        .infer = infer_iota,
                                        .factors = factors_iota,
                                        .reference = reference_iota,
                                        .localize = localize});

Value constant(Program& program, Type type, double value) {
  return program.add1(constant_op, {}, Fill{std::move(type), value});
}
Value zeros_like(Value x) { return constant(*x.program, x.type(), 0.0); }
Value iota(Program& program, Type type, std::int64_t dim) {
  return program.add1(iota_op, {}, Fill{std::move(type), static_cast<double>(dim)});
}

}  // namespace dew
