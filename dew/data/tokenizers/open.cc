// Which kind of tokenizer a file is, and what belongs to it.
#include <algorithm>
#include <array>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/tokenizers/json_parts.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

constexpr std::string_view kJson = "tokenizer.json", kConfig = "tokenizer_config.json",
                           kVocab = "vocab.json", kMerges = "merges.txt",
                           kRanks = "tokenizer.tiktoken", kModel = "tokenizer.model";
constexpr auto kNames =
    std::to_array<std::string_view>({kJson, kVocab, kRanks, kModel, kMerges, kConfig});

std::optional<std::string> read_beside(const Path& directory, std::string_view name) {
  const Path path = directory / name;
  if (file_kind(path, ErrorCode::data) != FileKind::regular) return std::nullopt;
  return read_file(path, ErrorCode::data, kMostTokenizerBytes);
}

// A vocabulary may have a token "model", with a number.
bool is_tokenizer_json(const Json& json) {
  const auto model = json.find("model");
  return model != json.end() && model->is_object();
}

// A token in base64, a blank, a number.
bool looks_like_ranks(std::string_view text) {
  const std::string_view line = text.substr(0, std::min<std::size_t>(text.find('\n'), 4096));
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size()) return false;
  return std::ranges::all_of(line.substr(blank + 1),
                             [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

OpenedTokenizer open_json(const Path& path, std::string text) {
  OpenedTokenizer opened;
  const std::string where = path.string();
  if (const Json json = parse_json(text, where, ErrorCode::data); is_tokenizer_json(json)) {
    const auto config = read_beside(path.parent_path(), kConfig);
    opened.tokenizer =
        tokenizer_json::read_tokenizer(json, std::string(kJson), where, config.value_or(""));
    opened.files.emplace_back(kJson, std::move(text));
    if (config) opened.files.emplace_back(kConfig, *config);
    return opened;
  }
  auto merges = read_beside(path.parent_path(), kMerges);
  if (!merges) merges = read_beside(path.parent_path(), "vocab.bpe");
  if (!merges) {
    fail(ErrorCode::data, format("'{}' has no object 'model', so it is no tokenizer.json, and "
                                 "beside it is no merges.txt or "
                                 "vocab.bpe",
                                 where));
  }
  opened.tokenizer = parse_vocab_and_merges(text, *merges, where);
  opened.files.emplace_back(kVocab, std::move(text));
  opened.files.emplace_back(kMerges, std::move(*merges));
  return opened;
}

OpenedTokenizer open_file(const Path& path) {
  std::string text = read_file(path, ErrorCode::data, kMostTokenizerBytes);
  const std::string where = path.string();
  if (text.empty()) fail(ErrorCode::data, format("the tokenizer '{}' is empty", where));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return open_json(path, std::move(text));
  OpenedTokenizer opened;
  const bool ranks = looks_like_ranks(text);
  opened.tokenizer = ranks ? parse_rank_file(text, where) : parse_sentencepiece(text, where);
  opened.files.emplace_back(ranks ? kRanks : kModel, std::move(text));
  return opened;
}

Path file_in(const Path& directory) {
  for (const std::string_view name :
       {kJson, kVocab, std::string_view("encoder.json"), kModel, kRanks}) {
    if (file_kind(directory / name, ErrorCode::data) == FileKind::regular) return directory / name;
  }
  fail(ErrorCode::data,
       format("'{}' has no tokenizer.json, vocab.json, tokenizer.model or tokenizer.tiktoken",
              directory.string()));
}

}  // namespace

OpenedTokenizer open_tokenizer(const std::string& name) {
  if (name == "byte") return {std::make_unique<ByteTokenizer>(), {}};
  const FileKind kind = name.empty() ? FileKind::missing : file_kind(name, ErrorCode::data);
  if (kind == FileKind::missing) {
    fail(
        ErrorCode::usage, format("there is no tokenizer '{}'", name),
        "'byte', or a file: tokenizer.json, vocab.json beside merges.txt, a rank file of tiktoken, "
        "a .model of SentencePiece");
  }
  return open_file(kind == FileKind::directory ? file_in(name) : Path(name));
}

std::unique_ptr<Tokenizer> carried_tokenizer(const std::string& name, bool with_eos,
                                             const ReadCarried& read, const std::string& where) {
  if (name == "byte") return std::make_unique<ByteTokenizer>(with_eos);
  const auto text = read(name);
  const std::string place = format("{}: {}", where, name);
  if (!text) {
    fail(ErrorCode::data,
         format("'{}' names the tokenizer '{}' and does not carry it", where, name),
         "--ids 1,2,3 needs none");
  }
  if (name == kJson)
    return parse_tokenizer_json(*text, place, read(std::string(kConfig)).value_or(""));
  if (name == kRanks) return parse_rank_file(*text, place);
  if (name == kModel) return parse_sentencepiece(*text, place);
  const auto merges = name == kVocab ? read(std::string(kMerges)) : std::nullopt;
  if (merges) return parse_vocab_and_merges(*text, *merges, place);
  fail(ErrorCode::data,
       format("'{}': the tokenizer '{}' is of no kind that is supported", where, name));
}

std::span<const std::string_view> tokenizer_file_names() { return kNames; }

}  // namespace dew
