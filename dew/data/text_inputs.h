// What is to be tokenized: files and directories of text.
#pragma once

#include <cstdint>
#include <vector>

#include "dew/base/file.h"

namespace dew {

struct TextInput {
  Path path;  // "-": standard input
  bool json_lines = false;
};

struct TextInputs {
  std::vector<TextInput> files;
  std::int64_t total_bytes = 0;  // of regular files, as they are stored
  std::int64_t hidden = 0;       // names in directories that begin with a dot, left out
};

// Files, and all below directories in bytewise order of names, symbolic links followed. Names that
// end with .jsonl or .ndjson, before .gz or .zst, are JSON lines; standard input is if
// `stdin_lines`. Throws ErrorCode::data for what is not there, cannot be read, or leads back to a
// directory above it; ErrorCode::usage for containers that are not text.
TextInputs list_text_inputs(const std::vector<Path>& paths, bool stdin_lines);

}  // namespace dew
