// vocab.json and merges.txt.
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/data/tokenizers/json_parts.h"
#include "dew/data/tokenizers/load.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::string_view kEndToken = "<|endoftext|>";

// Calls visit(line, its number) for each line, without \n and \r.
template <typename Visit>
void each_line(std::string_view text, Visit visit) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line, number);
  }
}

Json read_merges(std::string_view text, const std::string& where) {
  if (valid_utf8_prefix(text) != text.size())
    fail(ErrorCode::data, format("{}: the merges are not UTF-8", where));
  Json merges = Json::array();
  each_line(text, [&](std::string_view line, std::int64_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
      fail(ErrorCode::data, format("{}: line {} of the merges is {}, not two tokens", where, number,
                                   in_quotes(line)));
    }
    merges.push_back(Json::array({line.substr(0, blank), line.substr(blank + 1)}));
  });
  return merges;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                                  const std::string& where) {
  Json file;
  Json& model = file["model"];
  model["type"] = "BPE";
  model["vocab"] = parse_json(vocab, where, ErrorCode::data);
  model["merges"] = read_merges(merges, where);
  file["pre_tokenizer"] = file["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  const Json& tokens = model["vocab"];
  if (const auto end = tokens.is_object() ? tokens.find(kEndToken) : tokens.end();
      end != tokens.end()) {
    Json token = {{"id", *end}, {"content", kEndToken}, {"special", true}};
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token[flag] = false;
    file["added_tokens"] = Json::array({std::move(token)});
  }
  return tokenizer_json::read_tokenizer(file, "vocab.json", where, {});
}

}  // namespace dew
