// Runs of the notebook's model on meshes, through the trainer as a user has it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dew/dew.h"

namespace dew::sharding_test {

struct MeshCase {
  std::string name;
  MeshSpec mesh;
  std::int64_t devices = 1;
  std::int64_t heads = 4, kv_heads = 4;
  Layout layout = {.min_shard = 1};
};

inline std::string case_name(const testing::TestParamInfo<MeshCase>& info) {
  return info.param.name;
}

// On this many devices everything is split: 16 heads, 8 of keys and values.
inline const MeshCase kOne = {"One", {}, 1};
inline const MeshCase kOneOf16Heads = {"OneOf16Heads", {}, 1, 16, 8};

// Under sanitizers, which make runs ten times slower, only some.
inline std::vector<MeshCase> mesh_cases() {
  return {{"Data2Fsdp2Tensor2", {.fsdp = 2, .tensor = 2}, 8},
          {"Data3", {}, 3},
#ifndef DEW_SANITIZED
          {"Data8", {}, 8},
          {"Fsdp8", {.fsdp = 8}, 8},
          {"Tensor4", {.tensor = 4}, 4},
          {"Fsdp2Tensor4", {.fsdp = 2, .tensor = 4}, 8},
          {"Fsdp6", {.fsdp = 6}, 6, 4, 4, {.min_shard = 1, .tolerance = 1}},
          {"Fsdp3Tensor2", {.fsdp = 3, .tensor = 2}, 6},
#endif
          {"Fsdp16Tensor16", {.fsdp = 16, .tensor = 16}, 256, 16, 8}};
}

inline LMObjective notebook_objective(const MeshCase& c) {
  return LMObjective(models::causal_transformer({.vocab_size = 256,
                                                 .emb_features = 64,
                                                 .num_layers = 2,
                                                 .num_heads = c.heads,
                                                 .num_kv_heads = c.kv_heads,
                                                 .head_dim = 16,
                                                 .max_seq_len = 32}),
                     {.seq_len = 32});
}

inline WindowData notebook_data() {
  return TokenWindows{.path = "tests/data/notebook-tokens", .seq_len = 32, .val_batches = 2}.load(
      {.batch = 16});
}

// The gradient is often longer than what it is clipped to.
inline Optimizer clipped_adamw() {
  Optimizer optimizer = adamw(1e-3);
  optimizer.clip_norm = 1.5;
  return optimizer;
}

struct Recorder : TrainObserver {
  void on_log(const LogLine& line) override { lines.push_back(line); }
  void on_warning(const std::string& line) override { warnings.push_back(line); }
  std::vector<LogLine> lines;
  std::vector<std::string> warnings;
};

// A trainer on a mesh, and what it tells of every step.
class MeshRun {
 public:
  MeshRun(const MeshCase& c, const Path& checkpoints = {}, bool check_replicas = false)
      : devices_(cpu_devices(c.devices)),
        trainer_(notebook_objective(c), clipped_adamw(),
                 {.devices = devices_.get(),
                  .mesh = c.mesh,
                  .layout = c.layout,
                  .check_replicas = check_replicas,
                  .checkpoints = checkpoints,
                  .observer = &seen_}) {}

  FitResult fit(std::int64_t steps, FitOptions options = {}) {
    options.steps = steps;
    options.log_every = 1;
    return trainer_.fit(notebook_data(), options);
  }

  Trainer& trainer() { return trainer_; }
  const std::vector<LogLine>& lines() const { return seen_.lines; }
  const std::vector<std::string>& warnings() const { return seen_.warnings; }

  // Parameters and what the optimizer keeps, as whole arrays.
  std::map<std::string, std::vector<std::byte>> state() {
    std::map<std::string, std::vector<std::byte>> out;
    for (const Stepper::Array& a : trainer_.arrays()) out[a.name] = a.whole();
    return out;
  }

 private:
  Recorder seen_;
  std::unique_ptr<Backend> devices_;
  Trainer trainer_;
};

// What a run of so many steps on one device tells, made once.
struct Told {
  std::vector<LogLine> lines;
  EvalResult eval;
};

inline constexpr std::int64_t kNotebookSteps = 20;

inline const MeshCase& one_device(std::int64_t heads) {
  return heads == kOne.heads ? kOne : kOneOf16Heads;
}

inline const Told& on_one_device(std::int64_t heads) {
  static std::map<std::int64_t, Told> told;
  if (!told.contains(heads)) {
    MeshRun run(one_device(heads));
    const FitResult result = run.fit(kNotebookSteps);
    told[heads] = {run.lines(), result.eval.value_or(EvalResult{})};
  }
  return told[heads];
}

}  // namespace dew::sharding_test
