// Configs from and to TOML. Which keys there are, config_fields.cc says.
#include "dew/train/config.h"

// Where these would end the process, on "[@]", its parser goes on to say what is wrong. A library
// built without them, as distributions do, does just that.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/checkpoint/box.h"
#include "dew/train/config_fields.h"

namespace dew {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;
constexpr const char* kCommandLine = "command line";

// One line of plain text, whatever a parser or a value has in it.
std::string plain(std::string_view text) { return plain_text(text, ' '); }

// TOML has bytes beyond ASCII in strings and comments alone. Elsewhere the library's behaviour is
// undefined for many of them, so they must not reach it: gives the line of the first, 0 if none.
std::int64_t line_of_stray_byte(std::string_view text) {
  std::int64_t line = 1;
  std::string_view closing;  // of the string or comment that we are in
  for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (text[i] == '\n') ++line;
    if (closing.empty()) {
      if (static_cast<unsigned char>(text[i]) >= 0x80) return line;
      for (const std::string_view opening : {"\"\"\"", "'''", "\"", "'", "#"}) {
        if (!rest.starts_with(opening)) continue;
        closing = opening == "#" ? "\n" : opening;
        i += opening.size() - 1;
        break;
      }
    } else if (text[i] == '\\' && closing.front() == '"') {
      ++i;
      if (i < text.size() && text[i] == '\n') ++line;
    } else if (rest.starts_with(closing) || (text[i] == '\n' && closing.size() == 1)) {
      i += rest.starts_with(closing) ? closing.size() - 1 : 0;
      closing = {};
    }
  }
  return 0;
}

toml::table parse_toml(std::string_view text, const std::string& where) {
  if (const std::int64_t line = line_of_stray_byte(text); line > 0) {
    fail(ErrorCode::usage, format("{}:{}: not valid TOML: a character beyond ASCII outside of "
                                  "strings and comments",
                                  where, line));
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::usage, format("{}:{}: not valid TOML: {}", where, error.source().begin.line,
                                  plain(error.description())));
  }
}

std::string found_text(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return plain(out.str());
}

// Reads values into a config, and remembers where each came from.
class Assigner {
 public:
  Assigner(TrainConfig& config, std::string where) : config_(config), where_(std::move(where)) {}

  // Of a file: every value has a line.
  void assign_file(const toml::table& table) { assign_table(table, ""); }
  void assign_override(const std::string& text, std::span<const std::string_view> sections);

  bool was_set(const std::string& key) const { return set_.contains(key); }
  std::string where(std::string_view key) const {
    const auto found = set_.find(std::string(key));
    return found == set_.end() ? where_ : found->second;
  }

 private:
  void assign_table(const toml::table& table, const std::string& prefix);
  void assign_key(const std::string& key, bool top, const toml::node& node);
  void assign_value(const std::string& key, const ConfigField& field, const toml::node& node);
  std::string line(const toml::node& node) const {
    return from_command_line_ ? kCommandLine : format("{}:{}", where_, node.source().begin.line);
  }
  [[noreturn]] void wrong_type(const std::string& key, const toml::node& node, const char* type);
  [[noreturn]] void unknown_key(const std::string& key, bool top, const toml::node& node);

  TrainConfig& config_;
  std::string where_;
  bool from_command_line_ = false;
  std::map<std::string, std::string> set_;  // key: where
};

void Assigner::wrong_type(const std::string& key, const toml::node& node, const char* type) {
  const std::string message =
      format("{}: {} must be {}, found {}", line(node), key, type, found_text(node));
  const bool unquoted = from_command_line_ && std::string_view(type) == "a string";
  fail(ErrorCode::usage, message, unquoted ? format("write {}='\"...\"'", plain(key)) : "");
}

void Assigner::unknown_key(const std::string& key, bool top, const toml::node& node) {
  refuse_unbuilt_key(key, line(node));
  if (top && node.is_table()) {
    fail(ErrorCode::usage, format("{}: unknown section {}; the nearest is [{}]", line(node),
                                  in_quotes(key), nearest_config_section(key)));
  }
  const bool data_axis = key == "mesh.data";
  fail(ErrorCode::usage,
       format("{}: unknown key {}; the nearest is {}", line(node), in_quotes(key),
              nearest_config_key(key)),
       data_axis ? "the data axis takes the devices that the other axes leave" : "");
}

void Assigner::assign_table(const toml::table& table, const std::string& prefix) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    // A quoted name with a dot in it is not the path that it looks like.
    if (name.str().find('.') != std::string_view::npos) unknown_key(key, prefix.empty(), node);
    assign_key(key, prefix.empty(), node);
  }
}

void Assigner::assign_key(const std::string& key, bool top, const toml::node& node) {
  if (const ConfigField* field = find_config_field(key)) return assign_value(key, *field, node);
  if (!is_config_section(key)) unknown_key(key, top, node);
  const toml::table* section = node.as_table();
  if (section == nullptr) wrong_type(key, node, "a table of keys");
  assign_table(*section, key + ".");
}

std::optional<std::vector<std::int64_t>> integers(const toml::node& node) {
  std::vector<std::int64_t> values;
  if (node.is_integer()) return std::vector{**node.as_integer()};
  if (!node.is_array()) return std::nullopt;
  for (const toml::node& item : *node.as_array()) {
    if (!item.is_integer()) return std::nullopt;
    values.push_back(**item.as_integer());
  }
  return values;
}

std::optional<std::vector<std::string>> strings(const toml::node& node) {
  std::vector<std::string> values;
  if (!node.is_array()) return std::nullopt;
  for (const toml::node& item : *node.as_array()) {
    if (!item.is_string()) return std::nullopt;
    values.push_back(**item.as_string());
  }
  return values;
}

std::optional<std::vector<LayoutRule>> rules(const toml::node& node) {
  std::vector<LayoutRule> values;
  if (!node.is_array() || node.as_array()->empty()) return std::nullopt;
  for (const toml::node& item : *node.as_array()) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2 || !pair->get(0)->is_string()) return std::nullopt;
    const auto axes = strings(*pair->get(1));
    if (!axes) return std::nullopt;
    values.push_back({**pair->get(0)->as_string(), *axes});
  }
  return values;
}

// Each returns what the value should have been, or nullptr if it was that.
struct Assign {
  const toml::node& node;

  const char* operator()(std::string* to) const {
    if (!node.is_string()) return "a string";
    *to = **node.as_string();
    return nullptr;
  }
  const char* operator()(std::int64_t* to) const {
    if (!node.is_integer()) return "an integer";
    *to = **node.as_integer();
    return nullptr;
  }
  const char* operator()(double* to) const {
    if (!node.is_number()) return "a number";
    *to = *node.value<double>();
    return nullptr;
  }
  const char* operator()(bool* to) const {
    if (!node.is_boolean()) return "true or false";
    *to = **node.as_boolean();
    return nullptr;
  }
  const char* operator()(std::optional<std::int64_t>* to) const {
    if (!node.is_integer()) return "an integer";
    *to = **node.as_integer();
    return nullptr;
  }
  const char* operator()(std::vector<std::int64_t>* to) const {
    const auto values = integers(node);
    if (!values) return "an integer or a list of integers";
    *to = *values;
    return nullptr;
  }
  const char* operator()(std::vector<LayoutRule>* to) const {
    const auto values = rules(node);
    if (!values) return "a list like [[\"embed\", [\"fsdp\"]]], with one rule or more";
    *to = *values;
    return nullptr;
  }
};

void Assigner::assign_value(const std::string& key, const ConfigField& field,
                            const toml::node& node) {
  const char* expected = std::visit(Assign{node}, field.slot(config_));
  if (expected != nullptr) wrong_type(key, node, expected);
  set_[key] = line(node);
}

// ---- overrides ----

// A value as TOML; what is not TOML and does not begin like it is a string: runs/kjv, adamw.
toml::table parse_value(const std::string& key, const std::string& text) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::usage, format("{}: {} = {} is not valid TOML: {}", kCommandLine, in_quotes(key),
                                  in_quotes(text), plain(why)));
  };
  const bool quoted = text.empty() || std::string_view("[{\"'").find(text[0]) != text.npos;
  const bool stray = line_of_stray_byte(text) > 0;
  if (stray && quoted) refuse("a character beyond ASCII outside of strings");
  if (!stray) try {
      toml::table table = toml::parse("v = " + text);
      if (quoted && table.size() > 1) refuse("there is more after the value");
      // TOML would take "4#00" for 4 with a comment, and lines after the first for more keys.
      if (quoted || text.find_first_of("\n#") == text.npos) return table;
    } catch (const toml::parse_error& error) {
      if (quoted) refuse(error.description());
    }
  try {
    std::string word = text;
    return toml::parse("v = " + value_text(&word));
  } catch (const toml::parse_error& error) {  // not UTF-8
    refuse(error.description());
    return {};
  }
}

void Assigner::assign_override(const std::string& text,
                               std::span<const std::string_view> sections) {
  from_command_line_ = true;
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  if (equals == text.npos || key.find('.') == key.npos) {
    fail(ErrorCode::usage,
         format("{}: {} is not section.key=value", kCommandLine, in_quotes(text)));
  }
  if (was_set(key) && where(key) == kCommandLine) {
    fail(ErrorCode::usage, format("{}: {} is given twice", kCommandLine, in_quotes(key)));
  }
  const std::string section = key.substr(0, key.find('.'));
  if (!sections.empty() && std::ranges::find(sections, section) == sections.end()) {
    fail(ErrorCode::usage, format("{}: {} cannot be set here, only keys of {}", kCommandLine,
                                  in_quotes(key), fmt::join(sections, ", ")));
  }
  if (equals + 1 == text.size()) {
    fail(ErrorCode::usage, format("{}: {} has no value", kCommandLine, in_quotes(text)),
         format("write {}='\"\"' for empty text", plain(key)));
  }
  const toml::table table = parse_value(key, text.substr(equals + 1));
  assign_key(key, false, *table.get("v"));
}

void require_keys(const Assigner& assigner, const std::string& where) {
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      const std::string key = full_key(section, field);
      if (!field.required || assigner.was_set(key)) continue;
      fail(ErrorCode::usage, format("{}: {} is missing: {}", where, key, field.doc));
    }
  }
}

// The section and the tables inside it; a comment for what is not set.
std::string section_text(const ConfigSection& section, TrainConfig& config) {
  std::string text = format("[{}]\n", section.name);
  for (const ConfigField& field : section.fields) {
    const std::string value = value_text(field.slot(config));
    text += value.empty() ? format("# {} is not set\n", field.key)
                          : format("{} = {}\n", field.key, value);
  }
  return text;
}

std::string sections_text(TrainConfig config, std::string_view only) {
  std::string text;
  for (const ConfigSection& section : config_sections()) {
    if (!section.name.starts_with(only)) continue;
    text += (text.empty() ? "" : "\n") + section_text(section, config);
  }
  return text;
}

}  // namespace

TrainConfig parse_config(std::string_view toml, const std::string& where,
                         std::span<const std::string> overrides) {
  TrainConfig config;
  Assigner assigner(config, where);
  assigner.assign_file(parse_toml(toml, where));
  for (const std::string& text : overrides) assigner.assign_override(text, {});
  require_keys(assigner, where);
  return resolved(std::move(config), [&](std::string_view key) { return assigner.where(key); });
}

TrainConfig load_config(const Path& path, std::span<const std::string> overrides) {
  return parse_config(read_file(path, ErrorCode::usage, kMaxBytes), path.string(), overrides);
}

void set_values(TrainConfig& config, std::span<const std::string> overrides,
                std::span<const std::string_view> sections) {
  Assigner assigner(config, kCommandLine);
  for (const std::string& text : overrides) assigner.assign_override(text, sections);
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      if (!assigner.was_set(full_key(section, field))) continue;
      check_field(section, field, config, [](std::string_view) { return kCommandLine; });
    }
  }
}

std::string to_toml(const TrainConfig& config) { return sections_text(resolved(config), ""); }

std::string model_toml(const models::TransformerConfig& model) {
  TrainConfig config;
  config.model = models::resolved(model);
  return sections_text(std::move(config), "model");
}

models::TransformerConfig parse_model(std::string_view toml, const std::string& where) {
  try {
    TrainConfig config;
    Assigner(config, where).assign_file(parse_toml(toml, where));
    return models::resolved(config.model);
  } catch (const Error& error) {  // its file holds a model, it is not the user's config
    fail(ErrorCode::checkpoint, error.what(), error.hint());
  }
}

std::vector<ConfigChange> config_changes(const TrainConfig& before, const TrainConfig& now) {
  TrainConfig a = before, b = now;
  std::vector<ConfigChange> changes;
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      const std::string was = value_text(field.slot(a)), is = value_text(field.slot(b));
      if (was != is) changes.push_back({full_key(section, field), was, is, field.on_resume});
    }
  }
  return changes;
}

}  // namespace dew
