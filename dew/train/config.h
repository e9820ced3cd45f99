// The config of a run: one plain struct that reads itself from TOML and the command line, checks
// itself, prints itself, and is stored in every checkpoint. docs/config.md lists all keys.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file.h"
#include "dew/nn/transformer.h"
#include "dew/sharding/layout.h"
#include "dew/sharding/mesh.h"
#include "dew/train/optimizer.h"
#include "dew/train/schedule.h"

namespace dew {

// ---- Members have the names of the keys of their section. ----

struct RunConfig {
  std::string dir;
  std::int64_t seed = 0, steps = 0;
  std::int64_t log_every = 10, eval_every = 0, checkpoint_every = 0, agree_every = 0;
  std::int64_t keep = 3, keep_best = 0, keep_every = 0;
  bool snapshots = true;
  std::string resume = "auto";  // auto, never, must
  std::string init_from;

  bool operator==(const RunConfig&) const = default;
};

struct DevicesConfig {
  std::string spec = "cpu";
  std::vector<std::int64_t> per_process;  // one number for all, or one each; empty: even

  bool operator==(const DevicesConfig&) const = default;
};

struct DataConfig {
  std::string path;
  std::int64_t seq_len = 0, stride = 0;  // 0: seq_len
  std::int64_t global_batch = 0, val_batches = 0;
  std::optional<std::int64_t> accumulate, micro_batch;  // at most one
  bool accumulate_full = false, shuffle = true;

  bool operator==(const DataConfig&) const = default;
};

struct ObjectiveConfig {
  double z_loss = 0;

  bool operator==(const ObjectiveConfig&) const = default;
};

struct PrecisionConfig {
  std::string compute = "f32";  // f32, bf16

  bool operator==(const PrecisionConfig&) const = default;
};

struct CommConfig {
  double step_timeout = 60, start_timeout = 300;  // seconds

  bool operator==(const CommConfig&) const = default;
};

struct TrainConfig {
  RunConfig run;
  DevicesConfig devices;
  MeshSpec mesh;
  Layout layout;
  std::string model_name = "causal_transformer";  // [model] name
  models::TransformerConfig model;                // [model], all other keys
  DataConfig data;
  ObjectiveConfig objective;
  Optimizer optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  CommConfig comm;

  bool operator==(const TrainConfig&) const = default;
};

// A config from TOML and then from "section.key=value", the value being TOML, a bare word a string.
// Checked and resolved. Every fault is ErrorCode::usage: where it is (`where`:line, or the command
// line), the key, the value and what would work; an unknown key comes with the nearest one.
TrainConfig parse_config(std::string_view toml, const std::string& where,
                         std::span<const std::string> overrides = {});
TrainConfig load_config(const Path& path, std::span<const std::string> overrides = {});

// "section.key=value" on top of a config, of the given sections only (all if none is given). Only
// these values are checked, each for itself.
void set_values(TrainConfig& config, std::span<const std::string> overrides,
                std::span<const std::string_view> sections = {});

// The same config with everything filled in that follows from other keys, checked: each value, what
// they say together, and that all of it is built.
TrainConfig resolved(TrainConfig config);

// The resolved config with every key, and its section [model] alone, as checkpoints hold them.
// parse_config() of the first and parse_model() of the second give back what was printed; faults of
// the second are ErrorCode::checkpoint.
std::string to_toml(const TrainConfig& config);
std::string model_toml(const models::TransformerConfig& model);
models::TransformerConfig parse_model(std::string_view toml, const std::string& where);

// What a resume makes of a changed key.
enum class OnResume { free, noted, refused };

struct ConfigChange {
  std::string key;          // "optimizer.lr"
  std::string before, now;  // as TOML; empty where not set
  OnResume on_resume = OnResume::refused;
};

// All keys with different values, in the order of the config.
std::vector<ConfigChange> config_changes(const TrainConfig& before, const TrainConfig& now);

}  // namespace dew
