// Rows of a table by number, and sums into rows.
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

void check_table(const Checks& check, std::size_t table, std::size_t ids) {
  if (check[table].rank() != 2 || !is_float(check[table].dtype))
    check.refuse("GAT-1", "table must be floats [v, e]");
  if (check[ids].dtype != DType::i32) check.refuse("GAT-2", "ids must be i32");
}

Dims row_shape(const Type& ids, const Type& table) {
  Dims shape = ids.shape;
  shape.push_back(table.shape[1]);
  return shape;
}

std::vector<Type> infer_gather(const Attrs& attrs, Types in) {
  const Checks check("gather_rows", "table ids", in);
  check.attrs<NoAttrs>(attrs);
  check_table(check, 0, 1);
  return {{in[0].dtype, row_shape(in[1], in[0])}};
}

std::vector<Type> infer_scatter(const Attrs& attrs, Types in) {
  const Checks check("scatter_add_rows", "base ids updates", in);
  check.attrs<NoAttrs>(attrs);
  check_table(check, 0, 1);
  if (in[0].dtype != DType::f32) check.refuse("GAT-3", "base must be f32");
  if (in[2].dtype != DType::f32 && in[2].dtype != DType::bf16)
    check.refuse("GAT-4", "updates must be f32 or bf16");
  if (in[2].shape != row_shape(in[1], in[0])) {
    check.refuse("GAT-5", format("updates must be [{}]", join(row_shape(in[1], in[0]))));
  }
  return {in[0]};
}

// Split over v, each part looks up the ids of its own rows (others read zeros), and the parts are
// summed.
FactorRule factors_gather(const Attrs&, Types operands, Types results) {
  const std::string ids = letters(operands[1].rank());
  return factor_rule("v e, " + ids + " -> " + ids + " e | linear each 0 | index v:1", operands,
                     results);
}

FactorRule factors_scatter(const Attrs&, Types operands, Types results) {
  const std::string ids = letters(operands[1].rank());
  return factor_rule("v e, " + ids + ", " + ids + " e -> v e | linear all 0 2 | index v:1 | once 0",
                     operands, results);
}

// Calls visit(row, index) for every id that names a row of the table.
template <class Visit>
void for_each_row(const Array& ids, std::int64_t rows, Visit visit) {
  for_each_index(ids.shape, [&](const Dims& index) {
    const auto row = static_cast<std::int64_t>(at(ids, index));
    if (row >= 0 && row < rows) visit(row, index);
  });
}

std::vector<Array> reference_gather(const Attrs&, std::span<const Array> x, Types results) {
  const Array &table = x[0], &ids = x[1];
  Array y(results[0].shape);
  for_each_row(ids, table.shape[0], [&](std::int64_t row, Dims to) {
    for (to.push_back(0); to.back() < table.shape[1]; ++to.back())
      at(y, to) = at(table, {row, to.back()});
  });
  return {std::move(y)};
}

std::vector<Array> reference_scatter(const Attrs&, std::span<const Array> x, Types) {
  Array y = x[0];
  const Array &ids = x[1], &updates = x[2];
  for_each_row(ids, y.shape[0], [&](std::int64_t row, Dims from) {
    for (from.push_back(0); from.back() < y.shape[1]; ++from.back())
      at(y, {row, from.back()}) += at(updates, from);
  });
  return {std::move(y)};
}

std::vector<Value> vjp_gather(const VjpArgs& args) {
  const Value table = args.operands[0], g = args.cotangents[0];
  const Value zeros = constant(*table.program, {DType::f32, table.shape()}, 0.0);
  return {fit(table, scatter_add_rows(zeros, args.operands[1], g)), Value{}};
}

std::vector<Value> vjp_scatter(const VjpArgs& args) {
  const Value g = args.cotangents[0];
  return {g, Value{}, fit(args.operands[2], gather_rows(g, args.operands[1]))};
}

}  // namespace

constinit const OpDef gather_rows_op = op_row({.name = "gather_rows",
                                               .infer = infer_gather,
                                               .factors = factors_gather,
                                               .reference = reference_gather,
                                               .vjp = vjp_gather});
constinit const OpDef scatter_add_rows_op = op_row({.name = "scatter_add_rows",
                                                    .infer = infer_scatter,
                                                    .factors = factors_scatter,
                                                    .reference = reference_scatter,
                                                    .vjp = vjp_scatter,
                                                    .traits = kAccumulates});

Value gather_rows(Value table, Value ids) {
  return table.program->add1(gather_rows_op, {table, ids});
}
Value scatter_add_rows(Value base, Value ids, Value updates) {
  return base.program->add1(scatter_add_rows_op, {base, ids, updates});
}

}  // namespace dew
