// The trainer: runs steps until a target, and reports, evaluates and saves on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/writer.h"
#include "dew/sharding/mesh.h"
#include "dew/train/resume.h"
#include "dew/train/state.h"

namespace dew {

// What a run tells whoever watches it. All calls come from the training thread; of several
// processes the first one tells, but each asks whether it may resume.
struct LogLine {
  std::int64_t step = 0;
  double loss = 0, loss_mean = 0;        // of this step; mean over the steps since the last line
  double grad_norm = 0, lr = 0;          // before clipping; of this step
  std::int64_t tokens = 0, skipped = 0;  // totals of the run
  double tokens_per_s = 0, step_ms = 0;  // since the last line, without evaluation and checkpoints
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // The run will go on from this checkpoint, all of which has been verified; what is thrown here
  // refuses that. Nothing has been written yet.
  virtual void on_resume(const CheckpointInfo& /*from*/) {}
  // The state is there, and the first step to come is the one after `step`.
  virtual void on_begin(std::int64_t /*step*/) {}
  virtual void on_step(std::int64_t /*step*/, std::int64_t /*target*/, double /*loss*/) {}
  virtual void on_log(const LogLine& /*line*/) {}
  virtual void on_eval(std::int64_t /*step*/, const EvalResult& /*result*/) {}
  // A checkpoint of this step is due. What was told of it and of earlier ones must last before that
  // does: a resume does not tell it again.
  virtual void on_save(std::int64_t /*step*/) {}
  virtual void on_message(const std::string& /*line*/) {}  // a line of the run: start, goodput
  virtual void on_warning(const std::string& /*line*/) {}
};

struct TrainerOptions {
  std::uint64_t seed = 0;
  Backend* devices = nullptr;  // must outlive the trainer
  // How the devices are arranged, and the layout of the parameters on them.
  MeshSpec mesh = {};
  Layout layout = {};
  bool accumulate_full = false;  // see Placement
  // Slow, for finding faults: see Placed. Processes, too, must agree after every step, see
  // FitOptions::agree_every.
  bool check_replicas = false;
  DType compute = DType::f32;
  std::optional<std::int64_t> accumulate = {}, micro_batch = {};  // at most one
  Path checkpoints = {};  // directory for checkpoints; empty: none are read or written
  Retention retention = {};
  // Steps go on while a checkpoint is written, from a copy of the state that is made when the first
  // one is due and kept; otherwise they wait. The last state is written without a copy.
  bool snapshots = true;
  Resume resume = Resume::automatic;
  // Config, tokenizer and what else checkpoints carry; model and run id are filled in if empty.
  CheckpointInfo about = {};
  std::vector<CarriedFile> files = {};  // of the tokenizer, say: each checkpoint carries them
  std::string dump = {};                // directory for programs and plans, those of process 0
  // If given, gets the record of some steps of fit(), in every process: the second one and up to
  // nine after it, for the first one touches its memory for the first time.
  std::function<void(const Trace&)> profile = {};
  // Fills the parameters of a run that begins; empty: init_part does.
  std::function<void(Stepper&)> first_parameters = {};
  TrainObserver* observer = nullptr;
};

struct FitOptions {
  std::int64_t steps = 0;  // total, those of earlier runs included
  std::int64_t log_every = 10;
  std::int64_t eval_every = 0, checkpoint_every = 0;  // 0: at the end only
  // Processes that hold the same part of the state must have the same bits of it; 0: at the start.
  std::int64_t agree_every = 0;
  // The rate by committed updates so far; empty: the optimizer's.
  std::function<double(std::int64_t committed)> lr = {};
  // Asked after each step and in evaluations. All processes stop where any of them is told to.
  std::function<bool()> should_stop = {};
};

struct FitResult : TrainState {
  std::optional<EvalResult> eval;  // of the final state
  bool stopped = false;            // by should_stop, before the target
  double first_step_s = 0, step_share = 0;
  double save_s = 0;  // in which steps waited for checkpoints
};

class Trainer {
 public:
  // Opens nothing.
  Trainer(LMObjective objective, Optimizer optimizer, TrainerOptions options);
  ~Trainer();

  // Trains up to options.steps and saves the final state where checkpoints are given, that before
  // the first step if there is none to train; a later call goes on from there. Throws
  // ErrorCode::usage if the run is beyond the target already, ErrorCode::non_finite after five
  // skipped updates in a row, and what a checkpoint could not be written for, at the next step at
  // the latest; the last state is saved, or that is tried, before any error of training but a bug's
  // is thrown on. An evaluation that is made up for at the target is told, not saved.
  FitResult fit(const WindowData& data, const FitOptions& options);

  // Lays the state out on the devices without training: that of the newest checkpoint, each device
  // reading what it will hold, or a first one. fit() goes on from it. `data` must be what fit() is
  // given.
  TrainState place(const WindowData& data);

  // The state after fit() or place(), with what the optimizer keeps.
  std::vector<Stepper::Array> arrays() { return stepper_->arrays(); }
  const Stepper& stepper() const { return *stepper_; }

 private:
  class Run;

  // Where the run is; outlives a call of fit().
  struct Progress {
    Clocks clocks;
    std::int64_t position = 0;  // records taken
    std::int64_t saved_step = -1;
    // Of the checkpoint that the state was read from, until a step is made: is it evaluated?
    std::optional<bool> restored_evaluated;
    std::string run_id;
  };

  LMObjective objective_;
  Optimizer optimizer_;
  TrainerOptions options_;
  Arrangement arrangement_;
  std::unique_ptr<Stepper> stepper_;
  StepShape shape_;
  Progress progress_;
};

}  // namespace dew
