// Token directories: train.bin and val.bin (flat little-endian ids), described by meta.json.
// docs/data_format.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dew/base/file.h"

namespace dew {

// Type of the stored ids; the value is its width in bytes.
enum class IdType : std::uint8_t { uint8 = 1, uint16 = 2, uint32 = 4 };

std::string_view name(IdType type);
// The smallest for ids below `vocab_size`.
IdType id_type_for(std::int64_t vocab_size);

// What meta.json says. `documents` and the digests are absent in directories of other programs.
struct TokenMeta {
  std::string tokenizer;
  std::int64_t vocab_size = 0;
  IdType dtype = IdType::uint8;
  std::int64_t train_tokens = 0, val_tokens = 0;
  std::optional<std::int64_t> eos_id, documents;
  std::optional<std::int64_t> bos_id = {};  // that every document begins with; absent: none does
  std::optional<std::uint64_t> train_digest, val_digest;  // XXH3-64 of the files
};

// All throw ErrorCode::data, naming the file (`where`) and the member at fault.
TokenMeta read_token_meta(const Path& directory);
TokenMeta parse_token_meta(std::string_view text, const std::string& where);
void write_token_meta(const Path& directory, const TokenMeta& meta);
std::string token_meta_text(const TokenMeta& meta);

// What one file of ids must be.
struct TokenFileSpec {
  IdType dtype = IdType::uint8;
  std::int64_t vocab_size = 256;
  std::int64_t tokens = 0;
  std::optional<std::uint64_t> digest = {};
};

// One file of ids, mapped. Immutable and usable from any thread.
//
// Nothing wrong is ever passed on, whatever the size: every read checks its ids against the
// vocabulary. Up to kScanBytes the constructor also reads the whole file once (at 9 GB/s from the
// page cache), checking all ids and the digest.
class TokenFile {
 public:
  static constexpr std::int64_t kScanBytes = std::int64_t{1} << 30;

  // Throws ErrorCode::data, each with its own text: missing, empty, not whole ids, fewer or more
  // ids than the spec says, and (when scanned) an id outside the vocabulary or another digest.
  TokenFile(Path path, const TokenFileSpec& spec);
  // The same over bytes in memory that are aligned as the ids and outlive this; `path` is for
  // messages.
  TokenFile(Path path, std::span<const std::byte> bytes, const TokenFileSpec& spec);

  const Path& path() const { return path_; }
  std::int64_t size() const { return spec_.tokens; }  // in ids

  // ids[first .. first + out.size()) as int32. REQUIRES: the range lies in the file. Throws
  // ErrorCode::data with file, position and id if one is outside the vocabulary.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

  // Tells one corpus from another: the XXH3-64 of the file; above kScanBytes of its size and 257
  // blocks of 64 KiB spread over it.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  void open();
  void check_size() const;
  std::uint64_t scan() const;
  std::uint64_t sample() const;
  [[noreturn]] void refuse_id(std::int64_t position, std::uint32_t id) const;

  Path path_;
  TokenFileSpec spec_;
  MappedFile map_;
  std::span<const std::byte> bytes_;
  std::uint64_t fingerprint_ = 0;
};

// An opened directory, all of the above checked.
class TokenDirectory {
 public:
  explicit TokenDirectory(const Path& path);

  const TokenMeta& meta() const { return meta_; }
  const std::shared_ptr<const TokenFile>& train() const { return train_; }
  const std::shared_ptr<const TokenFile>& val() const { return val_; }

 private:
  TokenMeta meta_;
  std::shared_ptr<const TokenFile> train_, val_;
};

}  // namespace dew
