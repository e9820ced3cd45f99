#include "dew/train/step_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using testing::HasSubstr;

const models::TransformerConfig& model() {
  static const models::TransformerConfig config =
      models::resolved({.vocab_size = 256, .emb_features = 64, .num_layers = 2, .num_heads = 4});
  return config;
}

StepMemory least(const DispatchOptions& options, std::int64_t shards = 1) {
  return least_memory(DispatchPlan(options),
                      {.model = model(), .shards = shards, .batch_copies = 4});
}

std::string refusal(const DispatchOptions& options, double memory) {
  return error_of(ErrorCode::usage, [&] {
    expect_room(DispatchPlan(options), {.model = model(), .batch_copies = 4}, memory);
  });
}

TEST(StepMemory, FollowsFromTheSizes) {
  const StepMemory memory = least({.global_batch = 10, .seq_len = 32});
  EXPECT_EQ(memory.batch, 10.0 * 32 * 20 * 4);
  EXPECT_EQ(memory.values, 10.0 * 32 * 4 * (2 * 64 + 256));
  // A micro step has its own rows alone, a process those of its shards.
  EXPECT_EQ(least({.global_batch = 10, .seq_len = 32, .micro_batch = 2}).values, memory.values / 5);
  EXPECT_EQ(least({.global_batch = 10, .seq_len = 32, .batch_shards = 2}, 1).batch,
            memory.batch / 2);
}

TEST(StepMemory, WhatCannotFitIsRefusedWithWhatWould) {
  EXPECT_EQ(refusal({.global_batch = 1000, .seq_len = 32}, 1e9), "no error");
  EXPECT_THAT(refusal({.global_batch = 2147483647, .seq_len = 32}, 16e9),
              HasSubstr("a batch of 2147483647 rows of 32 tokens needs 5.50TB, this machine has "
                        "16.0GB"));
  EXPECT_THAT(refusal({.global_batch = 1000, .seq_len = 2048}, 2e9),
              HasSubstr("a micro step of 1000 rows of 2048 tokens needs 3.31GB at least"));
  // Rows that are there for the sake of a micro step alone.
  EXPECT_THAT(refusal({.global_batch = 16, .seq_len = 32, .micro_batch = 2147483647}, 16e9),
              HasSubstr("a micro step of 2147483647 rows of 32 tokens"));
  try {
    expect_room(DispatchPlan({.global_batch = 1000, .seq_len = 2048}),
                {.model = model(), .batch_copies = 4}, 2e9);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.hint(), HasSubstr("data.micro_batch=302"));
  }
}

// Rows for which there is room for the batch, and for what is computed of it.
TEST(StepMemory, RowsThatFitFitBothWays) {
  std::int64_t rows = 2147483647;
  try {
    expect_room(DispatchPlan({.global_batch = rows, .seq_len = 32}),
                {.model = model(), .batch_copies = 4}, 16e9);
    FAIL();
  } catch (const Error& error) {
    ASSERT_EQ(std::sscanf(error.hint().c_str(), "data.global_batch=%ld", &rows), 1);
  }
  EXPECT_EQ(rows, 154702);
  EXPECT_EQ(refusal({.global_batch = rows, .seq_len = 32}, 16e9), "no error");
}

struct Told {
  std::string message, hint;
};

Told step_refusal(const DispatchOptions& options, const TooLarge& too_large) {
  try {
    refuse_step(DispatchPlan(options), {.model = model(), .batch_copies = 4}, too_large);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return {error.what(), error.hint()};
  }
}

TEST(StepMemory, WhatAPlanFoundTooLargeIsToldInRows) {
  const Told half = step_refusal({.global_batch = 1000, .seq_len = 32}, TooLarge(2e9, 18e9, 11e9));
  EXPECT_EQ(half.message,
            "a micro step of 1000 rows of 32 tokens needs 20.0GB, this machine has 11.0GB");
  EXPECT_EQ(half.hint,
            "data.micro_batch=450 or less may fit, and so may a smaller data.global_batch");
  EXPECT_EQ(step_refusal({.global_batch = 10, .seq_len = 32}, TooLarge(12e9, 1e9, 11e9)).hint,
            "a smaller data.seq_len or model needs less");
}

}  // namespace
}  // namespace dew
