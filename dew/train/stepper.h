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
#include "dew/checkpoint/box.h"
#include "dew/checkpoint/reader.h"
#include "dew/checkpoint/writer.h"
#include "dew/data/loader.h"
#include "dew/runtime/backend.h"
#include "dew/train/placement.h"
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

struct StepperOptions {
  Arrangement arrangement = {};  // one device
  Dump dump = {};
  bool check_replicas = false;  // see Placed
  bool probe = false;           // gradient() and logits() will be asked for
  // Is told, a line each, of activations that stay whole for not dividing, and see CompileOptions.
  std::function<void(const std::string& line)> remark = {};
};

class Stepper {
 public:
  // For training. `backend` must outlive the stepper. Throws ErrorCode::layout_refused for what
  // cannot be placed. REQUIRES: the arrangement's batch shards divide shape.rows.
  Stepper(const LMObjective& objective, const Optimizer& optimizer, const StepShape& shape,
          DType compute, Backend& backend, const StepperOptions& options = {});
  // For evaluation alone: parameters are the only state.
  Stepper(const LMObjective& objective, const StepShape& shape, DType compute, Backend& backend,
          const StepperOptions& options = {});

  // The run's key: of first values and of masks.
  void set_key(RandomKey key) { key_ = key; }

  // First state of a run: parameters and averages by init_part, moments zero. Made in place, in
  // parts side by side.
  void initialize();
  // The same around parameters that are there already.
  void start_from_parameters();

  StepResult step(const StepBatch& batch, const StepScalars& scalars);

  // A step without its update: loss and accuracy as in step(), no norm. gradients() are the step's.
  // REQUIRES: StepperOptions::probe, one micro step.
  StepResult gradient(const StepBatch& batch, std::int64_t step = 0);

  // The logits of the batch, f32[rows, columns, vocab]. REQUIRES: StepperOptions::probe, one micro
  // step.
  std::vector<std::byte> logits(const StepBatch& batch);

  // All batches of `pass`, sums divided once. `should_stop` is asked between batches; the result is
  // then none.
  std::optional<EvalResult> evaluate(ValidationPass& pass,
                                     const std::function<bool()>& should_stop = {});

  // Arrays of the state, a layer at a time, as a checkpoint names them.
  struct Part {
    Box box;
    std::span<std::byte> bytes;
    std::int64_t device = 0;            // the first one of this process that holds it
    std::int64_t copy = 0, copies = 1;  // see Shard
  };
  struct Array {
    std::string name;  // "params/layers_3/mlp/up_proj/kernel"
    Dims shape;        // without the stack's dimension
    AxisNames axes;
    Spec spec;
    Mesh mesh;
    std::vector<Part> parts;  // f32; those of all processes cover the array

    // Where it lives: "P('fsdp',)"; what the first devices hold; a drawing of which device holds
    // which block. See to_user_string() and sharding/describe.h.
    std::string sharding() const;
    std::string describe(std::int64_t devices = 3) const;
    std::string draw(bool color = false) const;

    // Of the whole array, row-major. Throw ErrorCode::usage if other processes hold parts that this
    // one does not.
    std::vector<float> values() const;
    std::vector<std::byte> whole() const;
    // Sets all parts from the whole array's bytes.
    void assign(std::span<const std::byte> bytes) const;
  };
  std::vector<Array> arrays();
  // Of the last step() or gradient(), and the parameters alone; names without prefix:
  // "layers_3/mlp/up_proj/kernel".
  std::vector<Array> gradients();
  std::vector<Array> parameters();

  // The same for a checkpoint: each part in one of the processes that hold it.
  std::vector<StateTensor> state();
  // Reads every array of the state. Missing ones, ones of another shape or type, and, into a
  // stepper for training, ones that its state has no place for are an error that names them all.
  void restore(const CheckpointReader& reader);
  // The parameters alone; the rest of the state stays as it is: zeros in a new stepper.
  void restore_parameters(const CheckpointReader& reader);

  const Executable& executable() const { return *executable_; }

  // The next steps are recorded; see Executable.
  void start_trace(int steps);
  Trace take_trace() { return executable_->take_trace(); }

 private:
  // Bytes of an array of the host and where one of their runs goes.
  struct Run {
    std::size_t from = 0;
    std::span<std::byte> to;
  };

  Stepper(const LMObjective& objective, const StepShape& shape, Module module,
          std::vector<StateArray> state, Backend& backend, const StepperOptions& options);

  void add_layers(std::vector<Array>& out, const std::string& reg, const std::string& prefix,
                  const ParamSpec& param) const;
  std::vector<Array> group(const char* prefix) const;
  void put_scalars(const StepBatch& batch, std::int64_t step);
  std::size_t index(std::string_view reg) const;
  std::span<std::byte> bytes(std::string_view reg) const;  // of one that is whole
  template <class T>
  void put(std::string_view reg, T value);
  double get(std::string_view reg) const;
  std::vector<Run> runs_of(std::string_view reg) const;
  template <class T>
  void upload(std::string_view reg, const std::vector<T>& values);
  void upload(const StepBatch& batch);

  LMObjective objective_;
  Optimizer optimizer_;
  StepShape shape_;
  bool trains_ = false;
  RandomKey key_;
  std::vector<StateArray> state_;
  Arrangement arrangement_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::vector<Shard>> registers_;                      // memory of each
  std::vector<std::pair<std::size_t, std::vector<Run>>> uploads_;  // by register
};

// The devices' step shape that a dispatch plan asks for.
StepShape step_shape(const DispatchPlan& plan);

}  // namespace dew
