#include "dew/hf/config_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"
#include "dew/checkpoint/box.h"

namespace dew::hf {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

// A value as a message may show it.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  return shortened(value.dump(-1, ' ', true), kLongest);
}

}  // namespace

struct ConfigFile::State {
  Json json;
  std::string where;
  std::string inside;  // "rope_scaling." of an object inside
  std::set<std::string> known;

  // nullptr if it is not given. From here on the key is known.
  const Json* find(const std::string& key) {
    known.insert(key);
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void refuse(const std::string& message) const {
    fail(kCode, format("{}: {}", where, message));
  }
  [[noreturn]] void refuse_value(const std::string& key, const std::string& must) const {
    refuse(format("{}{} = {}, but it must be {}", inside, key, shown(json.at(key)), must));
  }
  [[noreturn]] void refuse_missing(const std::string& key) const {
    refuse(format("{}{} is missing", inside, key));
  }
};

ConfigFile::ConfigFile(std::string_view text, std::string where)
    : state_(std::make_unique<State>()) {
  state_->json = parse_json(text, where, kCode);
  state_->where = std::move(where);
  if (!state_->json.is_object()) refuse("a JSON object is expected");
}

ConfigFile::ConfigFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&&) noexcept = default;
ConfigFile::~ConfigFile() = default;

void ConfigFile::refuse(const std::string& message) const { state_->refuse(message); }

bool ConfigFile::has(const std::string& key) const { return state_->json.contains(key); }

std::optional<std::int64_t> ConfigFile::maybe_integer(const std::string& key, std::int64_t least) {
  const Json* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() && *value >= least && *value <= kMost;
  if (!fits) state_->refuse_value(key, format("an integer from {} to {}", least, kMost));
  return value->get<std::int64_t>();
}

std::int64_t ConfigFile::integer(const std::string& key, std::int64_t least) {
  const auto value = maybe_integer(key, least);
  if (!value) state_->refuse_missing(key);
  return *value;
}

std::int64_t ConfigFile::layers(const std::string& key) {
  constexpr std::int64_t kMostLayers = std::int64_t{1} << 16;
  const std::int64_t count = integer(key);
  if (count > kMostLayers) state_->refuse_value(key, format("at most {}", kMostLayers));
  return count;
}

std::int64_t ConfigFile::integer_or(const std::string& key, std::int64_t otherwise) {
  return maybe_integer(key).value_or(otherwise);
}

std::vector<std::int64_t> ConfigFile::ids(const std::string& key) {
  const Json* value = state_->find(key);
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  const bool fit = std::ranges::all_of(
      list, [](const Json& id) { return id.is_number_integer() && id >= 0 && id <= kMost; });
  if (!fit) state_->refuse_value(key, format("an id from 0 to {}, or a list of them", kMost));
  return list.get<std::vector<std::int64_t>>();
}

std::optional<double> ConfigFile::maybe_number(const std::string& key) {
  const Json* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : 0;
  if (!(number > 0)) state_->refuse_value(key, "a number above 0");
  const float held = static_cast<float>(number);
  if (!(held > 0) || !std::isfinite(held)) state_->refuse_value(key, "within the range of f32");
  return number;
}

double ConfigFile::number(const std::string& key) {
  const auto value = maybe_number(key);
  if (!value) state_->refuse_missing(key);
  return *value;
}

double ConfigFile::number_or(const std::string& key, double otherwise) {
  return maybe_number(key).value_or(otherwise);
}

bool ConfigFile::flag_or(const std::string& key, bool otherwise) {
  const Json* value = state_->find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) state_->refuse_value(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigFile::maybe_text(const std::string& key) {
  const Json* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) state_->refuse_value(key, "a string");
  return value->get<std::string>();
}

std::string ConfigFile::text(const std::string& key) {
  const auto value = maybe_text(key);
  if (!value) state_->refuse_missing(key);
  return *value;
}

std::vector<std::string> ConfigFile::texts(const std::string& key) {
  const Json* value = state_->find(key);
  if (value == nullptr) return {};
  const bool strings = value->is_array() && std::ranges::all_of(*value, [](const Json& item) {
                         return item.is_string();
                       });
  if (!strings) state_->refuse_value(key, "a list of strings");
  return value->get<std::vector<std::string>>();
}

std::optional<ConfigFile> ConfigFile::object(const std::string& key) {
  const Json* value = state_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) state_->refuse_value(key, "an object");
  auto inner = std::make_unique<State>();
  inner->json = *value;
  inner->where = state_->where;
  inner->inside = state_->inside + key + ".";
  return ConfigFile(std::move(inner));
}

std::string ConfigFile::choice(const std::string& key, const std::string& otherwise,
                               std::initializer_list<const char*> known) {
  std::string value = maybe_text(key).value_or(otherwise);
  if (std::ranges::find(known, value) == known.end()) {
    refuse(format("{}{} = {} is not supported; it may be {}", state_->inside, key, in_quotes(value),
                  fmt::join(known, ", ")));
  }
  return value;
}

void ConfigFile::require_flag(const std::string& key, bool value) {
  if (flag_or(key, value) == value) return;
  refuse(format("{}{} = {} is not supported", state_->inside, key, !value));
}

void ConfigFile::skip(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) state_->known.insert(std::string(key));
}

void ConfigFile::refuse_rest(std::string_view family) const {
  for (const auto& item : state_->json.items()) {
    if (item.value().is_null() || state_->known.contains(item.key())) continue;
    refuse(format("the key {} = {} is not known for {}", in_quotes(state_->inside + item.key()),
                  shown(item.value()), family));
  }
}

}  // namespace dew::hf
