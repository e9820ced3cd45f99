// The programs of generation, made from the model's own forward pass: `prefill` reads up to `chunk`
// tokens a row in one call, `decode` one. Both write keys and values of what they read to a cache
// that outlives the call, in place, and give the logits behind each row's last token.
#pragma once

#include <string>

#include "dew/ir/module.h"
#include "dew/nn/transformer.h"

namespace dew {

struct CacheShape {
  std::int64_t rows = 1;      // texts side by side
  std::int64_t capacity = 0;  // tokens that each can have
  std::int64_t chunk = 1;     // tokens of a row that one call reads at most; 1: no prefill program
};

// Names of registers. Parameters go by their training names (train/registers.h), in the type that
// is computed with.
namespace generation {
// What a call reads, each with the program's name in front: "decode/ids".
inline constexpr const char* kIds = "/ids";              // i32[rows, t]
inline constexpr const char* kPositions = "/positions";  // i32[rows, t]
inline constexpr const char* kSegments = "/segments";    // i32[rows, t]
inline constexpr const char* kColumns = "/columns";      // i32[rows, t], of the cache; -1: none
inline constexpr const char* kLast = "/last";  // i32[rows]: the token whose logits are wanted

inline constexpr const char* kCachedKeys = "cache/keys";      // [layers, rows, capacity, k, d]
inline constexpr const char* kCachedValues = "cache/values";  // the same
inline constexpr const char* kCachedPositions = "cache/positions";  // i32[rows, capacity]
inline constexpr const char* kCachedSegments = "cache/segments";    // the same
inline constexpr const char* kLogits = "logits";                    // f32[rows, vocab_size]

inline constexpr const char* kPrefill = "prefill";  // programs and their call lists
inline constexpr const char* kDecode = "decode";
}  // namespace generation

// The type in which a parameter is kept: vectors are f32 in every run.
DType parameter_dtype(const ParamSpec& param, DType compute);

// One call that reads `tokens` tokens a row. compute: f32 or bf16.
Program generation_program(const models::CausalTransformer& model, const CacheShape& shape,
                           const std::string& name, std::int64_t tokens, DType compute);

// Call lists "decode" and, if shape.chunk > 1, "prefill".
Module generation_module(const models::CausalTransformer& model, const CacheShape& shape,
                         DType compute);

}  // namespace dew
