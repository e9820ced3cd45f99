// One process of a job fails: all end within the time-out, one line says who and why, and older
// checkpoints are whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/processes/jobs.h"

namespace dew {
namespace {

using Clock = std::chrono::steady_clock;

class JobFailure : public testing::Test {
 protected:
  static constexpr int kProcessFailed = 7;

  // A long run with a checkpoint at step 5.
  Words endless(const Words& more = {}) {
    Words words =
        train_notebook(run(), {"run.steps=1000000", "run.log_every=1", "run.checkpoint_every=5",
                               "devices.spec=cpu:4", "mesh.fsdp=2", "layout.min_shard=1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Path run() const { return directory_ / "run"; }

  void expect_older_checkpoints_whole() {
    EXPECT_FALSE(list_checkpoints(checkpoints_of_run(run())).empty());
    expect_only_whole_checkpoints(run());
  }

  // Only rank 1 is started with these lines of shell before it.
  static std::string for_rank_1(const std::string& lines) {
    return "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then " + lines + "; fi; exec \"$@\"";
  }

  MemoryDirectory directory_;
};

TEST_F(JobFailure, Killed) {
  for (const int rank : {0, 1}) {
    Running running(endless(), {.processes = 2});
    ASSERT_TRUE(running.wait_for("step 8:"));
    const auto when = Clock::now();
    running.signal_rank(rank, SIGKILL);
    const Outcome outcome = running.finish();
    EXPECT_LT(Clock::now() - when, std::chrono::seconds(20));
    // The launcher ends the job, too: its status stands if it is the first.
    EXPECT_TRUE(outcome.status == kProcessFailed || outcome.status == 128 + SIGKILL)
        << outcome.status;
    const std::vector<std::string> lines = own_lines(outcome);
    ASSERT_LE(lines.size(), 1u) << outcome.err;
    if (!lines.empty()) {
      EXPECT_NE(lines[0].find("rank " + std::to_string(rank) + " ("), std::string::npos);
      EXPECT_NE(lines[0].find("is gone"), std::string::npos) << lines[0];
    }
    expect_older_checkpoints_whole();
  }
}

TEST_F(JobFailure, StoppedBeyondTheTimeOut) {
  Running running(endless({"comm.step_timeout=2"}), {.processes = 2});
  ASSERT_TRUE(running.wait_for("step 8:"));
  const auto when = Clock::now();
  running.signal_rank(1, SIGSTOP);
  const Outcome outcome = running.finish();
  EXPECT_LT(Clock::now() - when, std::chrono::seconds(30));
  expect_one_reason(outcome, kProcessFailed,
                    {"rank 1 (", "is stopped", "did not come to", "within 2 s"});
  expect_older_checkpoints_whole();
}

TEST_F(JobFailure, SlowIsNoFailure) {
  Running running(endless({"comm.step_timeout=20"}), {.processes = 2});
  ASSERT_TRUE(running.wait_for("step 8:"));
  running.signal_rank(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_FALSE(running.ends_within(0));
  running.signal_rank(1, SIGCONT);
  running.signal_rank(1, SIGTERM);
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  EXPECT_TRUE(own_lines(outcome).empty()) << outcome.err;
  expect_older_checkpoints_whole();
}

// Nobody is late if all were stopped, as a machine that sleeps does.
TEST_F(JobFailure, AllStoppedIsNoFailure) {
  Running running(endless({"comm.step_timeout=2"}), {.processes = 4});
  ASSERT_TRUE(running.wait_for("step 8:"));
  for (const int number : {SIGSTOP, SIGCONT}) {
    for (int rank = 0; rank < 4; ++rank) running.signal_rank(rank, number);
    if (number == SIGSTOP) std::this_thread::sleep_for(std::chrono::seconds(5));
  }
  EXPECT_FALSE(running.ends_within(3));
  running.signal_rank(1, SIGTERM);
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  EXPECT_TRUE(own_lines(outcome).empty()) << outcome.err;
}

TEST_F(JobFailure, AWaitIsAbandonedAfterASignal) {
  Running running(endless(), {.processes = 2});
  ASSERT_TRUE(running.wait_for("step 8:"));
  running.signal_rank(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto when = Clock::now();
  running.signal_rank(0, SIGTERM);
  const Outcome outcome = running.finish();
  EXPECT_LT(Clock::now() - when, std::chrono::seconds(20));
  expect_one_reason(outcome, kProcessFailed,
                    {"signal 15: rank 0 (", "gave up waiting in", "rank 1 (", "is stopped"});
  expect_older_checkpoints_whole();
}

// It sends what the others have waited for, just when they have given up and the arrays are gone.
TEST_F(JobFailure, OneThatComesAfterTheOthersGaveUp) {
  for (const int late : {20, 80, 200}) {
    Running running(endless({"model.emb_features=256", "model.num_layers=1", "data.global_batch=4",
                             "data.seq_len=8"}),
                    {.processes = 4});
    ASSERT_TRUE(running.wait_for("step 3:"));
    running.signal_rank(1, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const int rank : {0, 2, 3}) running.signal_rank(rank, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(2000 + late));
    running.signal_rank(1, SIGCONT);
    const Outcome outcome = running.finish();
    if (outcome.status == 128 + SIGTERM) continue;  // it came in time
    expect_one_reason(outcome, kProcessFailed, {"signal 15: rank ", "gave up waiting in"});
  }
}

// Rank 1 may write files of 64 KiB at most from step 5 on; so its part of a checkpoint fails.
TEST_F(JobFailure, AFullDiskOfOne) {
  for (const char* snapshots : {"run.snapshots=true", "run.snapshots=false"}) {
    const Words words = endless({snapshots});
    const Outcome outcome =
        dew(words, {.processes = 2, .wrapped = for_rank_1("trap '' XFSZ; ulimit -f 128")});
    expect_one_reason(outcome, kProcessFailed,
                      {"rank 1 (", "the checkpoint of step 5 is not written", "cannot write"});
    EXPECT_TRUE(list_checkpoints(checkpoints_of_run(run())).empty());
  }
}

// The rank that failed cannot say so: what reads its standard error has stopped. Another does.
TEST_F(JobFailure, AReasonThatCannotBeSaid) {
  const std::string pipe = (directory_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int read_end = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  const int write_end = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK);
  while (::write(write_end, "x", 1) == 1) continue;
  const Outcome outcome = dew(
      endless(),
      {.processes = 4, .wrapped = for_rank_1("exec \"$@\" data.path=/nowhere 2> '" + pipe + "'")});
  ::close(read_end);
  ::close(write_end);
  expect_one_reason(outcome, kProcessFailed, {"rank 1 (", "/nowhere"});
}

TEST_F(JobFailure, AnotherConfig) {
  expect_one_reason(
      dew(endless(), {.processes = 2, .wrapped = for_rank_1("exec \"$@\" optimizer.lr=2e-3")}),
      kProcessFailed, {"rank 1 (", "differs from rank 0", "optimizer.lr is 0.002, not 0.001"});
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(JobFailure, NoDataForOne) {
  expect_one_reason(
      dew(endless(), {.processes = 2, .wrapped = for_rank_1("exec \"$@\" data.path=/nowhere")}),
      kProcessFailed, {"rank 1 (", "/nowhere"});
}

// The same path leads to other data.
TEST_F(JobFailure, OtherData) {
  for (const char* host : {"a", "b"}) {
    std::filesystem::create_directory(directory_ / host);
    std::filesystem::copy("tests/data/notebook-tokens", directory_ / host / "data");
  }
  const std::string bytes = read_text(directory_ / "b" / "data" / "train.bin");
  std::ofstream(directory_ / "b" / "data" / "train.bin") << 'x' << bytes.substr(1);
  Words words = endless({"data.path=data"});
  words[1] = std::filesystem::absolute(words[1]).string();
  const Outcome outcome =
      dew(words, {.directory = directory_ / "a", .processes = 2, .wrapped = for_rank_1("cd ../b")});
  expect_one_reason(outcome, kProcessFailed,
                    {"rank 1 (", "differs from rank 0", "the digest of 'data' is"});
}

TEST_F(JobFailure, WhatAllMeetIsSaidOnce) {
  expect_one_reason(dew(endless({"optimizer.lrr=3"}), {.processes = 4}), 2,
                    {"unknown key 'optimizer.lrr'"});
  expect_one_reason(dew(endless({"data.path=/nowhere"}), {.processes = 4}), 4, {"/nowhere"});
  expect_one_reason(dew({"train", "--nonsense"}, {.processes = 4}), 2, {"--nonsense"});
  // Five steps with an infinite rate.
  expect_one_reason(dew(endless({"optimizer.lr=1e30", "optimizer.name=sgd"}), {.processes = 2}), 6,
                    {"updates in a row were not finite"});
}

TEST_F(JobFailure, AProcessThatNeverComes) {
  const auto when = Clock::now();
  const Outcome outcome =
      dew(endless({"comm.start_timeout=2"}), {.processes = 2, .wrapped = for_rank_1("sleep 60")});
  EXPECT_LT(Clock::now() - when, std::chrono::seconds(30));
  EXPECT_EQ(outcome.status, kProcessFailed) << outcome.err;
  const std::vector<std::string> lines = own_lines(outcome);
  ASSERT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_NE(lines[0].find("MPI_Init did not end within 2 s"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace dew
