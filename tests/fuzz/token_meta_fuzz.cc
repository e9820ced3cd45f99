#include "dew/data/token_directory.h"
#include "tests/fuzz/fuzz.h"

void dew::fuzz::run(std::string_view input) {
  const auto read = [](std::string_view text) { return parse_token_meta(text, "meta.json"); };
  const auto meta = parsed(ErrorCode::data, [&] { return read(input); });
  if (!meta) return;
  require(meta->vocab_size >= 1 && meta->train_tokens >= 0 && meta->val_tokens >= 0, "a size");
  require(!meta->eos_id || *meta->eos_id < meta->vocab_size, "an end token outside");
  const std::string text = token_meta_text(*meta);
  require(token_meta_text(parsed_again([&] { return read(text); })) == text,
          "meta.json is written in another way the second time");
}
