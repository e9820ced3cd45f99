// One run's state on its devices, and the two things done with it: a training step and an
// evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/rng.h"
#include "dew/checkpoint/reader.h"
#include "dew/checkpoint/writer.h"
#include "dew/data/loader.h"
#include "dew/runtime/backend.h"
#include "dew/train/step.h"

namespace dew {

// Numbers of a step that the host decides.
struct StepScalars {
  std::int64_t step = 0;    // number of the step, from 0
  std::int64_t update = 1;  // number that this update has if it is committed, from 1
  double lr = 0;
};

// Results of one step; losses and accuracy are means over its weighted tokens.
struct StepResult {
  double loss = 0;  // z-loss included
  double nll = 0, accuracy = 0;
  double grad_norm = 0;   // before clipping
  bool committed = true;  // false: parameters and optimizer state kept their bits
};

// Means over the weighted tokens of all validation windows.
struct EvalResult {
  double loss = 0, perplexity = 0, accuracy = 0;
  double tokens = 0;
};

class Stepper {
 public:
  // For training. `backend` must outlive the stepper.
  Stepper(const LMObjective& objective, const Optimizer& optimizer, const StepShape& shape,
          DType compute, Backend& backend, const std::string& dump = {});
  // For evaluation alone: parameters are the only state.
  Stepper(const LMObjective& objective, const StepShape& shape, DType compute, Backend& backend);

  // The run's key: of first values and of masks.
  void set_key(RandomKey key) { key_ = key; }

  // First state of a run: parameters and averages by init_part, moments zero. Made in place, in
  // parts side by side.
  void initialize();

  StepResult step(const StepBatch& batch, const StepScalars& scalars);

  // All batches of `pass`, sums divided once. `should_stop` is asked between batches; the result is
  // then none.
  std::optional<EvalResult> evaluate(ValidationPass& pass,
                                     const std::function<bool()>& should_stop = {});

  // Arrays of the state, a layer at a time, as a checkpoint names them.
  struct Array {
    std::string name;  // "params/layers_3/mlp/up_proj/kernel"
    Dims shape;        // without the stack's dimension
    AxisNames axes;
    std::span<std::byte> bytes;  // f32, on this device
  };
  std::vector<Array> arrays();

  // The same for a checkpoint.
  std::vector<WholeTensor> state();
  // Reads every array of the state. Missing ones, ones of another shape or type, and, into a
  // stepper for training, ones that its state has no place for are an error that names them all.
  void restore(const CheckpointReader& reader);

  const Executable& executable() const { return *executable_; }

 private:
  Stepper(const LMObjective& objective, const StepShape& shape, Module module,
          std::vector<StateArray> state, Backend& backend, const std::string& dump);

  std::span<std::byte> bytes(std::string_view reg) const;
  template <class T>
  void put(std::string_view reg, T value);
  double get(std::string_view reg) const;
  void upload(const StepBatch& batch);

  LMObjective objective_;
  Optimizer optimizer_;
  StepShape shape_;
  bool trains_ = false;
  RandomKey key_;
  std::vector<StateArray> state_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::span<std::byte>> registers_;  // memory of each
};

// The devices' step shape that a dispatch plan asks for.
StepShape step_shape(const DispatchPlan& plan);

}  // namespace dew
