// What steps must do, against numbers worked out by hand.
#include "dew/plan/cost.h"

#include <gtest/gtest.h>

#include "dew/ops/ops.h"

namespace dew {
namespace {

StepCost total(const Program& program) {
  const std::vector<int> none(program.outputs().size(), -1);
  StepCost sum;
  for (const Step& step : make_plan(program, none).steps) {
    const StepCost cost = cost_of(step);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

TEST(Cost, Product) {
  Program p("p");
  const Value x = p.input("x", {DType::f32, {3, 5}}), w = p.input("w", {DType::bf16, {5, 7}});
  p.output("y", dot(convert(x, DType::bf16), w, {{}, {}, {1}, {0}}));
  const StepCost cost = total(p);
  EXPECT_EQ(cost.flops, 2 * 3 * 5 * 7 + 15);  // and a conversion of each element of x
  EXPECT_EQ(cost.bytes, 15 * (4 + 2) + 15 * 2 + 35 * 2 + 21 * 4);
}

TEST(Cost, FusedGroupReadsARepeatedRowOnce) {
  Program p("p");
  const Value x = p.input("x", {DType::f32, {6, 4}}), row = p.input("row", {DType::f32, {4}});
  p.output("y", exp(x * broadcast(row, {6, 4}, {1})));
  const StepCost cost = total(p);
  EXPECT_EQ(cost.flops, 2 * 24);
  EXPECT_EQ(cost.bytes, 4 * (24 + 4 + 24));
}

TEST(Cost, GatheredRowsAlone) {
  Program p("p");
  const Value table = p.input("table", {DType::f32, {1000, 3}});
  const Value ids = p.input("ids", {DType::i32, {2}});
  p.output("y", gather_rows(table, ids));
  EXPECT_EQ(total(p).bytes, 4 * 2 * (2 * 3));
}

TEST(Cost, NothingOfNoRows) {
  Program p("p");
  const Value x = p.input("x", {DType::f32, {0, 4}}), w = p.input("w", {DType::f32, {4, 2}});
  p.output("y", dot(x, w, {{}, {}, {1}, {0}}));
  EXPECT_EQ(total(p).flops, 0);
}

}  // namespace
}  // namespace dew
