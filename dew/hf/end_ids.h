// The ids behind which a model has nothing more to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dew::hf {

// A file of a model directory: its text, and its name for messages.
struct ConfigText {
  std::string_view text;
  std::string where;
};

// `eos_token_id` of generation_config.json where it is there and says any, else of config.json, as
// transformers generates: one id or a list. Throws ErrorCode::checkpoint on what is neither, and on
// an id below 0 or from 2^31 on.
std::vector<std::int64_t> end_ids(const ConfigText& config,
                                  const std::optional<ConfigText>& generation);

// The text of such a file in which `id` is among `eos_token_id`, before what it says itself.
std::string with_end_id(const ConfigText& file, std::int64_t id);

}  // namespace dew::hf
