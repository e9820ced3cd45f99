// A process of a job is killed in each phase of a run: the job ends soon, one line at most says
// why, what was complete before stays so, and the run goes on from it to the state that it would
// have had. DEW_KILLS=100 kills more often at any moment, DEW_SEED=7 at the moments of an earlier
// test.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>

#include "tests/processes/jobs.h"

namespace dew {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class JobKill : public testing::Test {
 protected:
  static constexpr int kSteps = 12;

  // `more` takes the place of what is said here of the same keys.
  Words words(const Path& run, const Words& more = {}) const {
    Words overrides = more;
    for (const std::string& word :
         Words{"run.log_every=1", "run.checkpoint_every=4", "run.eval_every=6",
               "devices.spec=cpu:4", "mesh.fsdp=2", "layout.min_shard=1", "data.val_batches=2",
               "run.steps=" + std::to_string(kSteps)}) {
      const std::string key = word.substr(0, word.find('=') + 1);
      const auto said = [&](const std::string& other) { return other.starts_with(key); };
      if (std::ranges::none_of(more, said)) overrides.push_back(word);
    }
    return train_notebook(run, overrides);
  }

  void SetUp() override {
    const auto begin = Clock::now();
    expect_done(dew(words(directory_ / "whole"), {.processes = 2}));
    whole_seconds_ = seconds_since(begin);
    wanted_ = losses_of(directory_ / "whole");
    digests_ = digests_of(directory_ / "whole");
  }

  // What must hold behind a job that has ended so.
  void expect_ended(const Outcome& outcome, int rank, const Path& run) {
    EXPECT_TRUE(outcome.status == 7 || outcome.status == 128 + SIGKILL) << outcome.status;
    const std::vector<std::string> lines = own_lines(outcome);
    EXPECT_LE(lines.size(), 1u) << outcome.err;
    for (const std::string& line : lines) {
      EXPECT_NE(line.find("rank " + std::to_string(rank) + " ("), std::string::npos) << line;
      EXPECT_NE(line.find("is gone"), std::string::npos) << line;
    }
    expect_only_whole_checkpoints(run);
  }

  void expect_goes_on(const Path& run) {
    expect_done(dew(words(run), {.processes = 2}));
    EXPECT_EQ(digests_of(run), digests_);
    const auto losses = losses_of(run);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, wanted_.at(step), 1e-5 * loss);
  }

  void report(const std::string& phase, int rank, double seconds, const Outcome& outcome,
              const Path& run) {
    std::string steps;
    for (const CheckpointEntry& e : list_checkpoints(checkpoints_of_run(run)))
      steps += (steps.empty() ? "" : ", ") + std::to_string(e.step);
    const std::vector<std::string> lines = own_lines(outcome);
    std::printf("| %s | %d | %.1f s | %d | %s | %s |\n", phase.c_str(), rank, seconds,
                outcome.status, lines.empty() ? "-" : lines[0].c_str(),
                steps.empty() ? "no checkpoint" : ("checkpoints of steps " + steps).c_str());
  }

  struct Phase {
    const char* name;
    Words more;                                       // what makes it last
    std::function<bool(Running&, const Path&)> came;  // waits for it
  };

  void kill_in(const Phase& phase, int rank) {
    SCOPED_TRACE(std::string(phase.name) + ", rank " + std::to_string(rank));
    const Path run = directory_ / ("run" + std::to_string(runs_++));
    Running running(words(run, phase.more), {.processes = 2});
    ASSERT_TRUE(phase.came(running, run)) << running.finish().err;
    const auto when = Clock::now();
    running.signal_rank(rank, SIGKILL);
    const Outcome outcome = running.finish();
    const double seconds = seconds_since(when);
    EXPECT_LT(seconds, 20);
    report(phase.name, rank, seconds, outcome, run);
    expect_ended(outcome, rank, run);
    if (!HasFailure()) expect_goes_on(run);
  }

  MemoryDirectory directory_;
  double whole_seconds_ = 0;  // that an undisturbed run takes
  std::map<std::int64_t, double> wanted_;
  std::vector<std::pair<std::string, std::uint64_t>> digests_;
  int runs_ = 0;
};

bool wait_until(const std::function<bool()>& there) {
  for (const auto begin = Clock::now(); seconds_since(begin) < 60;) {
    if (there()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

bool has_partial(const Path& run) {
  const Path checkpoints = checkpoints_of_run(run);
  if (!std::filesystem::is_directory(checkpoints)) return false;
  for (const std::string& name : list_directory(checkpoints, ErrorCode::internal)) {
    if (name.ends_with(kPartialSuffix)) return true;
  }
  return false;
}

TEST_F(JobKill, InEachPhase) {
  const auto step = [](const char* text) {
    return [text](Running& running, const Path&) { return running.wait_for(text); };
  };
  const std::vector<Phase> phases = {
      {"the start",
       {},
       [](Running&, const Path& run) {
         return wait_until([&] { return std::filesystem::exists(run / "config.toml"); });
       }},
      {"the first step", {}, step("Training from")},
      {"a later step", {"run.steps=100000"}, step("step 9:")},
      {"an evaluation",
       {"data.val_batches=100000", "run.eval_every=1", "run.steps=100000"},
       [](Running& running, const Path&) {
         const bool came = running.wait_for("step 6:");
         std::this_thread::sleep_for(std::chrono::milliseconds(5));
         return came;
       }},
      {"the writing of a checkpoint",
       {"run.snapshots=false"},
       [](Running& running, const Path& run) {
         return running.wait_for("step 3:") && wait_until([&] { return has_partial(run); });
       }},
      {"the writing of a snapshot",
       {"run.snapshots=true", "run.steps=100000"},
       [](Running& running, const Path& run) {
         return running.wait_for("step 5:") && wait_until([&] { return has_partial(run); });
       }},
  };
  for (const Phase& phase : phases) {
    for (const int rank : {0, 1}) kill_in(phase, rank);
    if (HasFailure()) return;
  }
}

// Killed before it has joined the others.
TEST_F(JobKill, BeforeTheStart) {
  const Path run = directory_ / "run";
  const auto begin = Clock::now();
  const Outcome outcome =
      dew(words(run), {.processes = 2,
                       .wrapped = "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then kill -9 $$; fi; "
                                  "exec \"$@\""});
  EXPECT_LT(seconds_since(begin), 20);
  report("before MPI_Init", 1, seconds_since(begin), outcome, run);
  EXPECT_TRUE(outcome.status == 7 || outcome.status == 128 + SIGKILL) << outcome.status;
  EXPECT_FALSE(std::filesystem::exists(checkpoints_of_run(run)));
  expect_goes_on(run);
}

TEST_F(JobKill, AtAnyMoment) {
  const std::uint64_t seed = from_environment("DEW_SEED", std::random_device()());
  const std::uint64_t kills = from_environment("DEW_KILLS", 6);
  std::printf("DEW_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> moment(0, whole_seconds_);
  const Path run = directory_ / "run";
  std::uint64_t killed = 0;
  for (std::uint64_t turn = 0; killed < kills && turn < 10 * kills; ++turn) {
    const int rank = static_cast<int>(random() % 2);
    const std::string when = std::to_string(moment(random));
    const Outcome outcome =
        dew(words(run), {.processes = 2,
                         .wrapped = "if [ \"$OMPI_COMM_WORLD_RANK\" = " + std::to_string(rank) +
                                    " ]; then (sleep " + when + "; kill -9 $$) & fi; exec \"$@\""});
    if (outcome.status == 0) {  // it was done before
      remove_quietly(run);
      continue;
    }
    ++killed;
    expect_ended(outcome, rank, run);
    if (HasFailure()) return;
  }
  EXPECT_EQ(killed, kills);
  std::printf("%llu kills\n", static_cast<unsigned long long>(killed));
  expect_goes_on(run);
}

}  // namespace
}  // namespace dew
