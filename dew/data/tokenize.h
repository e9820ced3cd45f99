// Text files to a token directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dew/base/file.h"
#include "dew/data/token_directory.h"

namespace dew {

class Tokenizer;

struct TokenizeProgress {
  // Of the files as they are stored; the total does not count pipes.
  std::int64_t bytes = 0, total_bytes = 0;
  std::int64_t tokens = 0;
};

struct TokenizeOptions {
  // Files, each one document or (.jsonl, .ndjson) one a line; directories: every file below, in
  // bytewise order of names, symbolic links followed, names that begin with a dot left out; "-":
  // standard input. Compressed ones (zstd, gzip) are told by their first bytes.
  std::vector<Path> inputs = {};
  Path out = {};
  double val_fraction = 0.02;       // the first floor(fraction x ids) ids become val.bin
  std::string text_field = "text";  // the member of JSON lines that is the document
  bool stdin_is_json_lines = false;
  // Each document begins with the tokenizer's begin token, once, if its text spells it too. Where
  // that is the end token as well, the end of the document before it is meant.
  bool add_bos = false;
  // Control tokens that are spelled out in the text are found; else text is text.
  bool special_in_text = false;
  // Lines that are not UTF-8 or no JSON as expected are left out and counted, not an error.
  bool skip_invalid = false;
  std::int64_t threads = 0;  // 0: as many as there are cores
  // Written beside the ids: what the tokenizer is made from.
  std::vector<std::pair<std::string, std::string>> files = {};
  // Called about once a MiB. What it throws ends the work cleanly.
  std::function<void(const TokenizeProgress&)> progress = {};
};

struct TokenizeResult {
  TokenMeta meta;
  std::int64_t bytes = 0;  // of text
  // Files of 0 bytes and empty texts: no documents, not an error while others have text.
  std::int64_t empty_documents = 0;
  std::int64_t hidden = 0;   // names in directories that were left out
  std::int64_t skipped = 0;  // lines that were left out because they are broken
};

// One pass over the text on all cores, with some ten MiB of memory a core whatever its size; the
// same ids for any number of threads. The ids go to a directory beside `out`, are split there
// (which takes their size twice on disk for a moment: where validation ends is known at the end
// only), synced and renamed: `out` is complete or as it was.
//
// Throws ErrorCode::usage if `out` exists and is not an empty directory, the fraction is not in (0,
// 1), the tokenizer has no begin token to add or an input is of a kind that is not supported;
// ErrorCode::data if an input cannot be read or is broken (source, line and byte), there is no text
// at all or too little for one validation id, or writing fails.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options);

}  // namespace dew
