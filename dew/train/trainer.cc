#include "dew/train/trainer.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/machine.h"
#include "dew/checkpoint/saver.h"
#include "dew/sharding/cluster.h"
#include "dew/sharding/process_grid.h"
#include "dew/train/config.h"
#include "dew/train/replicas.h"
#include "dew/train/step_memory.h"

namespace dew {
namespace {

constexpr std::int64_t kNonFiniteLimit = 5;
constexpr std::int64_t kProfiledSteps = 10;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool due(std::int64_t step, std::int64_t period) { return period > 0 && step % period == 0; }

// Tells runs apart.
std::string new_run_id() {
  std::random_device device;
  return format("{:08x}{:08x}", device(), device());
}

}  // namespace

// One call of fit().
class Trainer::Run {
 public:
  Run(Trainer& trainer, const WindowData& data, const FitOptions& options)
      : t_(trainer),
        o_(trainer.options_),
        data_(data),
        fit_(options),
        processes_(trainer.options_.devices->processes()),
        plan_({.global_batch = data.load.batch,
               .seq_len = data.options.seq_len,
               .batch_shards = t_.arrangement_.batch_shards(),
               .sequence_shards = 1,
               .accumulate = o_.accumulate,
               .micro_batch = o_.micro_batch,
               .microbatches = 1,
               .column_multiple = 1}),
        start_(Clock::now()),
        clocks_(trainer.progress_.clocks),
        position_(trainer.progress_.position),
        saver_(processes_, o_.checkpoints, o_.retention, o_.files) {}

  FitResult go() {
    check_sizes();
    find_state();
    if (clocks_.step > fit_.steps) {
      fail(ErrorCode::usage,
           format("the run is at step {} and its target is {} steps", clocks_.step, fit_.steps),
           "run.steps is the total of all runs in this directory; give a larger one");
    }
    const bool there = clocks_.step == fit_.steps;
    if (there && t_.stepper_ && !owes_evaluation_ && saved()) return result();
    if (!t_.stepper_) start_anew();
    expect_equal_replicas(processes_, t_.stepper_->arrays());
    if (TrainObserver* o = observer()) o->on_begin(clocks_.step);
    if (owes_evaluation_) evaluate();
    if (there) {
      if (o_.profile) message("There is no step left to profile");
      save();  // what no step has changed, unless it came from there
      return result();
    }
    announce();
    try {
      train();
    } catch (const Error& e) {
      if (leaves_a_state(e)) rescue();
      throw;
    } catch (...) {
      if (processes_.count() == 1) rescue();  // no memory for a snapshot, say
      throw;
    }
    return result();
  }

  TrainState place() {
    check_sizes();
    find_state();
    if (!t_.stepper_) start_anew();
    return state();
  }

 private:
  StepSizes sizes() const {
    return {.model = t_.objective_.model().config(),
            .compute = o_.compute,
            .shards = std::ssize(shards_of_process(t_.arrangement_, processes_)),
            .batch_copies = data_.load.prefetch + 2};  // and the one of the devices
  }
  void check_sizes() const { expect_room(plan_, sizes(), memory_bytes()); }

  // Null: nobody watches, or another process tells.
  TrainObserver* observer() const { return processes_.first() ? o_.observer : nullptr; }
  void message(const std::string& line) {
    if (TrainObserver* o = observer()) o->on_message(line);
  }
  void warning(const std::string& line) {
    if (TrainObserver* o = observer()) o->on_warning(line);
  }

  void announce() {
    message(format("Training from step {} to {} on {} ({} process(es))", clocks_.step, fit_.steps,
                   to_string(t_.arrangement_.mesh), processes_.count()));
    if (plan_.pads() > 0 || processes_.count() > 1) {
      const ProcessGrid grid = process_grid(t_.arrangement_.mesh, processes_.count());
      const ClusterPlan cluster(device_grid(t_.arrangement_.mesh, grid.process_of_device()),
                                {.global_batch = plan_.global_batch(),
                                 .seq_len = plan_.seq_len(),
                                 .accumulate = o_.accumulate,
                                 .micro_batch = o_.micro_batch});
      message("Batch: " + cluster.summary());
    }
    for (const std::string& line : plan_.warnings()) warning(line);
    if (const std::optional<std::string> advice = plan_.advice()) message("advice: " + *advice);
  }

  void train() {
    Loader loader(data_.train, plan_,
                  {.shuffle = data_.options.shuffle,
                   .seed = data_.options.seed,
                   .position = position_,
                   .prefetch = data_.load.prefetch,
                   .shards = shards_of_process(t_.arrangement_, processes_)});
    processes_.steps_begin();
    line_start_ = Clock::now();
    aside_s_ = aside_since_line_ = 0;  // what was made up for belongs to the start
    t_.progress_.restored_evaluated.reset();
    while (clocks_.step < fit_.steps && !stopped_) {
      begin_profile();
      one_step(loader);
      decide();
      end_profile();
      after_step();
    }
    finish();
  }

  // A run of one step has no second one to trace.
  void begin_profile() {
    const std::int64_t left = fit_.steps - clocks_.step;
    if (!o_.profile || profiled_ || (first_step_s_ == 0 && left > 1)) return;
    profiled_ = true;
    steps_to_trace_ = static_cast<int>(std::min<std::int64_t>(left, kProfiledSteps));
    t_.stepper_->start_trace(steps_to_trace_);
  }

  void end_profile() {
    if (steps_to_trace_ > 0 && (--steps_to_trace_ == 0 || stopped_)) give_profile();
  }

  void give_profile() {
    steps_to_trace_ = 0;
    o_.profile(t_.stepper_->take_trace());
  }

  // What all processes must do alike: stop if any is told to, and complete a checkpoint when all
  // have written their part.
  void decide() {
    constexpr std::int64_t kStop = 2, kWrites = 1;
    std::int64_t mine = fit_.should_stop && fit_.should_stop() ? kStop : 0;
    if (saver_.begun() && !saver_.written()) mine |= kWrites;
    const std::int64_t most = processes_.largest(mine, "the end of a step");
    stopped_ = most >= kStop && clocks_.step < fit_.steps;
    if (saver_.begun() && most == 0) complete_snapshot();
  }

  void agree() {
    const std::int64_t parts = expect_equal_replicas(processes_, t_.stepper_->arrays());
    if (parts == 0 || !due(clocks_.step, fit_.agree_every)) return;
    message(format("step {}: the {} processes agree on the {} parts of the state that several hold",
                   clocks_.step, processes_.count(), parts));
  }

  bool should_stop() {
    return processes_.largest(fit_.should_stop() ? 1 : 0, "a batch of an evaluation") > 0;
  }

  // A bug may have made the state wrong. Of several processes only what all of them meet together
  // leaves them able to save.
  bool leaves_a_state(const Error& e) const {
    if (e.code() == ErrorCode::internal) return false;
    return processes_.count() == 1 || e.code() == ErrorCode::non_finite;
  }

  // Keeps what was reached when something else than the state went wrong. What fails here must not
  // hide that.
  void rescue() {
    if (timed_steps_ > 0) attempt([&] { log(); });
    attempt([&] { complete_snapshot(); });
    attempt([&] { save(); });
  }

  template <class F>
  void attempt(F f) {
    try {
      f();
    } catch (const Error& e) {
      warn_if_possible(e.what());
    }
  }

  void warn_if_possible(const std::string& line) {
    try {
      warning(line);
    } catch (const Error&) {
      // The log cannot be written either, which the screen has been told.
    }
  }

  void make_stepper() {
    t_.shape_ = step_shape(plan_);
    const StepperOptions options{.arrangement = t_.arrangement_,
                                 .dump = dump_into(processes_.first() ? o_.dump : std::string()),
                                 .check_replicas = o_.check_replicas,
                                 .remark = [&](const std::string& line) { warning(line); }};
    try {
      t_.stepper_ = std::make_unique<Stepper>(t_.objective_, t_.optimizer_, t_.shape_, o_.compute,
                                              *o_.devices, options);
    } catch (const TooLarge& e) {
      refuse_step(plan_, sizes(), e);
    }
    t_.stepper_->set_key(key_from_seed(o_.seed));
  }

  // A stepper whose state could not be filled is none.
  template <class Fill>
  void make_stepper_with(Fill fill) {
    make_stepper();
    try {
      fill(*t_.stepper_);
    } catch (...) {
      t_.stepper_.reset();
      throw;
    }
  }

  void start_anew() {
    make_stepper_with([&](Stepper& stepper) {
      if (!o_.first_parameters) return stepper.initialize();
      o_.first_parameters(stepper);
      stepper.start_from_parameters();
    });
    t_.progress_.run_id = first_says(processes_, "the run's name", [&] {
      return o_.about.run.empty() ? new_run_id() : o_.about.run;
    });
  }

  // The state of an earlier call, or a complete checkpoint to go on from, or none yet.
  void find_state() {
    if (t_.stepper_) {
      check_same_shape();
    } else {
      find_checkpoint();
    }
    if (t_.progress_.restored_evaluated) go_on(*t_.progress_.restored_evaluated);
  }

  void find_checkpoint() {
    if (o_.checkpoints.empty() || o_.resume == Resume::never) return;
    const std::unique_ptr<CheckpointReader> reader = dew::find_checkpoint(
        processes_, o_.checkpoints, o_.resume, [&](const std::string& line) { warning(line); });
    if (reader != nullptr) restore(*reader);
  }

  void restore(const CheckpointReader& reader) {
    const CheckpointInfo& info = reader.info();
    if (o_.observer != nullptr) o_.observer->on_resume(info);
    expect_same_run(reader, o_.seed, t_.objective_.model().config(), data_);
    make_stepper_with([&](Stepper& stepper) { stepper.restore(reader); });
    clocks_ = info.clocks;
    position_ = info.data.position;
    t_.progress_.run_id = info.run;
    t_.progress_.saved_step = clocks_.step;
    t_.progress_.restored_evaluated = info.eval_loss.has_value();
  }

  void go_on(bool evaluated) {
    // A run that is stopped at a step does not evaluate it any more.
    const bool wanted = due(clocks_.step, fit_.eval_every) || clocks_.step == fit_.steps;
    owes_evaluation_ = wanted && !evaluated;
    steps_since_line_ = clocks_.line_steps;
    loss_sum_ = clocks_.line_loss.value_or(std::numeric_limits<double>::quiet_NaN());
    message(format("Resumed from step {} in {}", clocks_.step, o_.checkpoints.string()));
  }

  void check_same_shape() const {
    const StepShape now = step_shape(plan_), before = t_.shape_;
    if (now.micro_steps == before.micro_steps && now.rows == before.rows &&
        now.columns == before.columns) {
      return;
    }
    fail(
        ErrorCode::usage,
        format("this trainer's steps are [{}, {}, {}], the data's [{}, {}, {}]", before.micro_steps,
               before.rows, before.columns, now.micro_steps, now.rows, now.columns),
        "make another trainer for another batch; checkpoints carry the state over");
  }

  double lr() const { return fit_.lr ? fit_.lr(clocks_.updates) : t_.optimizer_.lr; }

  void one_step(Loader& loader) {
    const StepBatch& batch = loader.next();
    eval_.reset();
    line_.lr = lr();
    const StepResult r = t_.stepper_->step(
        batch, {.step = clocks_.step, .update = clocks_.updates + 1, .lr = line_.lr});
    if (first_step_s_ == 0) first_step_s_ = seconds_since(start_);
    position_ = loader.position();
    ++clocks_.step;
    clocks_.tokens += batch.real_tokens;
    line_.loss = r.loss;
    line_.grad_norm = r.grad_norm;
    loss_sum_ += r.loss;
    ++steps_since_line_;
    ++timed_steps_;
    tokens_since_line_ += batch.real_tokens;
    if (r.committed) {
      ++clocks_.updates;
      clocks_.ema_updates += t_.optimizer_.ema_decay > 0 ? 1 : 0;
      clocks_.non_finite_streak = 0;
    } else {
      skipped(batch, r);
    }
    if (TrainObserver* o = observer()) o->on_step(clocks_.step, fit_.steps, r.loss);
  }

  // The update kept every bit of the state; what is left is to say so, and to stop when it does not
  // get better.
  void skipped(const StepBatch& batch, const StepResult& r) {
    if (batch.weight_sum <= 0) {
      warning(format("step {}: no token of it has weight, so nothing was updated", clocks_.step));
      return;
    }
    ++clocks_.skipped;
    ++clocks_.non_finite_streak;
    const std::string what = format("step {}: update skipped, loss {}, gradient norm {}",
                                    clocks_.step, r.loss, r.grad_norm);
    warning(what);
    if (clocks_.non_finite_streak < kNonFiniteLimit) return;
    fail(ErrorCode::non_finite,
         format("{} updates in a row were not finite, the last at {}", kNonFiniteLimit, what),
         "a lower learning rate, a longer warm-up or optimizer.clip_norm may help");
  }

  void after_step() {
    const bool last = clocks_.step == fit_.steps || stopped_;
    if (o_.check_replicas || due(clocks_.step, fit_.agree_every)) aside([&] { agree(); });
    if (due(clocks_.step, fit_.log_every) || last) log();
    if (due(clocks_.step, fit_.eval_every) && !last) evaluate();
    if (due(clocks_.step, fit_.checkpoint_every) && !last) o_.snapshots ? begin_snapshot() : save();
  }

  void log() {
    const double wall = seconds_since(line_start_) - aside_since_line_;
    line_.step = clocks_.step;
    line_.loss_mean = loss_sum_ / static_cast<double>(steps_since_line_);
    line_.tokens = clocks_.tokens;
    line_.skipped = clocks_.skipped;
    line_.tokens_per_s = static_cast<double>(tokens_since_line_) / wall;
    line_.step_ms = wall * 1e3 / static_cast<double>(timed_steps_);
    if (TrainObserver* o = observer()) o->on_log(line_);
    line_start_ = Clock::now();
    aside_since_line_ = loss_sum_ = 0;
    steps_since_line_ = timed_steps_ = tokens_since_line_ = 0;
  }

  // Runs something that is no step, and keeps its time apart.
  template <class F>
  void aside(F f, double* of_which = nullptr) {
    const auto start = Clock::now();
    f();
    const double s = seconds_since(start);
    aside_s_ += s;
    aside_since_line_ += s;
    if (of_which != nullptr) *of_which += s;
  }

  void evaluate() {
    aside([&] {
      if (!validation_) {
        validation_.emplace(data_.val, plan_, data_.options.val_batches,
                            shards_of_process(t_.arrangement_, processes_));
      }
      std::function<bool()> stops;
      if (fit_.should_stop) stops = [&] { return should_stop(); };
      const auto result = t_.stepper_->evaluate(*validation_, stops);
      stopped_ = stopped_ || !result;
      if (!result) return;
      if (TrainObserver* o = observer()) o->on_eval(clocks_.step, *result);
      eval_ = result;  // it counts when it is told
      if (t_.progress_.restored_evaluated) t_.progress_.restored_evaluated = true;
    });
  }

  CheckpointInfo info() const {
    CheckpointInfo info = o_.about;
    info.run = t_.progress_.run_id;
    if (info.model.empty()) info.model = model_toml(t_.objective_.model().config());
    info.seed = o_.seed;
    info.clocks = clocks_;
    info.clocks.line_steps = steps_since_line_;
    info.clocks.line_loss = std::isfinite(loss_sum_) ? std::optional(loss_sum_) : std::nullopt;
    info.data = data_state(data_, position_);
    if (eval_ && std::isfinite(eval_->loss)) info.eval_loss = eval_->loss;
    return info;
  }

  bool saved() const { return o_.checkpoints.empty() || t_.progress_.saved_step == clocks_.step; }

  // Writes the state while the run waits, unless it is written already.
  void save() {
    if (o_.checkpoints.empty()) return;
    const auto write = [&] {
      complete_snapshot();
      if (saved()) return;
      if (TrainObserver* o = observer()) o->on_save(clocks_.step);
      saver_.save(info(), t_.stepper_->state());
      t_.progress_.saved_step = clocks_.step;
    };
    aside(write, &save_s_);
  }

  // Copies the state, which is then written while steps go on.
  void begin_snapshot() {
    if (o_.checkpoints.empty()) return;
    const auto begin = [&] {
      complete_snapshot();
      if (TrainObserver* o = observer()) o->on_save(clocks_.step);
      saver_.begin(info(), t_.stepper_->state());
    };
    aside(begin, &save_s_);
  }

  // Waits for what is being written, and throws what went wrong with it.
  void complete_snapshot() {
    const std::optional<std::int64_t> step = saver_.begun();
    if (!step) return;
    saver_.complete();
    t_.progress_.saved_step = *step;
  }

  void finish() {
    if (steps_to_trace_ > 0) give_profile();  // stopped in an evaluation
    if (!stopped_) evaluate();
    save();
    const double wall = seconds_since(start_);
    step_share_ = std::max(0.0, wall - first_step_s_ - aside_s_) / wall;
    message(format("Goodput: first step after {:.2f} s, {:.1f}% of the wall time in steps",
                   first_step_s_, 100 * step_share_));
  }

  TrainState state() const {
    return {clocks_, t_.stepper_ ? ArrayViews(t_.stepper_->parameters()) : ArrayViews()};
  }

  FitResult result() const {
    return {state(), eval_, stopped_, first_step_s_, step_share_, save_s_};
  }

  Trainer& t_;
  const TrainerOptions& o_;
  const WindowData& data_;
  const FitOptions& fit_;
  Processes& processes_;
  DispatchPlan plan_;
  Clock::time_point start_;
  Clock::time_point line_start_;
  std::optional<ValidationPass> validation_;
  Clocks& clocks_;
  std::int64_t& position_;
  std::int64_t steps_since_line_ = 0;  // those before a resume included
  std::int64_t timed_steps_ = 0, tokens_since_line_ = 0;
  double first_step_s_ = 0, aside_s_ = 0, aside_since_line_ = 0, loss_sum_ = 0, step_share_ = 0;
  double save_s_ = 0;
  LogLine line_;
  std::optional<EvalResult> eval_;
  Saver saver_;
  int steps_to_trace_ = 0;
  bool stopped_ = false, owes_evaluation_ = false, profiled_ = false;
};

Trainer::Trainer(LMObjective objective, Optimizer optimizer, TrainerOptions options)
    : objective_(std::move(objective)),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)) {
  validate(optimizer_);
  DEW_CHECK(options_.devices != nullptr, "a trainer needs devices");
  arrangement_ =
      arrange(options_.mesh, options_.devices->devices(), options_.layout, objective_.model());
  arrangement_.accumulate_full = options_.accumulate_full;
  process_grid(arrangement_.mesh, options_.devices->processes().count());  // or it throws
}

Trainer::~Trainer() = default;

FitResult Trainer::fit(const WindowData& data, const FitOptions& options) {
  return Run(*this, data, options).go();
}

TrainState Trainer::place(const WindowData& data) { return Run(*this, data, {}).place(); }

}  // namespace dew
