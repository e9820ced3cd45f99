// Rank files of tiktoken.
#include <algorithm>
#include <charconv>

#include "dew/base/format.h"
#include "dew/data/tokenizers/bpe.h"
#include "dew/data/tokenizers/char_map.h"
#include "dew/data/tokenizers/file_tokenizer.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Special {
  TokenId id;
  std::string text;
};

// A published file: what it does not say itself.
struct Published {
  std::size_t ranks;
  std::string_view name, pattern;
  std::vector<Special> specials;
  std::optional<TokenId> bos;
  TokenId eos;
  bool nfc = false;  // text is normalized first
};

void add_numbered(std::vector<Special>& specials, TokenId first, int from, int to,
                  std::string_view pattern) {
  for (int i = from; i < to; ++i)
    specials.push_back({first + i - from, format(fmt::runtime(pattern), i)});
}

std::vector<Special> llama3_specials() {
  std::vector<Special> all = {{128000, "<|begin_of_text|>"},
                              {128001, "<|end_of_text|>"},
                              {128002, "<|reserved_special_token_0|>"},
                              {128003, "<|reserved_special_token_1|>"},
                              {128004, "<|reserved_special_token_2|>"},
                              {128005, "<|reserved_special_token_3|>"},
                              {128006, "<|start_header_id|>"},
                              {128007, "<|end_header_id|>"},
                              {128008, "<|reserved_special_token_4|>"},
                              {128009, "<|eot_id|>"}};
  add_numbered(all, 128010, 5, 251, "<|reserved_special_token_{}|>");
  return all;
}

std::vector<Special> qwen_specials() {
  std::vector<Special> all = {
      {151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}};
  add_numbered(all, 151646, 0, 205, "<|extra_{}|>");
  return all;
}

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {50256, "r50k_base", kGpt2Pattern, {{50256, "<|endoftext|>"}}, {}, 50256},
      {50280, "p50k_base", kGpt2Pattern, {{50256, "<|endoftext|>"}}, {}, 50256},
      {100256,
       "cl100k_base",
       kCl100kPattern,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}},
       {},
       100257},
      {199998,
       "o200k_base",
       kO200kPattern,
       {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}},
       {},
       199999},
      {128000, "Llama 3", kLlama3Pattern, llama3_specials(), 128000, 128001},
      {151643, "Qwen", kQwenPattern, qwen_specials(), {}, 151643, true},
  };
  return all;
}

[[noreturn]] void refuse_line(const std::string& where, std::int64_t line, std::string_view why) {
  fail(ErrorCode::data, format("{}: line {}: {}", where, line, why));
}

Vocabulary read_ranks(std::string_view text, const std::string& where) {
  Vocabulary ranks;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos)
      refuse_line(where, number, "a token and its rank expected");
    const auto token = decode_base64(line.substr(0, blank));
    if (!token || token->empty()) refuse_line(where, number, "the token is not base64");
    TokenId rank = -1;
    const char* const last = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + blank + 1, last, rank);
    if (error != std::errc() || stop != last || rank < 0 || rank >= Vocabulary::kMostIds) {
      refuse_line(where, number,
                  format("the rank must be a number from 0 to {}", Vocabulary::kMostIds - 1));
    }
    if (!ranks.add(*token, rank))
      refuse_line(where, number, format("the token or its rank {} is there twice", rank));
  }
  return ranks;
}

const Published& published_of(std::size_t ranks, const std::string& where) {
  const auto found = std::ranges::find(published(), ranks, &Published::ranks);
  if (found != published().end()) return *found;
  std::vector<std::string> known;
  for (const Published& p : published()) known.push_back(format("{} ({})", p.name, p.ranks));
  fail(ErrorCode::data,
       format("{}: a rank file does not say how text is cut, and one of {} ranks is not known; "
              "known are {}",
              where, ranks, fmt::join(known, ", ")),
       "a tokenizer.json says everything");
}

}  // namespace

std::unique_ptr<Tokenizer> parse_rank_file(std::string_view text, const std::string& where) {
  TokenizerParts parts;
  parts.vocabulary = read_ranks(text, where);
  const Published& p = published_of(parts.vocabulary.size(), where);
  BpeOptions options;
  options.bytes = true;
  options.whole_pieces = true;
  const std::array<TokenId, 256> no_fallback{};
  parts.model = std::make_shared<Bpe>(parts.vocabulary, merges_of_ranks(parts.vocabulary), options,
                                      no_fallback);
  parts.pre_tokenizer = {
      SplitStep{std::make_shared<Pattern>(p.pattern, PatternSyntax::rust, where)}};
  for (const Special& special : p.specials) {
    if (!parts.vocabulary.add(special.text, special.id)) {
      fail(ErrorCode::data, format("{}: {} ranks, but the id {} of {} is taken", where, p.ranks,
                                   special.id, special.text));
    }
    parts.added.push_back({.text = special.text, .id = special.id, .special = true});
  }
  if (p.nfc) parts.normalizer = {NormalForm::nfc};
  parts.byte_tokens = true;
  parts.bos = p.bos;
  if (p.bos) parts.before = {*p.bos};
  parts.eos = p.eos;
  return std::make_unique<FileTokenizer>("tokenizer.tiktoken", std::move(parts));
}

}  // namespace dew
