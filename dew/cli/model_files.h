// Files that a model carries beside its weights, in checkpoints and in Hugging Face directories.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "dew/base/file.h"

namespace dew::cli {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
// The config.json that an imported model came with.
inline constexpr const char* kOriginFile = "hugging_face.json";
// What tokenizers and generation need; carried as they are.
inline constexpr std::array kTokenizerFiles = {kTokenizerFile,
                                               "tokenizer.tiktoken",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "tokenizer.model",
                                               "generation_config.json"};
inline constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{1} << 28;

// A directory to write into: missing, or empty. Throws ErrorCode::usage.
void require_fresh_directory(const Path& path);

}  // namespace dew::cli
