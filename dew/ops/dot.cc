// The general matrix product.
#include <algorithm>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

// Dimensions that are neither batch nor contracted.
Dims free_dims(std::int64_t rank, const Dims& batch, const Dims& contract) {
  Dims result;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (!contains(batch, d) && !contains(contract, d)) result.push_back(d);
  }
  return result;
}

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void check_pairs(const Checks& check, const char* constraint, const char* what, const Dims& lhs,
                 const Dims& rhs) {
  if (lhs.size() != rhs.size()) {
    check.refuse(constraint, format("{} dimensions differ in number: lhs [{}], rhs [{}]", what,
                                    join(lhs), join(rhs)));
  }
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    const std::int64_t a = check[0].shape[slot(lhs[i])], b = check[1].shape[slot(rhs[i])];
    if (a != b) {
      check.refuse(constraint, format("{} sizes differ: lhs dim {} = {}, rhs dim {} = {}", what,
                                      lhs[i], a, rhs[i], b));
    }
  }
}

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("dot", "lhs rhs", in);
  const auto& d = check.attrs<DotDims>(attrs);
  if (in[0].dtype != in[1].dtype || !is_float(in[0].dtype))
    check.refuse("DOT-1", "operands must have one float dtype");
  check.are_dims("DOT-2", joined(d.lhs_batch, d.lhs_contract), 0);
  check.are_dims("DOT-2", joined(d.rhs_batch, d.rhs_contract), 1);
  check_pairs(check, "DOT-3", "contracted", d.lhs_contract, d.rhs_contract);
  check_pairs(check, "DOT-4", "batch", d.lhs_batch, d.rhs_batch);
  if (d.out != DType::f32 && d.out != in[0].dtype) {
    check.refuse("DOT-5", format("result is f32 or {}, not {}", name(in[0].dtype), name(d.out)));
  }
  Type result{d.out, {}};
  for (std::int64_t i : d.lhs_batch) result.shape.push_back(in[0].shape[slot(i)]);
  for (std::int64_t i : free_dims(in[0].rank(), d.lhs_batch, d.lhs_contract))
    result.shape.push_back(in[0].shape[slot(i)]);
  for (std::int64_t i : free_dims(in[1].rank(), d.rhs_batch, d.rhs_contract))
    result.shape.push_back(in[1].shape[slot(i)]);
  return {result};
}

std::string spaced(const std::string& text) {
  std::string result;
  for (char c : text) result += {c, ' '};
  return result;
}

// One letter a dimension; those of rhs that lhs shares take its letters.
FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  const auto& d = std::get<DotDims>(attrs);
  const auto rank = static_cast<std::size_t>(operands[0].rank());
  std::string lhs(rank, '?'), rhs(static_cast<std::size_t>(operands[1].rank()), '?'), result;
  for (std::size_t i = 0; i < rank; ++i) lhs[i] = static_cast<char>('a' + i);
  for (std::size_t i = 0; i < rhs.size(); ++i) rhs[i] = static_cast<char>('A' + i);
  for (std::size_t i = 0; i < d.rhs_batch.size(); ++i)
    rhs[slot(d.rhs_batch[i])] = lhs[slot(d.lhs_batch[i])];
  for (std::size_t i = 0; i < d.rhs_contract.size(); ++i)
    rhs[slot(d.rhs_contract[i])] = lhs[slot(d.lhs_contract[i])];
  for (std::int64_t i : d.lhs_batch) result += lhs[slot(i)];
  for (std::int64_t i : free_dims(operands[0].rank(), d.lhs_batch, d.lhs_contract))
    result += lhs[slot(i)];
  for (std::int64_t i : free_dims(operands[1].rank(), d.rhs_batch, d.rhs_contract))
    result += rhs[slot(i)];
  return factor_rule(
      spaced(lhs) + ", " + spaced(rhs) + "-> " + spaced(result) + "| linear each 0 1", operands,
      results);
}

Dims sizes_of(const Dims& shape, const Dims& dims) {
  Dims sizes;
  for (std::int64_t d : dims) sizes.push_back(shape[slot(d)]);
  return sizes;
}

void place(Dims& index, const Dims& dims, const Dims& values, std::size_t first) {
  for (std::size_t i = 0; i < dims.size(); ++i) index[slot(dims[i])] = values[first + i];
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> x, Types results) {
  const auto& d = std::get<DotDims>(attrs);
  const Array &lhs = x[0], &rhs = x[1];
  const Dims lhs_free =
      free_dims(static_cast<std::int64_t>(lhs.shape.size()), d.lhs_batch, d.lhs_contract);
  const Dims rhs_free =
      free_dims(static_cast<std::int64_t>(rhs.shape.size()), d.rhs_batch, d.rhs_contract);
  const Dims contracted = sizes_of(lhs.shape, d.lhs_contract);
  Array y(results[0].shape);
  Dims i(lhs.shape.size()), j(rhs.shape.size());
  for_each_index(y.shape, [&](const Dims& out) {
    place(i, d.lhs_batch, out, 0);
    place(j, d.rhs_batch, out, 0);
    place(i, lhs_free, out, d.lhs_batch.size());
    place(j, rhs_free, out, d.lhs_batch.size() + lhs_free.size());
    double sum = 0.0;
    for_each_index(contracted, [&](const Dims& k) {
      place(i, d.lhs_contract, k, 0);
      place(j, d.rhs_contract, k, 0);
      sum += at(lhs, i) * at(rhs, j);
    });
    at(y, out) = sum;
  });
  return {std::move(y)};
}

// One side of a product as its gradient sees it: batch and contracted dimensions, and where its
// free dimensions start in the result.
struct Side {
  Value value;
  Dims batch, contract, free;
  std::int64_t free_in_result;
};

Dims range(std::int64_t first, std::size_t count) {
  Dims dims = counting(static_cast<std::int64_t>(count));
  for (std::int64_t& d : dims) d += first;
  return dims;
}

// Which dimension of `mine` each contracted dimension of `other` is, in the order of the dimensions
// of `other`.
Dims contracted_in_order_of(const Side& mine, const Side& other) {
  Dims order;
  for (std::int64_t d = 0; d < other.value.type().rank(); ++d) {
    const auto found = std::ranges::find(other.contract, d);
    if (found != other.contract.end())
      order.push_back(mine.contract[slot(found - other.contract.begin())]);
  }
  return order;
}

bool ascending_from_zero(const Dims& order) {
  return order == counting(static_cast<std::int64_t>(order.size()));
}

// The cotangent of `mine`: g contracted with the free dimensions of `other`. Of the two orders of
// the factors that one is taken whose result has the dimensions of `mine` in place; only if neither
// has, a transpose follows.
Value gradient(const Side& mine, const Side& other, Value cotangent) {
  const DType dtype = mine.value.dtype();
  const Value g = cotangent.dtype() == dtype ? cotangent : convert(cotangent, dtype);
  const Dims batch = range(0, mine.batch.size());
  const Dims contract = range(other.free_in_result, other.free.size());
  const Dims rest = contracted_in_order_of(mine, other);
  const Dims g_first = joined(joined(mine.batch, mine.free),
                              rest);  // dimension of `mine` at each place of the result
  const Dims g_last = joined(joined(mine.batch, rest), mine.free);
  const DType out = cotangent_dtype(mine.value);
  const bool swap = !ascending_from_zero(g_first) && ascending_from_zero(g_last);
  const Value product = swap ? dot(other.value, g, {other.batch, batch, other.free, contract, out})
                             : dot(g, other.value, {batch, other.batch, contract, other.free, out});
  const Dims& places = swap ? g_last : g_first;
  if (ascending_from_zero(places)) return product;
  Dims order(places.size());
  for (std::size_t i = 0; i < places.size(); ++i)
    order[slot(places[i])] = static_cast<std::int64_t>(i);
  return transpose(product, order);
}

std::vector<Value> vjp(const VjpArgs& args) {
  const auto& d = std::get<DotDims>(args.attrs);
  Side lhs{args.operands[0],
           d.lhs_batch,
           d.lhs_contract,
           {},
           static_cast<std::int64_t>(d.lhs_batch.size())};
  lhs.free = free_dims(lhs.value.type().rank(), lhs.batch, lhs.contract);
  Side rhs{args.operands[1], d.rhs_batch, d.rhs_contract, {}, 0};
  rhs.free = free_dims(rhs.value.type().rank(), rhs.batch, rhs.contract);
  rhs.free_in_result = lhs.free_in_result + static_cast<std::int64_t>(lhs.free.size());
  const Value g = args.cotangents[0];
  return {gradient(lhs, rhs, g), gradient(rhs, lhs, g)};
}

}  // namespace

constinit const OpDef dot_op =
    op_row({.name = "dot", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});

Value dot(Value a, Value b, DotDims dims) {
  return a.program->add1(dot_op, {a, b}, std::move(dims));
}

Value linear(Value x, Value w) {
  return dot(x, w,
             {.lhs_batch = {},
              .rhs_batch = {},
              .lhs_contract = {x.type().rank() - 1},
              .rhs_contract = {0},
              .out = x.dtype()});
}

}  // namespace dew
