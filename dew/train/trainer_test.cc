#include "dew/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "dew/checkpoint/directory.h"
#include "dew/runtime/cpu/cpu.h"

namespace dew {
namespace {

class Recorder : public TrainObserver {
 public:
  void on_step(std::int64_t step, std::int64_t, double loss) override {
    steps.push_back(step);
    losses.push_back(loss);
  }
  void on_log(const LogLine& line) override { lines.push_back(line); }
  void on_eval(std::int64_t step, const EvalResult&) override { evals.push_back(step); }
  void on_message(const std::string& line) override { messages.push_back(line); }
  void on_warning(const std::string& line) override { warnings.push_back(line); }

  std::vector<std::int64_t> steps, evals;
  std::vector<double> losses;
  std::vector<LogLine> lines;
  std::vector<std::string> messages, warnings;
};

// A directory of its own for each test, empty at first.
class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = testing::TempDir() + "dew_trainer_" + info->name();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static LMObjective objective(const std::string& remat = "none") {
    return LMObjective(models::causal_transformer({.vocab_size = 256,
                                                   .emb_features = 16,
                                                   .num_layers = 1,
                                                   .num_heads = 2,
                                                   .max_seq_len = 8,
                                                   .remat = remat}),
                       {.seq_len = 8});
  }

  static WindowData data(std::int64_t batch = 3) {
    return TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 8, .val_batches = 2}.load(
        {.batch = batch});
  }

  TrainerOptions options(bool checkpoints) {
    TrainerOptions o;
    o.backend = backend_.get();
    o.observer = &seen_;
    if (checkpoints) o.checkpoints = directory_;
    return o;
  }

  static std::vector<std::byte> bytes_of(Trainer& trainer) {
    std::vector<std::byte> all;
    for (const Stepper::Array& a : trainer.arrays())
      for (const std::byte b : a.whole()) all.push_back(b);
    return all;
  }

  std::unique_ptr<Backend> backend_ = cpu_backend(1);
  Recorder seen_;
  std::string directory_;
};

TEST_F(TrainerTest, LinesEvaluationsAndCheckpointsComeWhenTheyAreDue) {
  Trainer trainer(objective(), adamw(1e-2), options(true));
  const FitResult r =
      trainer.fit(data(), {.steps = 7, .log_every = 3, .eval_every = 2, .checkpoint_every = 4});
  EXPECT_EQ(r.clocks.step, 7);
  EXPECT_EQ(r.clocks.updates, 7);
  EXPECT_EQ(r.clocks.tokens, 7 * 3 * 8);
  std::vector<std::int64_t> lines;
  for (const LogLine& l : seen_.lines) lines.push_back(l.step);
  EXPECT_EQ(lines, (std::vector<std::int64_t>{3, 6, 7}));
  EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{2, 4, 6, 7}));
  const auto mean = [&](std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += seen_.losses[i];
    return sum / static_cast<double>(last - first);
  };
  EXPECT_DOUBLE_EQ(seen_.lines[0].loss_mean, mean(0, 3));
  EXPECT_DOUBLE_EQ(seen_.lines[1].loss_mean, mean(3, 6));
  EXPECT_DOUBLE_EQ(seen_.lines[2].loss_mean, seen_.losses[6]);
  EXPECT_DOUBLE_EQ(seen_.lines[1].loss, seen_.losses[5]);
  std::vector<std::int64_t> saved;
  for (const CheckpointEntry& e : list_checkpoints(directory_)) saved.push_back(e.step);
  EXPECT_EQ(saved, (std::vector<std::int64_t>{4, 7}));
  ASSERT_TRUE(r.eval);
  EXPECT_EQ(CheckpointReader(newest_checkpoint(directory_).found->path).info().eval_loss,
            r.eval->loss);
}

// A checkpoint has the evaluation of its own state, or none.
TEST_F(TrainerTest, EvaluationsOfOtherStepsAreNotSaved) {
  Trainer trainer(objective(), adamw(1e-2), options(true));
  trainer.fit(data(), {.steps = 3, .eval_every = 1, .checkpoint_every = 2});
  trainer.fit(data(), {.steps = 6, .eval_every = 3, .checkpoint_every = 5});
  for (const CheckpointEntry& e : list_checkpoints(directory_)) {
    EXPECT_EQ(CheckpointReader(e.path).info().eval_loss.has_value(), e.step != 5) << e.step;
  }
}

TEST_F(TrainerTest, ASecondCallGoesOn) {
  Trainer once(objective(), adamw(1e-2), options(false));
  once.fit(data(), {.steps = 6});
  const std::vector<double> want = seen_.losses;
  seen_ = {};
  Trainer twice(objective(), adamw(1e-2), options(false));
  twice.fit(data(), {.steps = 4});
  twice.fit(data(), {.steps = 4});
  EXPECT_EQ(seen_.steps.size(), 4u);
  twice.fit(data(), {.steps = 6});
  EXPECT_EQ(seen_.losses, want);
  EXPECT_EQ(bytes_of(once), bytes_of(twice));
  EXPECT_THROW(twice.fit(data(), {.steps = 5}), Error);
  EXPECT_THROW(twice.fit(data(4), {.steps = 8}), Error);
}

TEST_F(TrainerTest, AResumeGoesOnAndItsLinesToo) {
  Trainer whole(objective(), adamw(1e-2), options(false));
  whole.fit(data(), {.steps = 10, .log_every = 5});
  const std::vector<LogLine> want = seen_.lines;
  Trainer first(objective(), adamw(1e-2), options(true));
  int steps = 0;
  const FitResult stopped =
      first.fit(data(), {.steps = 10, .log_every = 5, .should_stop = [&] { return ++steps == 3; }});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.clocks.step, 3);
  seen_ = {};
  // What the backward pass makes again may change.
  Trainer second(objective("full"), adamw(1e-2), options(true));
  second.fit(data(), {.steps = 10, .log_every = 5});
  ASSERT_EQ(seen_.lines.size(), 2u);
  EXPECT_DOUBLE_EQ(seen_.lines[1].loss_mean, want[1].loss_mean);
  EXPECT_EQ(seen_.lines[1].tokens, want[1].tokens);
  EXPECT_EQ(bytes_of(whole), bytes_of(second));
}

TEST_F(TrainerTest, AnotherRunIsNotResumed) {
  Trainer(objective(), adamw(1e-2), options(true)).fit(data(), {.steps = 2});
  TrainerOptions other = options(true);
  other.seed = 1;
  EXPECT_THROW(Trainer(objective(), adamw(1e-2), other).fit(data(), {.steps = 4}), Error);
  WindowData unshuffled =
      TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 8, .shuffle = false}.load(
          {.batch = 3});
  EXPECT_THROW(Trainer(objective(), adamw(1e-2), options(true)).fit(unshuffled, {.steps = 4}),
               Error);
}

// Five skipped updates stop the run; the last good state is on disk.
TEST_F(TrainerTest, NonFiniteUpdatesStopTheRunAndKeepItsState) {
  Trainer trainer(objective(), adamw(1e-2), options(true));
  const auto lr = [](std::int64_t committed) { return committed == 2 ? 1e30 : 1e-2; };
  try {
    trainer.fit(data(), {.steps = 20, .lr = lr});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::non_finite);
  }
  EXPECT_EQ(seen_.warnings.size(), 5u);
  ASSERT_TRUE(newest_checkpoint(directory_).found);
  const CheckpointReader saved(newest_checkpoint(directory_).found->path);
  EXPECT_EQ(saved.info().clocks.updates, 3);
  EXPECT_EQ(saved.info().clocks.step, 8);
  EXPECT_EQ(seen_.lines.back().step, 8);
}

TEST_F(TrainerTest, AnErrorInTheMiddleSavesFirst) {
  class Failing : public Recorder {
    void on_eval(std::int64_t, const EvalResult&) override {
      fail(ErrorCode::data, "the disk is full");
    }
  } failing;
  TrainerOptions o = options(true);
  o.observer = &failing;
  Trainer trainer(objective(), adamw(1e-2), o);
  EXPECT_THROW(trainer.fit(data(), {.steps = 4, .eval_every = 3}), Error);
  ASSERT_TRUE(newest_checkpoint(directory_).found);
  EXPECT_EQ(newest_checkpoint(directory_).found->step, 3);
}

TEST_F(TrainerTest, AccumulationEqualsTheJoinedBatch) {
  Trainer joined(objective(), adamw(1e-2), options(false));
  joined.fit(data(5), {.steps = 5});
  const std::vector<double> want = seen_.losses;
  for (const std::int64_t micro : {1, 2, 3}) {
    seen_ = {};
    TrainerOptions o = options(false);
    o.micro_batch = micro;
    Trainer split(objective(), adamw(1e-2), o);
    split.fit(data(5), {.steps = 5});
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(seen_.losses[i], want[i], 1e-5 * want[i]) << micro;
  }
}

}  // namespace
}  // namespace dew
