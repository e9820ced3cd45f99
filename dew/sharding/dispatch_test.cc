#include "dew/sharding/dispatch.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "dew/base/error.h"

namespace dew {
namespace {

// RapidCheck prints the failing case and its seed; this makes it a failure of the test.
template <typename Body>
void expect_property(const char* name, Body body) {
  EXPECT_TRUE(rc::check(name, body)) << name;
}

DispatchOptions any_options() {
  DispatchOptions o;
  o.global_batch = *rc::gen::inRange<std::int64_t>(1, 400);
  o.batch_shards = *rc::gen::inRange<std::int64_t>(1, 70);
  o.microbatches = *rc::gen::inRange<std::int64_t>(1, 5);
  switch (*rc::gen::inRange(0, 3)) {
    case 1:
      o.accumulate = *rc::gen::inRange<std::int64_t>(1, 12);
      break;
    case 2:
      o.micro_batch = *rc::gen::inRange<std::int64_t>(1, 12);
      break;
    default:
      break;
  }
  return o;
}

std::vector<Place> all_places(const DispatchPlan& plan) {
  std::vector<Place> places;
  for (std::int64_t j = 0; j < plan.steps(); ++j)
    for (std::int64_t b = 0; b < plan.batch_shards(); ++b)
      for (std::int64_t s = 0; s < plan.micro_batch(); ++s) places.push_back({j, b, s});
  return places;
}

// Rows by place, where every real row is met exactly once and place() is the inverse of row().
void check_places(const DispatchPlan& plan) {
  std::set<std::int64_t> seen;
  std::int64_t pads = 0;
  for (const Place& place : all_places(plan)) {
    const std::int64_t row = plan.row(place);
    if (row < 0) {
      ++pads;
      continue;
    }
    RC_ASSERT(row < plan.global_batch());
    RC_ASSERT(seen.insert(row).second);
    RC_ASSERT(plan.place(row) == place);
  }
  RC_ASSERT(static_cast<std::int64_t>(seen.size()) == plan.global_batch());
  RC_ASSERT(pads == plan.pads());
}

// batch-dispatch.md 8, property 1, also with fewer rows in the same arrays.
TEST(DispatchPlan, EveryRowHasOnePlace) {
  expect_property("each row once", [] {
    const DispatchPlan full(any_options());
    const DispatchPlan plan =
        full.with_global_batch(*rc::gen::inRange<std::int64_t>(1, full.physical_batch() + 1));
    check_places(full);
    check_places(plan);
  });
  expect_property("shards are balanced", [] {
    const DispatchPlan plan(any_options());
    const std::int64_t g = plan.global_batch(), nb = plan.batch_shards();
    std::int64_t sum = 0, most = 0;
    for (std::int64_t b = 0; b < nb; ++b) {
      const std::int64_t n = plan.rows_of(b);
      RC_ASSERT(n == g / nb || n == (g + nb - 1) / nb);
      sum += n;
      most = std::max(most, n);
    }
    RC_ASSERT(sum == g);
    RC_ASSERT(most == (g + nb - 1) / nb);
  });
}

// Property 2: neighbouring shards together hold what the rule for fewer shards gives them.
TEST(DispatchPlan, GroupsOfShardsFollowTheSameRule) {
  expect_property("hierarchy", [] {
    const auto groups = *rc::gen::inRange<std::int64_t>(1, 20),
               k = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto g = *rc::gen::inRange<std::int64_t>(1, 500);
    const DispatchPlan fine({.global_batch = g, .batch_shards = groups * k});
    const DispatchPlan coarse({.global_batch = g, .batch_shards = groups});
    for (std::int64_t row = 0; row < g; ++row) RC_ASSERT(fine.shard(row) / k == coarse.shard(row));
    for (std::int64_t b = 0; b <= groups; ++b)
      RC_ASSERT(fine.first_row(b * k) == coarse.first_row(b));
  });
}

// Property 3.
TEST(DispatchPlan, MicroStepsAreAsManyAsNeeded) {
  expect_property("micro steps", [] {
    const DispatchOptions options = any_options();
    const DispatchPlan plan(options);
    const std::int64_t fullest =
        (plan.global_batch() + plan.batch_shards() - 1) / plan.batch_shards();
    RC_ASSERT(plan.steps() <= options.accumulate.value_or(plan.steps()));
    RC_ASSERT((plan.steps() - 1) * plan.micro_batch() < fullest);
    RC_ASSERT(fullest <= plan.steps() * plan.micro_batch());
    RC_ASSERT(plan.micro_batch() % options.microbatches == 0);
    // No micro step is all pads: slots are filled in order, so its first slot in the fullest shard
    // is real.
    for (std::int64_t j = 0; j < plan.steps(); ++j) {
      bool real = false;
      for (std::int64_t b = 0; b < plan.batch_shards(); ++b)
        real = real || plan.row({j, b, 0}) >= 0;
      RC_ASSERT(real);
    }
  });
}

TEST(DispatchPlan, ColumnsCoverEachSequenceOnce) {
  expect_property("columns", [] {
    const auto t = *rc::gen::inRange<std::int64_t>(1, 300),
               ns = *rc::gen::inRange<std::int64_t>(1, 17);
    const auto multiple = *rc::gen::inRange<std::int64_t>(1, 30);
    const DispatchPlan plan({.seq_len = t, .sequence_shards = ns, .column_multiple = multiple});
    const std::int64_t padded = plan.padded_seq_len();
    RC_ASSERT(padded >= t && padded % ns == 0 && padded % multiple == 0);
    RC_ASSERT(padded - t < ns * multiple);
    std::vector<int> seen(static_cast<std::size_t>(padded));
    for (std::int64_t sigma = 0; sigma < ns; ++sigma) {
      std::int64_t held = 0;
      for (const ColumnRange& range : plan.columns(sigma)) {
        held += range.end - range.begin;
        for (std::int64_t c = range.begin; c < range.end; ++c) ++seen[static_cast<std::size_t>(c)];
      }
      RC_ASSERT(held == padded / ns);
    }
    RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  });
}

std::vector<std::int64_t> rows_of_shard(const DispatchPlan& plan, std::int64_t micro,
                                        std::int64_t shard) {
  std::vector<std::int64_t> rows;
  for (std::int64_t s = 0; s < plan.micro_batch(); ++s) {
    if (const std::int64_t row = plan.row({micro, shard, s}); row >= 0) rows.push_back(row);
  }
  return rows;
}

std::vector<std::int64_t> counts(const DispatchPlan& plan) {
  std::vector<std::int64_t> n;
  for (std::int64_t b = 0; b < plan.batch_shards(); ++b) n.push_back(plan.rows_of(b));
  return n;
}

using Rows = std::vector<std::int64_t>;

TEST(DispatchPlan, WorkedCasesInDetail) {
  const DispatchPlan c35({.global_batch = 30, .batch_shards = 4, .accumulate = 4});
  EXPECT_EQ(rows_of_shard(c35, 0, 0), (Rows{0, 1}));
  EXPECT_EQ(rows_of_shard(c35, 0, 1), (Rows{8, 9}));
  EXPECT_EQ(rows_of_shard(c35, 1, 2), (Rows{17, 18}));
  EXPECT_EQ(rows_of_shard(c35, 2, 3), (Rows{27, 28}));
  EXPECT_EQ(rows_of_shard(c35, 3, 0), (Rows{6, 7}));
  EXPECT_EQ(rows_of_shard(c35, 3, 1), (Rows{14}));
  EXPECT_EQ(rows_of_shard(c35, 3, 3), (Rows{29}));

  EXPECT_EQ(counts(DispatchPlan({.global_batch = 5, .batch_shards = 8})),
            (Rows{1, 1, 0, 1, 1, 0, 1, 0}));  // C30
  EXPECT_EQ(counts(DispatchPlan({.global_batch = 6, .batch_shards = 4})),
            (Rows{2, 1, 2, 1}));  // C37

  const DispatchPlan c13({.global_batch = 16, .batch_shards = 256});
  EXPECT_EQ(c13.shard(1), 16);
  EXPECT_EQ(c13.first_row(0), 0);

  // The evaluation tail keeps the arrays of the full batch.
  const DispatchPlan c38 =
      DispatchPlan({.global_batch = 64, .batch_shards = 16}).with_global_batch(40);
  EXPECT_EQ(c38.pads(), 24);
  EXPECT_EQ(c38.micro_batch(), 4);
  EXPECT_EQ(c38.rows_of(0), 3);
  EXPECT_EQ(c38.rows_of(1), 2);
  EXPECT_EQ(rows_of_shard(c38, 0, 1), (Rows{3, 4}));

  // C26: a row of 8190 over four sequence shards; the last has 2046 real columns.
  const DispatchPlan c26(
      {.global_batch = 16, .seq_len = 8190, .batch_shards = 16, .sequence_shards = 4});
  EXPECT_EQ(c26.padded_seq_len(), 8192);
  EXPECT_EQ(c26.columns(3), (std::vector<ColumnRange>{{6144, 8192}}));
}

TEST(DispatchPlan, MicroBatchAboveTheFullestShardIsKept) {
  const DispatchPlan plan({.global_batch = 3, .batch_shards = 2, .micro_batch = 8});
  EXPECT_EQ(plan.micro_batch(), 8);
  EXPECT_EQ(plan.steps(), 1);
  EXPECT_EQ(plan.pads(), 13);
}

template <typename Function>
std::string usage_error(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(DispatchPlan, AdviceIsTheMostShardsWithFewPads) {
  EXPECT_EQ(advised_batch_shards(16, 256), 16);
  EXPECT_EQ(advised_batch_shards(17, 256), 2);
  EXPECT_EQ(advised_batch_shards(100, 256), 8);
  EXPECT_EQ(advised_batch_shards(24, 256), 8);
  EXPECT_EQ(advised_batch_shards(128, 256), 128);
  EXPECT_EQ(advised_batch_shards(300, 256), 64);
  EXPECT_EQ(advised_batch_shards(1, 256), 1);
  EXPECT_EQ(advised_batch_shards(5, 6), 1);
  EXPECT_EQ(advised_batch_shards(18, 18), 18);
  EXPECT_EQ(advised_batch_shards(7, 1), 1);
}

TEST(DispatchPlan, WarningsAndAdvice) {
  using Lines = std::vector<std::string>;
  const DispatchPlan c13({.global_batch = 16, .seq_len = 8192, .batch_shards = 256});
  EXPECT_EQ(c13.warnings(), (Lines{"240 of 256 physical rows (93.8 %) are pads"}));
  EXPECT_EQ(c13.advice(),
            "move a factor of 16 from the batch axes to sequence: 16 batch shards x 16 sequence "
            "shards of 512 columns, 0.0 % pads (training over sequence is not built yet)");
  const DispatchPlan c18({.seq_len = 32768, .batch_shards = 256});
  EXPECT_EQ(c18.advice(),
            "move a factor of 256 from the batch axes to sequence: 1 batch shard x 256 sequence "
            "shards of 128 columns, 0.0 % pads (training over sequence is not built yet)");
  const DispatchPlan narrow({.global_batch = 16, .seq_len = 8, .batch_shards = 256});
  EXPECT_EQ(narrow.advice(),
            "a global batch of 256 fills all batch shards; or give the mesh at most 16 of them");

  // C24: pads that the pipeline makes.
  const DispatchPlan c24({.global_batch = 16, .batch_shards = 16, .microbatches = 4});
  EXPECT_EQ(c24.warnings(), (Lines{"48 of 64 physical rows (75.0 %) are pads"}));
  EXPECT_EQ(c24.advice(),
            "the fullest shard has 1 row, and 1 micro step of 4 make 4 of them; a micro_batch that "
            "divides 1, and microbatches that divide that, would not");
  const DispatchPlan wide({.global_batch = 6, .batch_shards = 2, .micro_batch = 8});
  EXPECT_EQ(
      wide.advice(),
      "the fullest shard has 3 rows, and 1 micro step of 8 make 8 of them; a micro_batch that "
      "divides 3 would not");
  const DispatchPlan halves({.global_batch = 5, .batch_shards = 2, .accumulate = 2});
  EXPECT_EQ(
      halves.advice(),
      "the fullest shard has 3 rows, and 2 micro steps of 2 make 4 of them; a micro_batch that "
      "divides 3 would not");

  // C07
  const DispatchPlan c07(
      {.global_batch = 17, .seq_len = 8192, .batch_shards = 16, .accumulate = 4});
  EXPECT_EQ(c07.warnings(),
            (Lines{"15 of 32 physical rows (46.9 %) are pads",
                   "accumulate = 4, but the fullest shard has 2 rows, so 2 micro steps run"}));

  // A quarter is not many; what is chosen already needs no advice.
  const DispatchPlan c20({.global_batch = 96, .batch_shards = 64});
  EXPECT_EQ(c20.pad_share(), 0.25);
  EXPECT_EQ(c20.warnings(), Lines());
  EXPECT_EQ(c20.advice(), std::nullopt);
  const DispatchPlan tail =
      DispatchPlan({.global_batch = 64, .batch_shards = 16}).with_global_batch(1);
  EXPECT_EQ(tail.warnings(), Lines());
  EXPECT_EQ(tail.advice(), std::nullopt);
  EXPECT_EQ(tail.empty_shards(), 15);
}

TEST(DispatchPlan, RefusesNonsense) {
  const auto message = [](DispatchOptions o) { return usage_error([&] { DispatchPlan plan(o); }); };
  EXPECT_EQ(message({.global_batch = 0}), "batch plan: global_batch = 0, must be at least 1");
  EXPECT_EQ(message({.seq_len = -1}), "batch plan: seq_len = -1, must be at least 1");
  EXPECT_EQ(message({.batch_shards = 0}), "batch plan: batch shards = 0, must be at least 1");
  EXPECT_EQ(message({.accumulate = 0}), "batch plan: accumulate = 0, must be at least 1");
  EXPECT_EQ(message({.micro_batch = -3}), "batch plan: micro_batch = -3, must be at least 1");
  EXPECT_EQ(message({.microbatches = 0}), "batch plan: microbatches = 0, must be at least 1");
  EXPECT_EQ(message({.accumulate = 2, .micro_batch = 4}),
            "batch plan: accumulate = 2 and micro_batch = 4 are both given");
  EXPECT_EQ(usage_error(
                [] { DispatchPlan({.global_batch = 3, .batch_shards = 2}).with_global_batch(5); }),
            "batch plan: 5 rows do not fit into 4 slots");
}

TEST(DispatchPlan, OverflowIsRefusedAndHugeIsNot) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto message = [](DispatchOptions o) { return usage_error([&] { DispatchPlan plan(o); }); };
  EXPECT_NE(message({.global_batch = kMost, .batch_shards = 2}), "no error");
  EXPECT_NE(message({.global_batch = kMost / 2, .batch_shards = 1024}), "no error");
  EXPECT_NE(message({.micro_batch = kMost, .microbatches = 2}), "no error");
  EXPECT_NE(message({.global_batch = 4, .seq_len = kMost / 2}), "no error");
  EXPECT_NE(message({.seq_len = 3, .sequence_shards = kMost, .column_multiple = kMost - 1}),
            "no error");

  const DispatchPlan plan({.global_batch = std::int64_t{3} << 32, .batch_shards = 65536});
  EXPECT_EQ(plan.rows_per_shard(), std::int64_t{3} << 16);
  const std::int64_t last = plan.global_batch() - 1;
  EXPECT_EQ(plan.shard(last), 65535);
  EXPECT_EQ(plan.row(plan.place(last)), last);
}

}  // namespace
}  // namespace dew
