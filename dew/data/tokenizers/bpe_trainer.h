// Byte-level BPE from the words of a text: the pair of neighbours that occurs most becomes a token,
// again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dew/data/tokenizers/vocabulary.h"
#include "dew/data/tokenizers/word_counts.h"

namespace dew {

struct BpeTraining {
  std::int64_t vocab_size = 0;  // control tokens and the 256 bytes included
  // Control tokens: the first ids.
  std::vector<std::string> special = {"<|endoftext|>"};
  std::int64_t min_count = 2;  // pairs that occur less are no tokens
  // Called now and then with the number of tokens so far. What it throws ends the training.
  std::function<void(std::int64_t tokens)> progress = {};
};

struct TrainedBpe {
  std::vector<std::string> special;
  // Bytes of the tokens behind them: the 256 bytes in the order of their characters
  // (byte_characters.h), then what each merge made that was not there.
  std::vector<std::string> tokens;
  std::vector<std::pair<TokenId, TokenId>> merges;  // ids, control tokens counted

  std::int64_t vocab_size() const {
    return static_cast<std::int64_t>(special.size() + tokens.size());
  }
};

// Of several pairs that occur equally often, that of the lowest ids comes first: the order of the
// words does not matter. Words longer than kMostWord bytes count as several. Throws
// ErrorCode::usage if the vocabulary has no room for the bytes and the control tokens, or one of
// these is empty or there twice.
TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& options);

inline constexpr std::size_t kMostTrainedWord = 1024;

// The text of a tokenizer.json with GPT-2's pre-tokenizer.
std::string tokenizer_json_of(const TrainedBpe& trained);

}  // namespace dew
