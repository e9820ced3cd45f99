// Input: the text of a tokenizer.json; what is behind a byte 0, if there is one, is text for it.
#include <algorithm>
#include <string>

#include "dew/base/utf8.h"
#include "dew/data/tokenizers/load.h"
#include "dew/data/tokenizers/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {
namespace {

std::string valid_text(std::string_view bytes) {
  std::string text;
  Utf8Stream stream;
  stream.feed(bytes, text);
  stream.finish(text);
  return text;
}

// A text that a tokenizer refuses (a pattern that works too long, no unknown token) is an error.
void check_text(const Tokenizer& tokenizer, const std::string& text, const EncodeOptions& options) {
  const auto ids = parsed(ErrorCode::data, [&] { return tokenizer.encode(text, options); });
  if (!ids) return;
  for (const std::int32_t id : *ids)
    require(id >= 0 && id < tokenizer.vocab_size(), "an id outside of the vocabulary");
  const std::string back =
      parsed_again([&] { return tokenizer.decode(*ids, {.skip_special = false}); });
  require(valid_utf8_prefix(back) == back.size(), "decoding made text that is not UTF-8");
  // In pieces, with an encoder that has seen other text.
  const auto encoder = tokenizer.encoder(options);
  std::vector<std::int32_t> again;
  const auto streamed = parsed(ErrorCode::data, [&] {
    encoder->feed(text, again);
    encoder->finish(again);
    again.clear();
    for (std::size_t at = 0; at < text.size(); at += 3)
      encoder->feed(std::string_view(text).substr(at, 3), again);
    encoder->finish(again);
    return true;
  });
  require(streamed && again == *ids, "pieces of text have other ids");
}

}  // namespace

void run(std::string_view input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const auto tokenizer = parsed(ErrorCode::data, [&] {
    return parse_tokenizer_json(input.substr(0, end), "tokenizer.json");
  });
  if (!tokenizer) return;
  std::string text = "The  caf\xc3\xa9, 123\n\n 's<s> \xe4\xba\xba";
  if (end < input.size()) text = valid_text(input.substr(end + 1));
  for (const bool special : {false, true})
    check_text(**tokenizer, text, {.special_in_text = special, .frame = special});
}

}  // namespace dew::fuzz
