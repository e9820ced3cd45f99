// What is wrong with the values of a config: each alone, several together, and what is not built.
#include <algorithm>
#include <array>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/checkpoint/box.h"
#include "dew/train/config_fields.h"

namespace dew {
namespace {

// ---- Not built yet. Later issues delete lines here, and nothing else. ----

// Keys that there will be.
constexpr std::array kUnbuiltKeys = {
    "mesh.schedule",           "mesh.chunks",
    "mesh.stage_layers",       "mesh.order",
    "mesh.attention",          "model.experts",
    "model.experts_per_token", "model.expert_features",
    "model.shared_features",   "model.router",
    "model.router_norm",       "model.router_scale",
    "model.router_groups",     "model.router_topk_groups",
    "model.router_bias_rate",  "model.balance",
    "model.balance_scope",     "model.router_z",
    "model.capacity_factor",
};

// Values that there will be: a key, and whether it has one.
struct Unbuilt {
  const char* key;
  bool asked;
};
std::vector<Unbuilt> unbuilt_values(const TrainConfig& c) {
  return {
      {"mesh.replicas", c.mesh.replicas > 1},
      // axes that no op can be split over yet
      {"mesh.sequence", c.mesh.sequence > 1},
      {"mesh.stage", c.mesh.stage > 1},
      {"mesh.microbatches", c.mesh.microbatches > 0},
      // all else
      {"optimizer.name", c.optimizer.name == "adafactor" || c.optimizer.name == "muon"},
  };
}

// ---- end of what is not built yet ----

[[noreturn]] void refuse(const ConfigWhere& where, std::string_view key, const std::string& why) {
  fail(ErrorCode::usage, format("{}: {}", where(key), why));
}

std::string value_of(TrainConfig& config, std::string_view key) {
  return value_text(find_config_field(key)->slot(config));
}

void refuse_unbuilt(TrainConfig& config, const ConfigWhere& where) {
  for (const auto& [key, asked] : unbuilt_values(config)) {
    if (!asked) continue;
    fail(ErrorCode::usage,
         format("{}: {} = {} is not built yet", where(key), key, value_of(config, key)),
         format("{} works", find_config_field(key)->choices.empty() ? "leaving it out"
                                                                    : "another choice of it"));
  }
}

void check_devices(const TrainConfig& c, const ConfigWhere& where) {
  if (parse_devices(c.devices.spec)) return;
  refuse(where, "devices.spec",
         format("devices.spec = {}, but it must be \"cpu\" or \"cpu:\" and a number of devices",
                in_quotes(c.devices.spec)));
}

// A value that changes nothing would be accepted without a word and mislead whoever wrote it.
struct Idle {
  const char* key;
  bool used;
  const char* only_with;
};
void check_idle(TrainConfig& c, const ConfigWhere& where) {
  const bool adamw = c.optimizer.name == "adamw", sgd = c.optimizer.name == "sgd";
  const bool rope = c.model.positions == "rope";
  const bool scaled = c.model.rope_scaling.type != "none";
  const bool llama3 = c.model.rope_scaling.type == "llama3";
  const bool removes = c.run.keep > 0;
  const Idle keys[] = {
      {"run.keep_best", removes && c.run.eval_every > 0, "run.keep and run.eval_every above 0"},
      {"run.keep_every", removes, "run.keep above 0"},
      {"optimizer.momentum", sgd, "optimizer.name = \"sgd\""},
      {"optimizer.b1", !sgd, "optimizer.name = \"adamw\" or \"lion\""},
      {"optimizer.b2", !sgd, "optimizer.name = \"adamw\" or \"lion\""},
      {"optimizer.eps", adamw, "optimizer.name = \"adamw\""},
      {"schedule.final_fraction", c.schedule.name != "constant", "a schedule.name but constant"},
      {"schedule.decay_fraction", c.schedule.name == "warmup_stable_decay",
       "schedule.name = \"warmup_stable_decay\""},
      {"model.rope_theta", rope, "model.positions = \"rope\""},
      {"model.rope_scaling.factor", scaled, "a model.rope_scaling.type but none"},
      {"model.rope_scaling.low_freq_factor", llama3, "model.rope_scaling.type = \"llama3\""},
      {"model.rope_scaling.high_freq_factor", llama3, "model.rope_scaling.type = \"llama3\""},
      {"model.rope_scaling.original_max_seq_len", llama3, "model.rope_scaling.type = \"llama3\""},
  };
  TrainConfig defaults;
  for (const auto& [key, used, only_with] : keys) {
    const std::string value = value_of(c, key);
    if (used || value == value_of(defaults, key)) continue;
    refuse(where, key,
           format("{} = {} has no effect: it is read only with {}", key, value, only_with));
  }
}

// Checks of other rooms begin their message with the key, but do not know where it was set.
template <class Check>
auto located(const ConfigWhere& where, Check check) {
  try {
    return check();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    const std::string_view key = message.substr(0, message.find_first_of(" :"));
    fail(error.code(), format("{}: {}", where(key), message), error.hint());
  }
}

void check_together(TrainConfig& c, const ConfigWhere& where) {
  check_devices(c, where);
  located(where, [&] { check_rules(c.layout.rules); });
  if (c.data.accumulate && c.data.micro_batch) {
    refuse(where, "data.micro_batch",
           format("data.accumulate = {} and data.micro_batch = {} are both given: keep one",
                  *c.data.accumulate, *c.data.micro_batch));
  }
  if (c.model.max_seq_len > 0 && c.data.seq_len > c.model.max_seq_len) {
    refuse(where, "data.seq_len",
           format("data.seq_len = {} is above model.max_seq_len = {}", c.data.seq_len,
                  c.model.max_seq_len));
  }
  check_idle(c, where);
}

void check_number(const std::string& key, double value, const std::string& text,
                  const ConfigRange& range, const ConfigWhere& where) {
  if (in_range(range, value)) return;
  const std::string must = range_text(range);
  refuse(where, key,
         format("{} = {}, but it must be {}", key, text, must == "any" ? "finite" : must));
}

}  // namespace

void refuse_unbuilt_key(std::string_view key, const std::string& where) {
  if (std::ranges::find(kUnbuiltKeys, key) == kUnbuiltKeys.end()) return;
  fail(ErrorCode::usage, format("{}: {} is not built yet", where, key));
}

void check_field(const ConfigSection& section, const ConfigField& field, TrainConfig& config,
                 const ConfigWhere& where) {
  const std::string key = full_key(section, field);
  const ConfigSlot slot = field.slot(config);
  const std::string text = value_text(slot);
  const auto number = [&](auto value) {
    check_number(key, static_cast<double>(value), text, field.range, where);
  };
  if (const auto* integer = std::get_if<std::int64_t*>(&slot)) number(**integer);
  if (const auto* real = std::get_if<double*>(&slot)) number(**real);
  if (const auto* maybe = std::get_if<std::optional<std::int64_t>*>(&slot); maybe && **maybe) {
    number(***maybe);
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>*>(&slot)) {
    for (const std::int64_t value : **list) number(value);
  }
  const auto* choice = std::get_if<std::string*>(&slot);
  if (choice == nullptr || field.choices.empty()) return;
  const std::vector<std::string_view> choices = words(field.choices);
  if (std::ranges::find(choices, std::string_view(**choice)) != choices.end()) return;
  refuse(
      where, key,
      format("{} = {}, but it must be one of {}", key, shortened(text), fmt::join(choices, ", ")));
}

TrainConfig resolved(TrainConfig config, const ConfigWhere& where) {
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) check_field(section, field, config, where);
  }
  check_together(config, where);
  refuse_unbuilt(config, where);
  if (config.model.max_seq_len == 0) config.model.max_seq_len = config.data.seq_len;
  if (config.data.stride == 0) config.data.stride = config.data.seq_len;
  config.model = located(where, [&] { return models::resolved(config.model); });
  located(where, [&] { validate(config.optimizer); });
  located(where, [&] { validate(config.schedule); });
  return config;
}

TrainConfig resolved(TrainConfig config) {
  return resolved(std::move(config), [](std::string_view) { return std::string("config"); });
}

}  // namespace dew
