// Input: a TOML file, then overrides, each behind a byte of value 1 (which TOML allows nowhere).
#include <vector>

#include "dew/train/config.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {
namespace {

void check_model(std::string_view toml) {
  const auto read = [](std::string_view text) { return parse_model(text, "manifest"); };
  const auto model = parsed(ErrorCode::checkpoint, [&] { return read(toml); });
  if (!model) return;
  const std::string text = model_toml(*model);
  require(parsed_again([&] { return read(text); }) == *model, "a model reads back as another");
}

}  // namespace

void run(std::string_view input) {
  constexpr char kSeparator = 1;
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= input.size() && parts.size() < 20;) {
    const std::size_t end = std::min(input.find(kSeparator, begin), input.size());
    parts.emplace_back(input.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::string toml = parts.front();
  parts.erase(parts.begin());

  check_model(toml);
  parsed(ErrorCode::usage, [&] {
    TrainConfig config;
    set_values(config, parts);
    return true;
  });
  const auto config =
      parsed(ErrorCode::usage, [&] { return parse_config(toml, "run.toml", parts); });
  if (!config) return;
  const std::string text = to_toml(*config);
  const TrainConfig again = parsed_again([&] { return parse_config(text, "again"); });
  require(again == *config, "a config reads back as another");
  require(to_toml(again) == text, "a config is written in another way the second time");
  require(config_changes(*config, again).empty(), "changes where there are none");
}

}  // namespace dew::fuzz
