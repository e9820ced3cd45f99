// config.json of a Hugging Face model: keys are read one by one, and what nobody has read is
// refused, so that no option is passed over in silence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dew::hf {

// Every reader takes a key that is absent or null as not given. Errors are ErrorCode::checkpoint
// and name file, key and value.
class ConfigFile {
 public:
  // `where` is the file, for messages.
  ConfigFile(std::string_view text, std::string where);
  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  bool has(const std::string& key) const;  // also where it is null

  // An integer from `least` to 2^31 - 1.
  std::int64_t integer(const std::string& key, std::int64_t least = 1);  // must be given
  // How many layers there are, each of which is looked at: up to 2^16.
  std::int64_t layers(const std::string& key);
  std::int64_t integer_or(const std::string& key, std::int64_t otherwise);
  std::optional<std::int64_t> maybe_integer(const std::string& key, std::int64_t least = 1);
  // Ids of tokens, one or a list of them, each from 0 to 2^31 - 1. Empty if not given.
  std::vector<std::int64_t> ids(const std::string& key);
  // A number above 0 that f32 holds, as programs compute.
  double number(const std::string& key);
  double number_or(const std::string& key, double otherwise);
  std::optional<double> maybe_number(const std::string& key);
  bool flag_or(const std::string& key, bool otherwise);
  std::string text(const std::string& key);
  std::optional<std::string> maybe_text(const std::string& key);
  std::vector<std::string> texts(const std::string& key);  // empty if not given
  // An object inside; its keys are refused with those of the file.
  std::optional<ConfigFile> object(const std::string& key);

  // One of the values that a family can have.
  std::string choice(const std::string& key, const std::string& otherwise,
                     std::initializer_list<const char*> known);
  void require_flag(const std::string& key, bool value);

  // Keys that do not change what the model computes.
  void skip(std::span<const std::string_view> keys);
  // Refuses every key that was not asked for and is not null.
  void refuse_rest(std::string_view family) const;

  [[noreturn]] void refuse(const std::string& message) const;  // "WHERE: message"

 private:
  struct State;
  explicit ConfigFile(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace dew::hf
