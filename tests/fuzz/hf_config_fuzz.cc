// config.json of other people's models.
#include "dew/hf/config_file.h"
#include "dew/hf/family.h"
#include "dew/hf/write_config.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {
namespace {

models::TransformerConfig read(std::string_view text) {
  hf::ConfigFile file(text, "config.json");
  const hf::Family& family = hf::find_family(file);
  return hf::read_config(family, file);
}

}  // namespace

void run(std::string_view input) {
  const auto config = parsed(ErrorCode::checkpoint, [&] { return read(input); });
  if (!config) return;
  require(models::resolved(*config) == *config, "a config that is not resolved");
  for (const char* type : {"llama", "qwen3", "gemma2", "olmo2", "gpt2"}) {
    // It may describe another model, or one that the family cannot have; reading it is safe.
    const auto text = hf::write_config(type, *config);
    if (text) parsed(ErrorCode::checkpoint, [&] { return read(*text); });
  }
}

}  // namespace dew::fuzz
