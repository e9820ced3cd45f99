// For tests of the data room: token directories made of ids.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file_test_support.h"
#include "dew/data/token_directory.h"
#include "dew/data/windows.h"

namespace dew {

template <typename T>
void write_ids(const Path& path, const std::vector<T>& ids) {
  write_text(path, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)});
}

inline std::string meta_text(std::int64_t vocab_size, std::string_view dtype, std::size_t train,
                             std::size_t val) {
  return "{\"tokenizer\": \"byte\", \"vocab_size\": " + std::to_string(vocab_size) +
         ", \"dtype\": \"" + std::string(dtype) + "\", \"train_tokens\": " + std::to_string(train) +
         ", \"val_tokens\": " + std::to_string(val) + ", \"eos_id\": null}";
}

template <typename T>
void write_directory(const Path& path, std::int64_t vocab_size, const std::vector<T>& train,
                     const std::vector<T>& val) {
  create_directories(path, ErrorCode::internal);
  write_ids(path / "train.bin", train);
  write_ids(path / "val.bin", val);
  const auto type = static_cast<IdType>(sizeof(T));
  write_text(path / "meta.json", meta_text(vocab_size, name(type), train.size(), val.size()));
}

// Calls of operator new in this program, by any thread.
std::int64_t allocations_so_far();

// A file of the ids 0, 1, 2, ... as uint32, so that an id tells its own position.
inline std::shared_ptr<const TokenFile> counting_file(const Path& path, std::int64_t tokens) {
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0u);
  write_ids(path, ids);
  return std::make_shared<TokenFile>(
      path, TokenFileSpec{.dtype = IdType::uint32, .vocab_size = 1 << 30, .tokens = tokens});
}

}  // namespace dew
