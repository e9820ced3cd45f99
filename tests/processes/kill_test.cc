// Runs that are killed at any moment, and signals. DEW_KILLS=500 kills more often, DEW_SEED=7 at
// the moments of an earlier test.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/processes/runs.h"

namespace dew {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool has_partial(const Path& run) {
  if (!std::filesystem::is_directory(checkpoints_of_run(run))) return false;
  for (const std::string& name : list_directory(checkpoints_of_run(run), ErrorCode::internal)) {
    if (name.ends_with(kPartialSuffix)) return true;
  }
  return false;
}

class Kill : public testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 24;

  void expect_as_uninterrupted(const Path& run) {
    EXPECT_EQ(digests_of(run), digests_);
    EXPECT_EQ(steps_with(run, "loss"), multiples(2, kSteps));
    EXPECT_EQ(steps_with(run, "eval_loss"), multiples(5, kSteps));
  }

  MemoryDirectory directory_;
  std::vector<std::pair<std::string, std::uint64_t>> digests_;
};

TEST_F(Kill, AtAnyMoment) {
  const std::uint64_t seed = from_environment("DEW_SEED", std::random_device()());
  const std::uint64_t kills = from_environment("DEW_KILLS", 30);
  std::printf("DEW_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto start = Clock::now();
  expect_done(dew(disturbed_run(directory_ / "whole", kSteps)));
  std::uniform_real_distribution<double> moment(0, seconds(start));
  digests_ = digests_of(directory_ / "whole");

  std::uint64_t killed = 0, in_writes = 0, runs = 0;
  while (killed < kills || runs == 0) {
    const Path run = directory_ / ("run" + std::to_string(runs));
    Running running(disturbed_run(run, kSteps));
    if (killed < kills) {
      std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
      running.signal(SIGKILL);
    }
    const Outcome outcome = running.finish();
    expect_only_whole_checkpoints(run);
    if (outcome.status == 128 + SIGKILL) {
      ++killed;
      in_writes += has_partial(run);
    } else {
      expect_done(outcome);
      expect_as_uninterrupted(run);
      ++runs;
    }
    if (HasFailure()) return;
  }
  std::printf("%llu kills, %llu of them within a write, in %llu runs\n",
              static_cast<unsigned long long>(killed), static_cast<unsigned long long>(in_writes),
              static_cast<unsigned long long>(runs));
}

TEST_F(Kill, TheSecondSignalStopsAtOnce) {
  // One step takes many seconds, and the first signal waits for its end.
  Running running(
      disturbed_run(directory_ / "run", 2, {"data.global_batch=64000", "data.accumulate=4000"}));
  ASSERT_TRUE(running.wait_for("Training from"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  running.signal(SIGINT);
  EXPECT_FALSE(running.ends_within(0.2));
  running.signal(SIGINT);
  EXPECT_TRUE(running.ends_within(2));
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.status, 128 + SIGINT);
  EXPECT_EQ(outcome.err.find("Stopped by"), std::string::npos) << outcome.err;
  expect_done(dew(disturbed_run(directory_ / "run", 2)));  // and left no lock
}

}  // namespace
}  // namespace dew
