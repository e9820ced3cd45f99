#include "dew/data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <numeric>
#include <vector>

#include "dew/data/data_test_support.h"

namespace dew {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(BatchMaker, WorkedExample) {
  // The plan of dispatch.h: 5 rows on 4 shards, two micro steps; rows of 3 ids padded to 4 columns
  // on 2 shards.
  const TemporaryDirectory tmp;
  const Windows windows(counting_file(tmp / "x", 100), 3, 10);
  const DispatchPlan plan(
      {.global_batch = 5, .seq_len = 3, .batch_shards = 4, .sequence_shards = 2, .micro_batch = 1});
  const BatchMaker maker(windows, plan);
  StepBatch batch;
  batch.records = {0, 1, 2, 3, 4};
  maker.fill(batch);
  EXPECT_EQ(batch.micro_steps, 2);
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.width, 4);
  EXPECT_THAT(batch.row_ids, ElementsAre(0, 2, 3, 4, 1, -1, -1, -1));
  EXPECT_THAT(batch.columns, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(batch.weight_sum, 15.0);
  EXPECT_EQ(batch.real_tokens, 15);
  const auto row = [](const auto& array, std::size_t i) {
    return std::vector(array.begin() + static_cast<std::ptrdiff_t>(4 * i),
                       array.begin() + static_cast<std::ptrdiff_t>(4 * i + 4));
  };
  EXPECT_THAT(row(batch.ids, 1), ElementsAre(20, 21, 22, 0));
  EXPECT_THAT(row(batch.labels, 1), ElementsAre(21, 22, 23, 0));
  EXPECT_THAT(row(batch.ids, 4), ElementsAre(10, 11, 12, 0));
  EXPECT_THAT(row(batch.weights, 4), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(row(batch.positions, 4), ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(row(batch.segments, 4), ElementsAre(0, 0, 0, -4));
  EXPECT_THAT(row(batch.ids, 7), Each(0));
  EXPECT_THAT(row(batch.labels, 7), Each(0));
  EXPECT_THAT(row(batch.weights, 7), Each(0));
  EXPECT_THAT(row(batch.positions, 7), ElementsAre(0, 1, 2, 2));
  EXPECT_THAT(row(batch.segments, 7), ElementsAre(-1, -2, -3, -4));
}

// Shards 1 and 3 of the example: their rows of the whole arrays, one shard after the other, and the
// step's own sums.
TEST(BatchMaker, SomeShardsOfTheExample) {
  const TemporaryDirectory tmp;
  const Windows windows(counting_file(tmp / "x", 100), 3, 10);
  const DispatchPlan plan(
      {.global_batch = 5, .seq_len = 3, .batch_shards = 4, .sequence_shards = 2, .micro_batch = 1});
  StepBatch whole, some;
  whole.records = some.records = {0, 1, 2, 3, 4};
  BatchMaker(windows, plan).fill(whole);
  BatchMaker(windows, plan, {1, 3}).fill(some);
  EXPECT_EQ(some.micro_steps, 2);
  EXPECT_EQ(some.rows, 2);
  EXPECT_THAT(some.row_ids, ElementsAre(2, 4, -1, -1));
  EXPECT_EQ(some.columns, whole.columns);
  EXPECT_EQ(some.weight_sum, 15.0);
  EXPECT_EQ(some.real_tokens, 15);
  const auto expect_rows = [&](const auto& part, const auto& all) {
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t row = i / 4;
      EXPECT_EQ(part[i], all[4 * (row / 2 * 4 + (row % 2 == 0 ? 1 : 3)) + i % 4]);
    }
  };
  expect_rows(some.ids, whole.ids);
  expect_rows(some.labels, whole.labels);
  expect_rows(some.weights, whole.weights);
  expect_rows(some.positions, whole.positions);
  expect_rows(some.segments, whole.segments);
}

// Tokens by global row and column.
using Tokens =
    std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::int32_t, std::int32_t>>;

// Checks the promises of StepBatch on every element and gives back the real ones.
Tokens real_tokens_of(const StepBatch& batch, std::int64_t seq_len) {
  Tokens tokens;
  double weight = 0;
  std::size_t i = 0;
  for (const std::int32_t row : batch.row_ids) {
    for (const std::int32_t column : batch.columns) {
      RC_ASSERT(batch.positions[i] >= 0 && batch.positions[i] < seq_len);
      if (batch.segments[i] >= 0) {
        RC_ASSERT(batch.segments[i] == 0 && row >= 0 && batch.weights[i] == 1.0f &&
                  batch.positions[i] == column);
        RC_ASSERT(tokens.insert({{row, column}, {batch.ids[i], batch.labels[i]}}).second);
      } else {
        RC_ASSERT(batch.segments[i] == -1 - column && batch.weights[i] == 0.0f);
        RC_ASSERT(batch.ids[i] == 0 && batch.labels[i] == 0);
      }
      weight += static_cast<double>(batch.weights[i++]);
    }
  }
  RC_ASSERT(i == batch.ids.size() && weight == batch.weight_sum);
  RC_ASSERT(static_cast<std::int64_t>(tokens.size()) == batch.real_tokens);
  return tokens;
}

// batch-dispatch.md 8, properties 1 and 6: whatever the plan, the step has the same rows, also in a
// buffer used before.
TEST(BatchMaker, HoldsTheSameRowsUnderAnyPlan) {
  const TemporaryDirectory tmp;
  const auto file = counting_file(tmp / "x", 2000);
  EXPECT_TRUE(rc::check("rows", [&] {
    const auto seq_len = *rc::gen::inRange<std::int64_t>(1, 20);
    const Windows windows(file, seq_len, 7);
    DispatchOptions options{.global_batch = *rc::gen::inRange<std::int64_t>(1, 40),
                            .seq_len = seq_len};
    options.batch_shards = *rc::gen::inRange<std::int64_t>(1, 20);
    options.sequence_shards = *rc::gen::inRange<std::int64_t>(1, 5);
    options.accumulate = *rc::gen::inRange<std::int64_t>(1, 5);
    options.column_multiple = *rc::gen::inRange<std::int64_t>(1, 40);
    const BatchMaker maker(windows, DispatchPlan(options));
    StepBatch batch;
    for (int use = 0; use < 3; ++use) {
      const auto rows = *rc::gen::inRange<std::int64_t>(1, maker.plan().physical_batch() + 1);
      batch.records.resize(static_cast<std::size_t>(rows));
      for (auto& record : batch.records)
        record = *rc::gen::inRange<std::int64_t>(0, windows.records());
      maker.fill(batch);
      const Tokens tokens = real_tokens_of(batch, seq_len);
      RC_ASSERT(static_cast<std::int64_t>(tokens.size()) == rows * seq_len);
      for (const auto& [place, token] : tokens) {
        const std::int64_t expected =
            batch.records[static_cast<std::size_t>(place.first)] * 7 + place.second;
        RC_ASSERT(token.first == expected && token.second == expected + 1);
      }
    }
  }));
}

TEST(BatchMaker, RefusesBatchesWhoseRowNumbersDoNotFit) {
  const TemporaryDirectory tmp;
  const Windows windows(counting_file(tmp / "x", 100), 3, 3);
  EXPECT_THAT(
      error_of(
          ErrorCode::usage,
          [&] { BatchMaker(windows, DispatchPlan({.global_batch = 1L << 31, .seq_len = 3})); }),
      ::testing::HasSubstr("must lie below 2^31"));
}

}  // namespace
}  // namespace dew
