// Windows of a token directory: the records that training and evaluation see.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "dew/base/file.h"
#include "dew/data/token_directory.h"

namespace dew {

// Records over one file of ids: record i = ids[i*stride .. i*stride + seq_len], seq_len + 1 of
// them, so that the inputs are its first and the targets its last seq_len. Example: 9 ids, seq_len
// 3, stride 3: two records, 0-3 and 3-6, and 2 ids left over. Copying is cheap; usable from any
// thread.
class Windows {
 public:
  // Throws ErrorCode::usage if seq_len or stride is below 1, ErrorCode::data if the file is shorter
  // than one record.
  Windows(std::shared_ptr<const TokenFile> tokens, std::int64_t seq_len, std::int64_t stride);

  std::int64_t records() const { return records_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t stride() const { return stride_; }
  // Ids after the last whole window.
  std::int64_t ids_left() const;
  const TokenFile& tokens() const { return *tokens_; }

  // ids[first .. first + out.size()) of a record. REQUIRES: inside its seq_len + 1 ids. Throws as
  // TokenFile::read.
  void read(std::int64_t record, std::int64_t first, std::span<std::int32_t> out) const;

 private:
  std::shared_ptr<const TokenFile> tokens_;
  std::int64_t seq_len_, stride_, records_;
};

// What decides which rows a position means. A saved position is valid only where all of it is
// equal.
struct DataIdentity {
  std::uint64_t corpus = 0;  // TokenFile::fingerprint of train.bin
  std::int64_t records = 0, seq_len = 0, stride = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool operator==(const DataIdentity&) const = default;
};

struct LoadOptions {
  std::int64_t batch = 1;  // rows of an optimizer step
  int prefetch = 2;        // batches prepared ahead by a thread; 0: none
};

struct WindowData;

// A data set by name and shape; nothing is opened before load().
struct TokenWindows {
  Path path = {};
  std::int64_t seq_len = 0;
  std::int64_t stride = 0;       // 0: seq_len
  std::int64_t val_batches = 0;  // 0: all
  bool shuffle = true;
  std::uint64_t seed = 0;

  // Opens and checks everything; throws what TokenDirectory and Windows throw.
  WindowData load(const LoadOptions& options) const;
};

struct WindowData {
  TokenWindows options;
  LoadOptions load;
  TokenMeta meta;
  Windows train, val;

  std::int64_t records() const { return train.records(); }
  DataIdentity identity() const;
};

}  // namespace dew
