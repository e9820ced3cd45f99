// The words of text files, counted on all cores: what a tokenizer is trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/tokenizers/splitter.h"
#include "dew/data/tokenizers/word_counts.h"

namespace dew {

struct CountWordsOptions {
  std::vector<Path> inputs = {};  // as of TokenizeOptions
  std::string text_field = "text";
  bool stdin_is_json_lines = false;
  bool skip_invalid = false;
  std::int64_t threads = 0;  // 0: as many as there are cores
  std::function<void(std::int64_t bytes, std::int64_t total_bytes)> progress = {};
};

struct CountedWords {
  WordCounts words;
  std::int64_t bytes = 0, documents = 0, skipped = 0;
};

// The pieces that `steps` cut the documents into. One pass; in memory are the different words, and
// a few MiB a core. A document of more than a MiB is cut where words end, as far as lines tell.
// Throws as tokenize() does for inputs that are missing or broken.
CountedWords count_words(const PreTokenizer& steps, const CountWordsOptions& options);

// GPT-2's way to cut text into words.
PreTokenizer byte_level_words();

}  // namespace dew
