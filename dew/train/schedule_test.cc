#include "dew/train/schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "dew/base/error.h"

namespace dew {
namespace {

std::vector<double> rates(const ScheduleConfig& s, double peak, std::int64_t total,
                          std::int64_t n) {
  std::vector<double> found;
  for (std::int64_t committed = 0; committed < n; ++committed) {
    found.push_back(rate(s, peak, total, committed));
  }
  return found;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

TEST(Schedule, Constant) {
  EXPECT_EQ(rates({}, 0.3, 3, 5), (std::vector<double>{0.3, 0.3, 0.3, 0.3, 0.3}));
  EXPECT_EQ(rates({.warmup_steps = 4}, 1, 3, 6), (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 1}));
  EXPECT_EQ(rate({.warmup_steps = 1}, 1, 3, 0), 1);
}

TEST(Schedule, Linear) {
  expect_near(rates({.name = "linear"}, 1, 4, 6), {0.75, 0.5, 0.25, 0, 0, 0});
  expect_near(rates({.name = "linear", .warmup_steps = 2, .final_fraction = 0.2}, 10, 6, 8),
              {5, 10, 8, 6, 4, 2, 2, 2});
}

TEST(Schedule, CosineReachesTheFloorAtTheLastStep) {
  const ScheduleConfig s = {.name = "warmup_cosine", .final_fraction = 0.1};
  const std::vector<double> found = rates(s, 1, 20, 25);
  EXPECT_NEAR(found[9], 0.55, 1e-12);
  EXPECT_EQ(found[19], 0.1);
  for (std::size_t i = 1; i < 20; ++i) EXPECT_LT(found[i], found[i - 1]);
  for (std::size_t i = 20; i < 25; ++i) EXPECT_EQ(found[i], 0.1);
  // 0.1 + 0.9 * (1 + cos(pi/20)) / 2
  EXPECT_NEAR(found[0], 0.994459753267812, 1e-12);
}

TEST(Schedule, TheWarmUpEndsAtThePeak) {
  const ScheduleConfig s = {.name = "warmup_cosine", .warmup_steps = 8};
  const std::vector<double> found = rates(s, 0.3, 16, 16);
  EXPECT_EQ(found[7], 0.3);
  EXPECT_NEAR(found[0], 0.0375, 1e-12);
  EXPECT_NEAR(found[3], 0.15, 1e-12);
  EXPECT_NEAR(found[11], 0.15, 1e-12);
  EXPECT_EQ(found[15], 0);
}

TEST(Schedule, WarmupStableDecay) {
  expect_near(rates({.name = "warmup_stable_decay",
                     .warmup_steps = 2,
                     .final_fraction = 0.5,
                     .decay_fraction = 0.4},
                    1, 10, 12),
              {0.5, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.5, 0.5});
  // The decay never eats the warm-up; 0.1 of 5 updates is one.
  expect_near(
      rates({.name = "warmup_stable_decay", .warmup_steps = 3, .decay_fraction = 1}, 1, 5, 5),
      {1.0 / 3, 2.0 / 3, 1, 0.5, 0});
  expect_near(rates({.name = "warmup_stable_decay"}, 1, 5, 5), {1, 1, 1, 1, 0});
  expect_near(rates({.name = "warmup_stable_decay", .decay_fraction = 0}, 1, 3, 4), {1, 1, 1, 0});
}

TEST(Schedule, OneStepAndNone) {
  for (const char* name : {"linear", "warmup_cosine", "warmup_stable_decay"}) {
    const ScheduleConfig s = {.name = name, .final_fraction = 0.25};
    EXPECT_EQ(rate(s, 2, 1, 0), 0.5) << name;
    EXPECT_EQ(rate(s, 2, 1, 1), 0.5) << name;
    EXPECT_EQ(rate(s, 2, 0, 0), 0.5) << name;
  }
  EXPECT_EQ(rate({}, 2, 1, 0), 2);
}

TEST(Schedule, AWarmUpLongerThanTheRun) {
  const ScheduleConfig s = {.name = "warmup_cosine", .warmup_steps = 10};
  expect_near(rates(s, 1, 4, 5), {0.1, 0.2, 0.3, 0.4, 0.5});
  EXPECT_EQ(rate(s, 1, 10, 9), 1);  // ends with the run: the peak is reached
}

// Any resume point gives the same rates: nothing but the count enters.
TEST(Schedule, LargeCounts) {
  const ScheduleConfig s = {.name = "linear"};
  const std::int64_t total = std::int64_t{1} << 40;
  EXPECT_NEAR(rate(s, 1, total, total / 2 - 1), 0.5, 1e-12);
  EXPECT_EQ(rate(s, 1, total, INT64_MAX - 1), 0);
}

TEST(Schedule, Validation) {
  const auto refused = [](const ScheduleConfig& s) {
    try {
      validate(s);
    } catch (const Error& error) {
      return error.code() == ErrorCode::usage;
    }
    return false;
  };
  EXPECT_FALSE(refused({}));
  EXPECT_TRUE(refused({.name = "cosine"}));
  EXPECT_TRUE(refused({.warmup_steps = -1}));
  EXPECT_TRUE(refused({.final_fraction = 1.5}));
  EXPECT_TRUE(refused({.final_fraction = -0.1}));
  EXPECT_TRUE(refused({.final_fraction = 0.0 / 0.0}));
  EXPECT_TRUE(refused({.decay_fraction = 2}));
}

}  // namespace
}  // namespace dew
