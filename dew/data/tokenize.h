// Text files to a token directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/token_directory.h"

namespace dew {

class Tokenizer;

struct TokenizeProgress {
  std::int64_t bytes = 0, total_bytes = 0;  // of text; the total does not count pipes
  std::int64_t tokens = 0;
};

struct TokenizeOptions {
  // Files, each one document, or directories: every file below, in bytewise order of names,
  // symbolic links followed, names that begin with a dot left out. A pipe is a file.
  std::vector<Path> inputs = {};
  Path out = {};
  double val_fraction = 0.02;  // the first floor(fraction x ids) ids become val.bin
  // Called about once a MiB. What it throws ends the work cleanly.
  std::function<void(const TokenizeProgress&)> progress = {};
};

struct TokenizeResult {
  TokenMeta meta;
  std::int64_t bytes = 0;  // of text read
  std::int64_t empty_documents =
      0;                    // files of 0 bytes: no document, not an error while others have text
  std::int64_t hidden = 0;  // names in directories that were left out
};

// One pass over the text with a few MiB of memory whatever its size. The ids go to a directory
// beside `out`, are split there (which takes their size twice on disk for a moment), synced and
// renamed: `out` is complete or as it was.
//
// Throws ErrorCode::usage if `out` exists and is not an empty directory, the fraction is not in (0,
// 1) or an input is of a kind that is not supported yet (.jsonl, .gz, .zst); ErrorCode::data if an
// input cannot be read, there is no text at all or too little for one validation id, or writing
// fails.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options);

}  // namespace dew
