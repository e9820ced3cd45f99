// Files that a model carries beside its weights, in checkpoints and in Hugging Face directories.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dew::cli {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kGenerationFile = "generation_config.json";
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
                                               kGenerationFile};
inline constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{1} << 28;

}  // namespace dew::cli
