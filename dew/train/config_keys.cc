// Looking keys up, the nearest to a wrong one, and values and ranges as text.
#include <algorithm>
#include <cmath>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/nearest.h"
#include "dew/train/config_fields.h"

namespace dew {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::pair<std::string_view, std::string_view> split_key(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  if (dot == key.npos) return {"", key};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

// To the key's own name or one of its aliases; some number above `most` if it is more.
std::size_t distance_to(std::string_view text, const ConfigField& field, std::size_t most) {
  std::size_t best = edit_distance(text, field.key, most);
  for (const std::string_view alias : words(field.aliases)) {
    best = std::min(best, edit_distance(text, alias, std::min(best, most)));
  }
  return best;
}

std::string quote_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string float_text(double value) {
  const std::string text = format("{}", value);
  return text.find_first_of(".en") == text.npos ? text + ".0" : text;
}

std::string rules_text(const std::vector<LayoutRule>& rules) {
  std::vector<std::string> texts;
  for (const LayoutRule& rule : rules) {
    std::vector<std::string> axes;
    for (const std::string& axis : rule.axes) axes.push_back(quote_text(axis));
    texts.push_back(format("[{}, [{}]]", quote_text(rule.name), fmt::join(axes, ", ")));
  }
  return texts.empty() ? "" : format("[{}]", fmt::join(texts, ", "));
}

struct ValueText {
  std::string operator()(const std::string* v) const { return quote_text(*v); }
  std::string operator()(const std::int64_t* v) const { return format("{}", *v); }
  std::string operator()(const double* v) const { return float_text(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::optional<std::int64_t>* v) const {
    return v->has_value() ? format("{}", **v) : "";
  }
  std::string operator()(const std::vector<std::int64_t>* v) const {
    return format("[{}]", fmt::join(*v, ", "));
  }
  std::string operator()(const std::vector<LayoutRule>* v) const { return rules_text(*v); }
};

}  // namespace

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    found.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), found.back().size() + 1));
  }
  return found;
}

std::string full_key(const ConfigSection& section, const ConfigField& field) {
  return format("{}.{}", section.name, field.key);
}

const ConfigField* find_config_field(std::string_view key) {
  const auto [section_name, field_name] = split_key(key);
  for (const ConfigSection& section : config_sections()) {
    if (section.name != section_name) continue;
    for (const ConfigField& field : section.fields) {
      if (field.key == field_name) return &field;
    }
  }
  return nullptr;
}

bool is_config_section(std::string_view name) {
  return std::any_of(config_sections().begin(), config_sections().end(),
                     [&](const ConfigSection& section) { return section.name == name; });
}

// A slip in the key, or in the section, or the right key in the wrong section.
std::string nearest_config_key(std::string_view key) {
  constexpr std::size_t kLongest = 64;  // longer ones mean nothing, and take quadratic time
  const auto [section_name, field_name] = split_key(key.substr(0, kLongest));
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const ConfigSection& section : config_sections()) {
    const std::size_t away = std::min<std::size_t>(edit_distance(section_name, section.name), 2);
    for (const ConfigField& field : section.fields) {
      const std::size_t distance = 2 * distance_to(field_name, field, least / 2) + away;
      if (distance < least) least = distance, best = full_key(section, field);
    }
  }
  return best;
}

std::string nearest_config_section(std::string_view name) {
  std::vector<std::string_view> sections;
  for (const ConfigSection& section : config_sections()) sections.push_back(section.name);
  return std::string(nearest(name, sections));
}

std::string range_text(const ConfigRange& r) {
  std::string text;
  if (r.least > -kInfinity && r.most < kInfinity && !r.open_least && !r.open_most) {
    return format("from {:.0f} to {:.0f}", r.least, r.most);
  }
  if (r.least > -kInfinity)
    text = format("{} {:.0f}", r.open_least ? "above" : "at least", r.least);
  if (r.most < kInfinity) {
    text += format("{}{} {:.0f}", text.empty() ? "" : " and ", r.open_most ? "below" : "at most",
                   r.most);
  }
  return text.empty() ? "any" : text;
}

bool in_range(const ConfigRange& r, double value) {
  return std::isfinite(value) && value >= r.least && value <= r.most &&
         !(r.open_least && value == r.least) && !(r.open_most && value == r.most);
}

std::string value_text(const ConfigSlot& slot) { return std::visit(ValueText(), slot); }

}  // namespace dew
