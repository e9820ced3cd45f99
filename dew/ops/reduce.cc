// Sums and maxima over dimensions.
#include <algorithm>
#include <limits>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

Dims kept_dims(std::int64_t rank, const Dims& reduced) {
  Dims kept;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (!contains(reduced, d)) kept.push_back(d);
  }
  return kept;
}

std::vector<Type> infer_reduction(const char* op, const Attrs& attrs, Types in) {
  const Checks check(op, "x", in);
  const auto& axes = check.attrs<Axes>(attrs);
  check.are_dims("RED-1", axes.dims, 0);
  if (in[0].dtype == DType::pred) check.refuse("RED-2", "takes numbers");
  Type result{in[0].dtype, {}};
  for (std::int64_t d : kept_dims(in[0].rank(), axes.dims))
    result.shape.push_back(in[0].shape[slot(d)]);
  return {result};
}

std::vector<Type> infer_sum(const Attrs& attrs, Types in) {
  return infer_reduction("reduce_sum", attrs, in);
}
std::vector<Type> infer_max(const Attrs& attrs, Types in) {
  return infer_reduction("reduce_max", attrs, in);
}

// The reduced dimensions are missing in the result: their parts are summed.
FactorRule rule(const Attrs& attrs, Types operands, Types results, const char* suffix) {
  const std::string all = letters(operands[0].rank());
  std::string kept;
  for (std::int64_t d : kept_dims(operands[0].rank(), std::get<Axes>(attrs).dims))
    kept += {all[slot(2 * d)], ' '};
  return factor_rule(all + " -> " + kept + suffix, operands, results);
}

FactorRule sum_factors(const Attrs& attrs, Types operands, Types results) {
  return rule(attrs, operands, results, "| linear each 0");
}

// Maxima of parts are not to be summed.
FactorRule max_factors(const Attrs& attrs, Types operands, Types results) {
  FactorRule result = rule(attrs, operands, results, "");
  for (std::int64_t d : std::get<Axes>(attrs).dims) result.norep.push_back(static_cast<int>(d));
  return result;
}

// y[kept part of the index] = combine(that, x[index]) for all elements of x.
template <class Combine>
Array reduced(const Attrs& attrs, const Array& x, const Dims& shape, double initial,
              Combine combine) {
  const Dims kept =
      kept_dims(static_cast<std::int64_t>(x.shape.size()), std::get<Axes>(attrs).dims);
  Array y(shape, initial);
  Dims out(kept.size());
  for_each_index(x.shape, [&](const Dims& index) {
    for (std::size_t i = 0; i < kept.size(); ++i) out[i] = index[slot(kept[i])];
    double& element = at(y, out);
    element = combine(element, at(x, index));
  });
  return y;
}

std::vector<Array> reference_sum(const Attrs& attrs, std::span<const Array> x, Types results) {
  return {reduced(attrs, x[0], results[0].shape, 0.0, [](double a, double b) { return a + b; })};
}

double least(DType dtype) {
  if (dtype == DType::i32) return std::numeric_limits<std::int32_t>::min();
  return dtype == DType::u32 ? 0.0 : -std::numeric_limits<double>::infinity();
}

std::vector<Array> reference_max(const Attrs& attrs, std::span<const Array> x, Types results) {
  return {reduced(attrs, x[0], results[0].shape, least(results[0].dtype),
                  [](double a, double b) { return b > a ? b : a; })};
}

Value spread(Value reduction, Value x, const Dims& reduced_dims) {
  return broadcast(reduction, x.shape(), kept_dims(x.type().rank(), reduced_dims));
}

std::vector<Value> vjp_sum(const VjpArgs& args) {
  const Value x = args.operands[0];
  return {fit(x, spread(args.cotangents[0], x, std::get<Axes>(args.attrs).dims))};
}

// -(row-major number of the element within its reduction) - 1, so that the first element has the
// greatest.
Value order_number(Value x, const Dims& dims) {
  Program& p = *x.program;
  const Type type{DType::i32, x.shape()};
  Value number = constant(p, {DType::i32, {}}, -1.0);
  std::int64_t stride = 1;
  Dims from_last = dims;
  std::ranges::sort(from_last, std::greater<>());
  for (std::int64_t d : from_last) {
    number = iota(p, type, d) * -static_cast<double>(stride) + number;
    stride *= x.dim(d);
  }
  return dims.empty() ? broadcast(number, x.shape(), {}) : number;
}

std::vector<Value> vjp_max(const VjpArgs& args) {
  const Value x = args.operands[0], g = args.cotangents[0];
  const Dims& dims = std::get<Axes>(args.attrs).dims;
  const Value is_maximum = equal(x, spread(args.results[0], x, dims));
  const Value number =
      select(is_maximum, order_number(x, dims), scalar(*x.program, DType::i32, least(DType::i32)));
  const Value is_first =
      logical_and(is_maximum, equal(number, spread(reduce_max(number, dims), x, dims)));
  return {fit(x, select(is_first, spread(g, x, dims), scalar(*x.program, g.dtype(), 0.0)))};
}

}  // namespace

constinit const OpDef reduce_sum_op = op_row({.name = "reduce_sum",
                                              .infer = infer_sum,
                                              .factors = sum_factors,
                                              .reference = reference_sum,
                                              .vjp = vjp_sum});
constinit const OpDef reduce_max_op = op_row({.name = "reduce_max",
                                              .infer = infer_max,
                                              .factors = max_factors,
                                              .reference = reference_max,
                                              .vjp = vjp_max});

Value reduce_sum(Value x, Dims dims) {
  return x.program->add1(reduce_sum_op, {x}, Axes{std::move(dims)});
}
Value reduce_max(Value x, Dims dims) {
  return x.program->add1(reduce_max_op, {x}, Axes{std::move(dims)});
}

}  // namespace dew
