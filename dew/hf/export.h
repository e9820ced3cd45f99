// Our models as Hugging Face directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dew/base/dtype.h"
#include "dew/base/file.h"
#include "dew/hf/family.h"
#include "dew/hf/tensor_map.h"

namespace dew::hf {

// Do both make the same function of the same parameters? Where dropout falls, what the backward
// pass makes again and how windows are spelled is no part of it.
bool same_function(const models::TransformerConfig& a, const models::TransformerConfig& b);

// A family that has the model, and the config.json that says so.
struct Target {
  const Family* family = nullptr;
  std::string config;
};

struct ExportOptions {
  DType dtype = DType::f32;                  // f32 or bf16 (rounded to nearest, ties to even)
  std::int64_t shard_bytes = 5'000'000'000;  // a file is closed before it has more, with an index
  std::optional<std::int64_t> eos_id = {};   // that ends the texts of the model's training
};

// For a model that was imported, or trained on from a published one, `origin` is the config.json
// that it came with, which is kept but for its dtype, an end token that it does not know, and a
// number of positions below the model's. Otherwise the first family that has all the config's
// options. Throws ErrorCode::checkpoint if `origin` is of another model, or no family has it.
Target find_target(const models::TransformerConfig& config, std::string_view origin,
                   const ExportOptions& options);

// config.json and the weights, as transformers names the files. `find` gives parameters of ours by
// their outside names; a span is not needed after the next call. REQUIRES: the directory exists.
void write_model(const Path& directory, const Target& target,
                 const models::TransformerConfig& config, const FindOurs& find,
                 const ExportOptions& options);

}  // namespace dew::hf
