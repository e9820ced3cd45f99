// Every key of a config: one list, from which parsing, checks, printing, messages and
// docs/config.md follow. A new key is one entry here and one member in config.h.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dew/train/config.h"

namespace dew {

// Where the value of a key lives.
using ConfigSlot =
    std::variant<std::string*, std::int64_t*, double*, bool*, std::optional<std::int64_t>*,
                 std::vector<std::int64_t>*, std::vector<LayoutRule>*>;

// Numbers: least <= value <= most, or least < value < most where open. Lists: each of them.
struct ConfigRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false, open_most = false;
};

struct ConfigField {
  std::string_view key;
  ConfigSlot (*slot)(TrainConfig& config) = nullptr;
  ConfigRange range = {};
  std::string_view choices = {};  // of a string, blank between; empty: any
  bool required = false;
  OnResume on_resume = OnResume::refused;
  std::string_view doc = {};
  std::string_view aliases = {};  // what others call it, blank between; for "the nearest key"
};

struct ConfigSection {
  std::string_view name;  // "model.rope_scaling" is a table inside [model]
  std::span<const ConfigField> fields;
};

std::span<const ConfigSection> config_sections();
// The words of `choices` or `aliases`.
std::vector<std::string_view> words(std::string_view text);

// "run.dir"
std::string full_key(const ConfigSection& section, const ConfigField& field);

// nullptr if there is none of that full name.
const ConfigField* find_config_field(std::string_view key);
bool is_config_section(std::string_view name);
// The known key, or section, that the text most probably means.
std::string nearest_config_key(std::string_view key);
std::string nearest_config_section(std::string_view name);

// "at least 1", "above 0 and below 1", "any"; and does the value lie in it? NaN and infinity never
// do.
std::string range_text(const ConfigRange& range);
bool in_range(const ConfigRange& range, double value);

// The value as TOML; empty for an optional that is not set and for a list of rules that is the
// default.
std::string value_text(const ConfigSlot& slot);

// ---- config_check.cc ----

// Where a key was set, for messages: "config.toml:7", "command line"; the file's name if it was
// not.
using ConfigWhere = std::function<std::string(std::string_view key)>;

void check_field(const ConfigSection& section, const ConfigField& field, TrainConfig& config,
                 const ConfigWhere& where);
TrainConfig resolved(TrainConfig config, const ConfigWhere& where);

// Refuses an unknown key that a later version will have. What is not built yet stands in
// config_check.cc, in one place.
void refuse_unbuilt_key(std::string_view key, const std::string& where);

}  // namespace dew
