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

// The columns G, nB, m, A', r, Gp, pads of batch-dispatch.md section 7.
struct Case {
  const char* id;
  std::int64_t g, nb, ns, accumulate, microbatches, m, steps, r, physical, pads;
};

constexpr Case kCases[] = {
    {"C01", 16, 16, 1, 1, 1, 1, 1, 1, 16, 0},
    {"C02", 128, 16, 1, 1, 1, 8, 1, 8, 128, 0},
    {"C03", 256, 16, 1, 1, 1, 16, 1, 16, 256, 0},
    {"C04", 8, 16, 1, 1, 1, 1, 1, 1, 16, 8},
    {"C05", 1, 16, 1, 1, 1, 1, 1, 1, 16, 15},
    {"C06", 17, 16, 1, 1, 1, 2, 1, 2, 32, 15},
    {"C07", 17, 16, 1, 4, 1, 1, 2, 2, 32, 15},
    {"C08", 100, 16, 1, 1, 1, 7, 1, 7, 112, 12},
    {"C09", 16, 16, 1, 1, 1, 1, 1, 1, 16, 0},
    {"C10", 128, 16, 1, 1, 1, 8, 1, 8, 128, 0},
    {"C13", 16, 256, 1, 1, 1, 1, 1, 1, 256, 240},
    {"C14", 128, 256, 1, 1, 1, 1, 1, 1, 256, 128},
    {"C15", 256, 256, 1, 1, 1, 1, 1, 1, 256, 0},
    {"C17", 300, 256, 1, 1, 1, 2, 1, 2, 512, 212},
    {"C18", 1, 256, 1, 1, 1, 1, 1, 1, 256, 255},
    {"C19", 4, 64, 1, 1, 1, 1, 1, 1, 64, 60},
    {"C20", 96, 64, 1, 1, 1, 2, 1, 2, 128, 32},
    {"C22", 48, 64, 1, 1, 1, 1, 1, 1, 64, 16},
    {"C23", 64, 16, 1, 1, 4, 4, 1, 4, 64, 0},
    {"C24", 16, 16, 1, 1, 4, 4, 1, 4, 64, 48},
    {"C25", 128, 16, 1, 2, 4, 4, 2, 8, 128, 0},
    {"C26", 16, 16, 4, 1, 1, 1, 1, 1, 16, 0},
    {"C27", 4, 4, 64, 1, 1, 1, 1, 1, 4, 0},
    {"C28", 1, 1, 256, 1, 1, 1, 1, 1, 1, 0},
    {"C29", 3, 1, 1, 1, 1, 3, 1, 3, 3, 0},
    {"C30", 5, 8, 1, 1, 1, 1, 1, 1, 8, 3},
    {"C32", 4, 4, 1, 1, 1, 1, 1, 1, 4, 0},
    {"C33", 8, 8, 1, 1, 1, 1, 1, 1, 8, 0},
    {"C34", 32, 4, 1, 4, 1, 2, 4, 8, 32, 0},
    {"C35", 30, 4, 1, 4, 1, 2, 4, 8, 32, 2},
    {"C37", 6, 4, 1, 1, 1, 2, 1, 2, 8, 2},
    {"C38 before the tail", 64, 16, 1, 1, 1, 4, 1, 4, 64, 0},
};

TEST(DispatchPlan, WorkedCases) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.id);
    const DispatchPlan plan({.global_batch = c.g,
                             .seq_len = 8192,
                             .batch_shards = c.nb,
                             .sequence_shards = c.ns,
                             .accumulate = c.accumulate,
                             .microbatches = c.microbatches});
    EXPECT_EQ(plan.micro_batch(), c.m);
    EXPECT_EQ(plan.steps(), c.steps);
    EXPECT_EQ(plan.rows_per_shard(), c.r);
    EXPECT_EQ(plan.physical_batch(), c.physical);
    EXPECT_EQ(plan.pads(), c.pads);
    EXPECT_EQ(plan.padded_seq_len(), 8192);
  }
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
