#include "dew/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "dew/data/data_test_support.h"

namespace dew {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Windows of 3 ids, `records` of them.
Windows small_windows(const TemporaryDirectory& tmp, std::int64_t records) {
  return {counting_file(tmp / "x", records * 3 + 1), 3, 3};
}

DispatchPlan plan_of(std::int64_t rows, std::int64_t shards = 1) {
  return DispatchPlan({.global_batch = rows, .seq_len = 3, .batch_shards = shards});
}

// Records of the next `batches` batches, one after another.
std::vector<std::int64_t> records(Loader& loader, int batches) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < batches; ++i) {
    const StepBatch& batch = loader.next();
    all.insert(all.end(), batch.records.begin(), batch.records.end());
  }
  return all;
}

std::vector<std::int64_t> trace(const Windows& windows, std::int64_t rows,
                                const LoaderOptions& options, int batches) {
  Loader loader(windows, plan_of(rows), options);
  return records(loader, batches);
}

TEST(Loader, EveryEpochIsAnotherCompleteOrder) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 12);
  const auto three = trace(windows, 4, {.seed = 7}, 9);
  std::set<std::vector<std::int64_t>> orders;
  for (std::ptrdiff_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<std::int64_t> order(three.begin() + 12 * epoch,
                                          three.begin() + 12 * (epoch + 1));
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 12u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_EQ(trace(windows, 4, {.seed = 7}, 9), three);
  EXPECT_NE(trace(windows, 4, {.seed = 8}, 9), three);
}

TEST(Loader, TheBatchSizeDoesNotChangeTheSequence) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 10);
  const auto one_by_one = trace(windows, 1, {}, 90);
  for (const std::int64_t rows : {3, 5, 7, 18, 10, 30}) {
    const auto batches = static_cast<int>(90 / rows);
    const auto same = trace(windows, rows, {}, batches);
    EXPECT_TRUE(std::equal(same.begin(), same.end(), one_by_one.begin())) << rows;
    EXPECT_EQ(static_cast<std::int64_t>(same.size()), batches * rows);
  }
}

TEST(Loader, ResumesAnywhere) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 10);
  const auto straight = trace(windows, 3, {.seed = 1}, 20);
  for (int stop = 0; stop <= 20; ++stop) {
    Loader first(windows, plan_of(3), {.seed = 1});
    auto joined = records(first, stop);
    EXPECT_EQ(first.position(), 3 * stop);
    Loader second(windows, plan_of(3), {.seed = 1, .position = first.position()});
    const auto rest = records(second, 20 - stop);
    joined.insert(joined.end(), rest.begin(), rest.end());
    EXPECT_EQ(joined, straight) << stop;
    EXPECT_EQ(second.position(), 60);
  }
  // Over the whole of a resumed run every record comes equally often.
  std::map<std::int64_t, int> count;
  for (const std::int64_t record : straight) ++count[record];
  for (const auto& [record, times] : count) EXPECT_EQ(times, 6) << record;
}

TEST(Loader, PositionsFarAway) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 10);
  const std::int64_t far = (std::int64_t{1} << 40) * 10;  // the start of epoch 2^40
  const auto order = trace(windows, 5, {.position = far}, 2);
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 10u);
  const auto later = trace(windows, 5, {.position = far + 5}, 1);
  EXPECT_TRUE(std::equal(later.begin(), later.end(), order.begin() + 5));
  EXPECT_THAT(
      error_of(ErrorCode::data, [&] { trace(windows, 5, {.position = std::int64_t{1} << 62}, 1); }),
      HasSubstr("out of range"));
}

TEST(Loader, UnshuffledIsTheOrderOfTheFile) {
  const TemporaryDirectory tmp;
  EXPECT_THAT(trace(small_windows(tmp, 5), 3, {.shuffle = false, .position = 4}, 3),
              ElementsAre(4, 0, 1, 2, 3, 4, 0, 1, 2));
}

TEST(Loader, OneWindowIsEnough) {
  const TemporaryDirectory tmp;
  EXPECT_THAT(trace(small_windows(tmp, 1), 7, {}, 2), Each(0));
}

TEST(Loader, PrefetchingChangesNothing) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 18);
  const DispatchPlan plan({.global_batch = 5, .seq_len = 3, .batch_shards = 4, .accumulate = 2});
  for (const int depth : {1, 2, 5}) {
    Loader plain(windows, plan, {.prefetch = 0});
    Loader ahead(windows, plan, {.prefetch = depth});
    for (int i = 0; i < 50; ++i) {
      // The position is that of the batches given out, however far the thread is.
      if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(ahead.position(), 5 * i);
      const StepBatch& expected = plain.next();
      const StepBatch& batch = ahead.next();
      EXPECT_EQ(batch.records, expected.records);
      EXPECT_EQ(batch.ids, expected.ids);
      EXPECT_EQ(batch.labels, expected.labels);
      EXPECT_EQ(batch.weights, expected.weights);
      EXPECT_EQ(batch.segments, expected.segments);
      EXPECT_EQ(batch.row_ids, expected.row_ids);
    }
  }
}

TEST(Loader, ABatchIsValidUntilTheNextCall) {
  const TemporaryDirectory tmp;
  Loader loader(small_windows(tmp, 100), plan_of(4), {});
  for (int i = 0; i < 20; ++i) {
    const StepBatch& batch = loader.next();
    const StepBatch copy = batch;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(batch.ids, copy.ids);
    EXPECT_EQ(batch.records, copy.records);
  }
}

TEST(Loader, EndsCleanlyAtAnyMoment) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 100);
  for (int taken = 0; taken < 60; ++taken) {
    Loader loader(windows, plan_of(4), {});
    records(loader, taken % 6);
    Loader moved = std::move(loader);
    records(moved, 1);
  }
}

// Ids are checked on every read too: behind the opening check the file changes.
TEST(Loader, AnErrorComesInItsTurnAndStays) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 10);  // ids 0 .. 30 as uint32
  {
    std::fstream file(tmp / "x", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(4 * 20);
    file.write("\xff\xff\xff\xff", 4);
  }
  for (const int depth : {0, 1, 4}) {
    Loader loader(windows, plan_of(2), {.shuffle = false, .prefetch = depth});
    EXPECT_THAT(records(loader, 3), ElementsAre(0, 1, 2, 3, 4, 5));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of(ErrorCode::data, [&] { loader.next(); }),
                  HasSubstr("id 4294967295 at position 20 is outside the vocabulary"));
      EXPECT_EQ(loader.position(), 6);
    }
  }
}

TEST(Loader, NoAllocationPerStep) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 50);
  for (const int depth : {0, 2}) {
    Loader loader(windows, plan_of(6, 4), {.prefetch = depth});
    for (int i = 0; i < 5; ++i) loader.next();
    const std::int64_t before = allocations_so_far();
    for (int i = 0; i < 100; ++i) loader.next();
    EXPECT_EQ(allocations_so_far() - before, 0) << depth;
  }
}

TEST(Loader, RefusesNonsense) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 5);
  const auto error = [&](const LoaderOptions& options) {
    return error_of(ErrorCode::usage, [&] { Loader(windows, plan_of(1), options); });
  };
  EXPECT_EQ(error({.position = -1}), "data position -1 is negative");
  EXPECT_EQ(error({.prefetch = -1}), "prefetch = -1, must not be negative");
}

TEST(ValidationPass, SeesEveryWindowOnceInOneShape) {
  const TemporaryDirectory tmp;
  const std::int64_t g = 4;
  for (const std::int64_t rows : {1, 3, 4, 5, 18}) {
    const Windows windows = small_windows(tmp, rows);
    ValidationPass pass(windows, plan_of(g, 3));
    EXPECT_EQ(pass.rows(), rows);
    EXPECT_EQ(pass.batches(), (rows + g - 1) / g);
    for (int round = 0; round < 2; ++round) {
      std::vector<std::int64_t> seen;
      std::int64_t batches = 0, tokens = 0;
      while (const StepBatch* batch = pass.next()) {
        seen.insert(seen.end(), batch->records.begin(), batch->records.end());
        EXPECT_EQ(batch->ids.size(), 3u * 2 * 3);  // 3 shards of 2 rows of 3, also at the end
        tokens += batch->real_tokens;
        ++batches;
      }
      EXPECT_EQ(batches, pass.batches());
      EXPECT_EQ(tokens, rows * 3);
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < seen.size(); ++i)
        EXPECT_EQ(seen[i], static_cast<std::int64_t>(i));
      EXPECT_EQ(pass.next(), nullptr);
      pass.restart();
    }
  }
}

TEST(ValidationPass, CanBeLimited) {
  const TemporaryDirectory tmp;
  const Windows windows = small_windows(tmp, 10);
  EXPECT_EQ(ValidationPass(windows, plan_of(4), 2).rows(), 8);
  EXPECT_EQ(ValidationPass(windows, plan_of(4), 3).rows(), 10);
  EXPECT_EQ(ValidationPass(windows, plan_of(4), std::int64_t{1} << 62).rows(), 10);
  EXPECT_EQ(ValidationPass(windows, plan_of(100), 1).batches(), 1);
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { ValidationPass(windows, plan_of(4), -1); }),
              HasSubstr("negative"));
}

}  // namespace
}  // namespace dew
