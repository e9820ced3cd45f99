// Tokenizers from files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/tokenizer.h"

namespace dew {

inline constexpr std::int64_t kMostTokenizerBytes = std::int64_t{1} << 28;

// All of these throw ErrorCode::data, naming `where` and the member or line, for what is damaged,
// contradicts itself or is not supported.

// The text of a tokenizer.json. `config` is the text of the tokenizer_config.json beside it, which
// names the begin and end tokens; empty: there is none, and they are the well-known names among the
// special tokens.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where,
                                                std::string_view config = {});

// GPT-2's pair of files, vocab.json and merges.txt, also called encoder.json and vocab.bpe.
std::unique_ptr<Tokenizer> parse_vocab_and_merges(std::string_view vocab, std::string_view merges,
                                                  const std::string& where);

// A rank file of tiktoken: a token in base64, a blank, its rank. The file does not say how text is
// cut and which control tokens there are; that is known of published ones, told by their number of
// ranks.
std::unique_ptr<Tokenizer> parse_rank_file(std::string_view text, const std::string& where);

// A .model file of SentencePiece. Control tokens in text are always text.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& where);

// A tokenizer and its files under the names that directories and checkpoints carry them by, the
// first being the tokenizer's name.
struct OpenedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> files;
};

// "byte", a file of any of these kinds, told by its content, or a directory that has one under its
// usual name. Throws ErrorCode::usage if there is nothing of that name.
OpenedTokenizer open_tokenizer(const std::string& name);

// The text of a file among those that carry a tokenizer; none if there is none of that name.
using ReadCarried = std::function<std::optional<std::string>(const std::string& file)>;

// The tokenizer that meta.json or a checkpoint names, from the files beside it.
std::unique_ptr<Tokenizer> carried_tokenizer(const std::string& name, bool with_eos,
                                             const ReadCarried& read, const std::string& where);

// Names of files that tokenizers are carried by, the first files of OpenedTokenizer first.
std::span<const std::string_view> tokenizer_file_names();

}  // namespace dew
