// Input: a rank file of tiktoken; merges and a vocabulary, with a byte 0 between; lines of JSON.
#include <algorithm>

#include "dew/data/json_lines.h"
#include "dew/data/tokenizers/load.h"
#include "dew/data/tokenizers/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace dew::fuzz {

void run(std::string_view input) {
  parsed(ErrorCode::data, [&] { return parse_rank_file(input, "x.tiktoken"); });
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view behind = input.substr(std::min(end + 1, input.size()));
  const auto pair = parsed(ErrorCode::data, [&] {
    return parse_vocab_and_merges(input.substr(0, end), behind, "vocab.json");
  });
  if (pair) {
    const auto ids = (*pair)->encode("The word");
    parsed_again([&] { return (*pair)->decode(ids); });
  }
  const JsonLine line = read_json_line(input, "text");
  if (line.fault.empty()) {
    require(valid_utf8_prefix(line.text) == line.text.size(), "text that is not UTF-8");
  } else {
    check_line(line.fault);
  }
}

}  // namespace dew::fuzz
