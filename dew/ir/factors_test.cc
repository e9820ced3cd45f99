#include "dew/ir/factors.h"

#include <gtest/gtest.h>

#include "dew/base/error.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

Type f32(Dims shape) { return {DType::f32, std::move(shape)}; }

using Lists = std::vector<FactorRule::DimFactors>;

TEST(FactorRule, ProductOfMatrices) {
  const std::vector<Type> in{f32({2, 3, 4}), f32({4, 5})}, out{f32({2, 3, 5})};
  const FactorRule rule = factor_rule("b s e, e f -> b s f | linear each 0 1", in, out);
  EXPECT_EQ(rule.sizes, (Dims{2, 3, 4, 5}));
  EXPECT_EQ(std::string(rule.names.begin(), rule.names.end()), "bsef");
  EXPECT_EQ(rule.operands, (Lists{{{0}, {1}, {2}}, {{2}, {3}}}));
  EXPECT_EQ(rule.results, (Lists{{{0}, {1}, {3}}}));
  EXPECT_EQ(rule.linear, (std::vector<int>{0, 1}));
  EXPECT_EQ(rule.mode, FactorRule::LinearMode::each);
  EXPECT_TRUE(rule.result_has(0, 3));
  EXPECT_FALSE(rule.result_has(0, 2));
}

TEST(FactorRule, CompoundTakesItsSizeFromElsewhere) {
  const std::vector<Type> in{f32({2, 3, 6, 4}), f32({2, 5, 3, 4})},
      out{f32({2, 3, 6, 4}), f32({2, 3, 6})};
  const FactorRule rule =
      factor_rule("b t (k g) d, b s k d -> b t (k g) d; b t (k g) | norep s d", in, out);
  EXPECT_EQ(rule.sizes, (Dims{2, 3, 3, 2, 4, 5}));  // b t k g d s
  EXPECT_EQ(rule.operands[0][2], (std::vector<int>{2, 3}));
  EXPECT_EQ(rule.norep, (std::vector<int>{5, 4}));
}

TEST(FactorRule, ScalarsAndSections) {
  const std::vector<Type> in{f32({2, 3, 4}), f32({6, 4}), f32({2, 3}), f32({})},
      out{f32({}), f32({6, 4})};
  const FactorRule rule = factor_rule(
      "b s e, v e, b s, -> ; v e | norep e | inner v:0 | index v:2 | once 1 | linear all 0 2", in,
      out);
  EXPECT_EQ(rule.operands[3], FactorRule::DimFactors{});
  EXPECT_EQ(rule.results[0], FactorRule::DimFactors{});
  EXPECT_TRUE(rule.is_inner(3, 0));
  EXPECT_FALSE(rule.is_inner(3, 1));
  EXPECT_EQ(rule.index, (std::vector<std::pair<int, int>>{{3, 2}}));
  EXPECT_EQ(rule.once, (std::vector<int>{1}));
  EXPECT_EQ(rule.mode, FactorRule::LinearMode::all);
}

TEST(FactorRule, NoOperands) {
  const std::vector<Type> out{f32({2, 3})};
  const FactorRule rule = factor_rule("-> a b", {}, out);
  EXPECT_TRUE(rule.operands.empty());
  EXPECT_EQ(rule.sizes, (Dims{2, 3}));
}

TEST(FactorRule, EmptyDimensions) {
  const std::vector<Type> in{f32({0, 4}), f32({0})}, out{f32({0, 4})};
  EXPECT_EQ(factor_rule("(k g) e, k -> (k g) e", in, out).sizes, (Dims{0, 1, 4}));
}

TEST(FactorRule, BugsAreRefused) {
  const std::vector<Type> in{f32({2, 3})}, out{f32({2, 3})};
  for (const char* text :
       {"a b -> a", "a b, c -> a b", "a a -> a b", "a b -> a b | norp a", "a b -> a b | norep a |",
        "a b a b", "a b -> a b ! c", "a b -> a b | inner a", "(a b) c -> x c"}) {
    SCOPED_TRACE(text);
    try {
      factor_rule(text, in, out);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal);
    }
  }
}

TEST(PointwiseRule, ScalarsHaveNoFactors) {
  const std::vector<Type> in{f32({2, 3}), f32({}), f32({2, 3})}, out{f32({2, 3})};
  const FactorRule rule = pointwise_rule(in, out);
  EXPECT_EQ(rule.operands, (Lists{{{0}, {1}}, {}, {{0}, {1}}}));
  EXPECT_EQ(rule.results, (Lists{{{0}, {1}}}));
}

// The factors of a reshape are found, not written.
FactorRule reshape_rule(Dims from, Dims to) {
  const std::vector<Type> in{f32(std::move(from))}, out{f32(std::move(to))};
  return reshape_op.factors(NoAttrs{}, in, out);
}

TEST(ReshapeRule, MergesAndSplits) {
  const FactorRule rule = reshape_rule({2, 3, 4, 5}, {2, 3, 20});
  EXPECT_EQ(rule.sizes, (Dims{2, 3, 4, 5}));
  EXPECT_EQ(rule.results, (Lists{{{0}, {1}, {2, 3}}}));
  EXPECT_TRUE(rule.norep.empty());
  EXPECT_EQ(reshape_rule({2, 20}, {2, 4, 5}).operands, (Lists{{{0}, {1, 2}}}));
  EXPECT_EQ(reshape_rule({4, 6}, {8, 3}).sizes, (Dims{4, 2, 3}));
}

TEST(ReshapeRule, WithoutCommonFactorsStaysWhole) {
  const FactorRule rule = reshape_rule({7, 2, 3}, {7, 3, 2});
  EXPECT_EQ(rule.sizes, (Dims{7, 2, 3, 3, 2}));
  EXPECT_EQ(rule.norep, (std::vector<int>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace dew
