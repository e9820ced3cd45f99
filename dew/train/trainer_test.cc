#include "dew/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <new>
#include <thread>

#include "dew/base/file_test_support.h"
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
    o.devices = backend_.get();
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

// The state that a run begins with is a final one too.
TEST_F(TrainerTest, NoStepSavesTheFirstState) {
  Trainer none(objective(), adamw(1e-2), options(true));
  EXPECT_EQ(none.fit(data(), {.steps = 0}).clocks.step, 0);
  EXPECT_TRUE(seen_.steps.empty());
  ASSERT_EQ(list_checkpoints(directory_).size(), 1u);
  EXPECT_EQ(list_checkpoints(directory_)[0].step, 0);
  const std::vector<std::byte> first = bytes_of(none);
  Trainer again(objective(), adamw(1e-2), options(true));
  EXPECT_EQ(again.fit(data(), {.steps = 0}).clocks.step, 0);
  Trainer placed(objective(), adamw(1e-2), options(false));
  placed.place(data());
  EXPECT_EQ(bytes_of(placed), first);
  again.fit(data(), {.steps = 4});
  const std::vector<double> want = seen_.losses;
  seen_ = {};
  Trainer once(objective(), adamw(1e-2), options(false));
  once.fit(data(), {.steps = 4});
  EXPECT_EQ(seen_.losses, want);
}

TEST_F(TrainerTest, PlacesAFirstState) {
  Trainer once(objective(), adamw(1e-2), options(false));
  once.fit(data(), {.steps = 4});
  const std::vector<double> want = seen_.losses;
  seen_ = {};
  Trainer placed(objective(), adamw(1e-2), options(false));
  const TrainState state = placed.place(data());
  EXPECT_EQ(state.clocks.step, 0);
  const Stepper::Array& table = state.params.at("embed_tokens/embedding");
  EXPECT_EQ(table.shape, (Dims{256, 16}));
  EXPECT_EQ(table.sharding(), "P()");
  EXPECT_EQ(table.describe(),
            "spec: P()\n  cpu:0: rows slice(None, None, None), local shape (256, 16)\n");
  EXPECT_EQ(table.values().size(), 256u * 16);
  EXPECT_TRUE(seen_.messages.empty());
  const FitResult r = placed.fit(data(), {.steps = 4});
  EXPECT_EQ(seen_.losses, want);
  EXPECT_EQ(bytes_of(once), bytes_of(placed));
  // The views show what the trainer has made of them.
  EXPECT_EQ(table.values(), r.params.at("embed_tokens/embedding").values());
  const std::string message =
      error_of(ErrorCode::usage, [&] { state.params.at("embed_token/embeding"); });
  EXPECT_EQ(message, "there is no array 'embed_token/embeding'");
}

// A resume through place() does all that fit() alone does, once.
TEST_F(TrainerTest, PlacesTheNewestCheckpoint) {
  std::vector<LogLine> lines[2];
  for (const bool place : {false, true}) {
    std::filesystem::remove_all(directory_);
    seen_ = {};
    Trainer(objective(), adamw(1e-2), options(true))
        .fit(data(),
             {.steps = 8, .log_every = 5, .should_stop = [&] { return seen_.steps.size() == 4; }});
    const std::string resumed = "Resumed from step 4 in " + directory_;
    Trainer trainer(objective(), adamw(1e-2), options(true));
    for (int i = 0; place && i < 2; ++i) {
      seen_ = {};
      EXPECT_EQ(trainer.place(data()).clocks.step, 4);
      EXPECT_EQ(seen_.messages, std::vector<std::string>{resumed});
    }
    seen_ = {};
    trainer.fit(data(), {.steps = 8, .log_every = 5, .eval_every = 2});
    EXPECT_EQ(seen_.messages.front(), resumed);
    EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{4, 6, 8}));
    trainer.fit(data(), {.steps = 9});
    EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{4, 6, 8, 9}));
    EXPECT_EQ(std::count(seen_.messages.begin(), seen_.messages.end(), resumed), 1);
    lines[place] = seen_.lines;
  }
  ASSERT_EQ(lines[0].size(), 3u);
  ASSERT_EQ(lines[1].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[0][i].step, lines[1][i].step);
    EXPECT_EQ(lines[0][i].loss_mean, lines[1][i].loss_mean);
  }
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

// What was due at the step of the stop is made up for, once.
TEST_F(TrainerTest, AResumeMakesTheEvaluationThatWasDue) {
  const auto fit = [&](std::size_t stop_after) {
    Trainer(objective(), adamw(1e-2), options(true))
        .fit(data(), {.steps = 8, .eval_every = 2, .should_stop = [&] {
                        return seen_.steps.size() >= stop_after;
                      }});
  };
  fit(4);
  EXPECT_EQ(seen_.steps.size(), 4u);
  EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{2}));
  fit(8);  // makes up for that of step 4; the last step is there, its evaluation is not
  EXPECT_EQ(seen_.steps.size(), 8u);
  EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{2, 4, 6}));
  seen_.evals.clear();
  fit(100);
  EXPECT_EQ(seen_.steps.size(), 8u);
  EXPECT_EQ(seen_.evals, (std::vector<std::int64_t>{8}));
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

TEST_F(TrainerTest, SoDoesWhatIsNoError) {
  class OutOfMemory : public Recorder {
    void on_eval(std::int64_t, const EvalResult&) override { throw std::bad_alloc(); }
  } failing;
  TrainerOptions o = options(true);
  o.observer = &failing;
  Trainer trainer(objective(), adamw(1e-2), o);
  EXPECT_THROW(trainer.fit(data(), {.steps = 4, .eval_every = 3}), std::bad_alloc);
  ASSERT_TRUE(newest_checkpoint(directory_).found);
  EXPECT_EQ(newest_checkpoint(directory_).found->step, 3);
}

TEST_F(TrainerTest, ABugSavesNothing) {
  class Bug : public Recorder {
    void on_eval(std::int64_t, const EvalResult&) override { fail(ErrorCode::internal, "a bug"); }
  } failing;
  TrainerOptions o = options(true);
  o.observer = &failing;
  Trainer trainer(objective(), adamw(1e-2), o);
  EXPECT_THROW(trainer.fit(data(), {.steps = 4, .eval_every = 3}), Error);
  EXPECT_FALSE(newest_checkpoint(directory_).found);
}

// The next call begins again, and does not go on from parameters that nobody has filled.
TEST_F(TrainerTest, AFailedStartLeavesNothing) {
  Trainer(objective(), adamw(1e-2), options(false)).fit(data(), {.steps = 1, .log_every = 1});
  const double loss = seen_.lines.back().loss;
  int calls = 0;
  TrainerOptions o = options(false);
  o.first_parameters = [&](Stepper& stepper) {
    if (++calls == 1) fail(ErrorCode::checkpoint, "a model that cannot be read");
    stepper.initialize();
  };
  Trainer trainer(objective(), adamw(1e-2), o);
  EXPECT_THROW(trainer.fit(data(), {.steps = 1, .log_every = 1}), Error);
  trainer.fit(data(), {.steps = 1, .log_every = 1});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(seen_.lines.back().loss, loss);
}

// Its time is not that of the steps behind it.
TEST_F(TrainerTest, AnEvaluationThatWasDueTakesNoTimeOfSteps) {
  class Slow : public Recorder {
    void on_eval(std::int64_t step, const EvalResult&) override {
      if (step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  } slow;
  TrainerOptions o = options(true);
  o.observer = &slow;
  const auto stop = [&] { return slow.steps.size() >= 2; };
  Trainer(objective(), adamw(1e-2), o)
      .fit(data(), {.steps = 6, .eval_every = 2, .should_stop = stop});
  Trainer(objective(), adamw(1e-2), o).fit(data(), {.steps = 6, .log_every = 1, .eval_every = 2});
  for (const LogLine& line : slow.lines) EXPECT_GT(line.step_ms, 0) << line.step;
}

// ---- checkpoints that are written while steps go on ----

// Every file of the checkpoints is slow to write.
int slow_writes(FileCall call, const Path&) {
  if (call == FileCall::write) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return 0;
}

TEST_F(TrainerTest, ASnapshotHoldsTheStateOfItsStep) {
  std::vector<std::string> digests[2];
  for (const bool snapshots : {false, true}) {
    std::filesystem::remove_all(directory_);
    TrainerOptions o = options(true);
    o.retention = {.newest = 0};
    o.snapshots = snapshots;
    Trainer trainer(objective(), adamw(1e-2), o);
    set_file_fault(slow_writes);
    trainer.fit(data(), {.steps = 30, .checkpoint_every = 7});
    set_file_fault(nullptr);
    for (const CheckpointEntry& e : list_checkpoints(directory_, Verify::everything)) {
      EXPECT_EQ(e.problem, "");
      const CheckpointReader reader(e.path);
      digests[snapshots].push_back(std::to_string(e.step));
      for (const TensorRecord& t : reader.tensors()) {
        digests[snapshots].push_back(t.name + std::to_string(reader.digest(t)));
      }
    }
  }
  EXPECT_GT(digests[0].size(), 100u);
  EXPECT_EQ(digests[0], digests[1]);
}

int full_disk(FileCall call, const Path& path) {
  const bool of_step_4 = path.string().find("step_00000004") != std::string::npos;
  return call == FileCall::write && of_step_4 ? ENOSPC : 0;
}

// Not hours later: at the next step, or at whatever waits for the write.
TEST_F(TrainerTest, ASnapshotThatFailsStopsTheRun) {
  Trainer trainer(objective(), adamw(1e-2), options(true));
  set_file_fault(full_disk);
  const std::string message = error_of(ErrorCode::checkpoint, [&] {
    trainer.fit(data(), {.steps = 1000000, .checkpoint_every = 4});
  });
  set_file_fault(nullptr);
  EXPECT_NE(message.find("the checkpoint of step 4 is not written: cannot write"), message.npos)
      << message;
  EXPECT_NE(message.find("No space left on device"), message.npos) << message;
  EXPECT_LE(seen_.steps.back(), 8);
  // The state it had come to could be saved.
  if (seen_.steps.back() > 4) {
    EXPECT_EQ(newest_checkpoint(directory_, Verify::everything).found->step, seen_.steps.back());
  }
}

TEST_F(TrainerTest, KeepsTheBestAndMilestones) {
  TrainerOptions o = options(true);
  o.retention = {.newest = 1, .best = 1, .every = 5};
  Trainer(objective(), adamw(1e-2), o)
      .fit(data(), {.steps = 12, .eval_every = 3, .checkpoint_every = 1});
  std::vector<std::int64_t> saved;
  for (const CheckpointEntry& e : list_checkpoints(directory_)) saved.push_back(e.step);
  EXPECT_EQ(saved, (std::vector<std::int64_t>{5, 10, 12}));  // the loss falls: 12 is the best
}

// ---- what is wrong with checkpoints ----

void flip_a_bit(const Path& checkpoint) {
  const Path shard = checkpoint / CheckpointReader(checkpoint).manifest().shards[0].name;
  std::string text = read_text(shard);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_text(shard, text);
}

TEST_F(TrainerTest, DamageThatOnlyADigestShowsIsPassedOver) {
  Trainer whole(objective(), adamw(1e-2), options(false));
  whole.fit(data(), {.steps = 6});
  Trainer(objective(), adamw(1e-2), options(true)).fit(data(), {.steps = 4, .checkpoint_every = 2});
  flip_a_bit(Path(directory_) / "step_00000004");
  TrainerOptions must = options(true);
  must.resume = Resume::must;
  const std::string message = error_of(ErrorCode::checkpoint, [&] {
    Trainer(objective(), adamw(1e-2), must).fit(data(), {.steps = 6});
  });
  EXPECT_NE(message.find("the newest checkpoint is damaged: "), message.npos) << message;
  EXPECT_NE(message.find("tensor 'opt/"), message.npos) << message;
  seen_ = {};
  Trainer trainer(objective(), adamw(1e-2), options(true));
  trainer.fit(data(), {.steps = 6, .checkpoint_every = 2});
  ASSERT_EQ(seen_.warnings.size(), 1u);
  EXPECT_EQ(seen_.warnings[0].find("step 4 is passed over: "), 0u) << seen_.warnings[0];
  EXPECT_EQ(seen_.steps.front(), 3);
  EXPECT_EQ(bytes_of(trainer), bytes_of(whole));
  EXPECT_EQ(newest_checkpoint(directory_, Verify::everything).found->step, 6);
}

// Beginning anew beside the remains of a run would bury them.
TEST_F(TrainerTest, OnlyDamagedCheckpointsAreAnError) {
  Trainer(objective(), adamw(1e-2), options(true)).fit(data(), {.steps = 2});
  flip_a_bit(Path(directory_) / "step_00000002");
  const std::string message = error_of(ErrorCode::checkpoint, [&] {
    Trainer(objective(), adamw(1e-2), options(true)).fit(data(), {.steps = 4});
  });
  EXPECT_EQ(message.find("no complete checkpoint in"), 0u) << message;
  EXPECT_NE(message.find("digest differs"), message.npos) << message;
}

TEST_F(TrainerTest, AllMismatchesAreNamed) {
  Optimizer averaged = adamw(1e-2);
  averaged.ema_decay = 0.9;
  Trainer(objective(), averaged, options(true)).fit(data(), {.steps = 2});
  const auto resume = [&](const LMObjective& o, const Optimizer& optimizer, std::uint64_t seed,
                          const WindowData& windows) {
    TrainerOptions changed = options(true);
    changed.seed = seed;
    return error_of(ErrorCode::checkpoint,
                    [&] { Trainer(o, optimizer, changed).fit(windows, {.steps = 4}); });
  };
  const LMObjective wider(models::causal_transformer({.vocab_size = 256,
                                                      .emb_features = 18,
                                                      .num_layers = 1,
                                                      .num_heads = 3,
                                                      .max_seq_len = 8}),
                          {.seq_len = 8});
  const WindowData strided =
      TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 8, .stride = 5}.load(
          {.batch = 3});
  const std::string several = resume(wider, averaged, 9, strided);
  for (const char* text : {"run.seed was 0, is 9", "model.emb_features was 16, is 18",
                           "model.num_heads was 2, is 3", "data.stride was 8, is 5"}) {
    EXPECT_NE(several.find(text), several.npos) << text << " in " << several;
  }
  const std::string places = resume(objective(), adamw(1e-2), 0, data());
  EXPECT_NE(places.find("'ema/embed_tokens/embedding' has no place"), places.npos) << places;
  EXPECT_NE(places.find("; 'ema/"), places.npos) << places;
  const std::string missing = resume(objective(), lion(1e-2), 0, data());
  EXPECT_NE(missing.find("'opt/v/embed_tokens/embedding' has no place"), missing.npos) << missing;
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
