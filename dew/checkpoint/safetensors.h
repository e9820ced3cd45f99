// Files of named tensors in the safetensors format: 8 bytes with the length of a JSON header, the
// header, the tensors' bytes. Used for our checkpoints and for other people's models.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/dtype.h"
#include "dew/base/file.h"
#include "dew/base/shape.h"

namespace dew {

// Element types of the files; more than programs compute with.
enum class StoredType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};

std::string_view name(StoredType type);  // as in the files: "F32", "BF16", "BOOL"
std::int64_t byte_size(StoredType type);
bool is_float(StoredType type);
StoredType stored_type(DType type);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  Dims shape;
  std::int64_t offset = 0, bytes = 0;  // in the file, from its first byte

  bool operator==(const StoredTensor&) const = default;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by name
  std::map<std::string, std::string> metadata;
  std::int64_t bytes = 0;  // length and header: where the tensors' bytes begin
};

// The header of a whole file given as bytes. Refuses, with `where` and the tensor's name: a length
// beyond the file or 100 MB, JSON that is malformed, not UTF-8 or has a name twice, unknown types,
// shapes whose size is no number or not that of the bytes, and bytes that lie outside the file,
// twice in a tensor or in none.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where,
                                    ErrorCode code);

// A mapped file: only what is asked for is read. Immutable, usable from any thread.
class SafetensorsFile {
 public:
  // Refuses what parse_safetensors refuses.
  SafetensorsFile(const Path& path, ErrorCode code);

  const Path& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // nullptr if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  // As they are in the file: row-major, little-endian, perhaps not aligned.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;

 private:
  Path path_;
  MappedFile map_;
  SafetensorsHeader header_;
};

// Elements as numbers, to.size() of them from the beginning of `bytes`. Floats are converted to
// f32 (f64 rounded), integers and booleans to i64. REQUIRES: is_float(type), or not; u64 above
// 2^63 - 1 and bytes of a boolean other than 0 and 1 are ErrorCode `code`.
void read_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> to);
void read_integers(StoredType type, std::span<const std::byte> bytes, std::span<std::int64_t> to,
                   ErrorCode code);

// Length and header of a file whose tensors' bytes follow in the order given; offsets and byte
// counts are filled in. REQUIRES: names differ and are UTF-8, and sizes are those of tensors.
std::string safetensors_header(std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata);

// Writes one file front to back, holding only its header in memory.
class SafetensorsWriter {
 public:
  // `tensors` in the order in which their bytes will come (largest element types first keeps them
  // aligned); offsets and byte counts are filled in. REQUIRES: names differ and are UTF-8.
  SafetensorsWriter(const Path& path, ErrorCode code, std::vector<StoredTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // With offset and bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  std::int64_t header_bytes() const { return header_bytes_; }  // with the 8 of the length
  std::uint64_t header_digest() const { return header_digest_; }
  std::int64_t file_bytes() const { return file_bytes_; }

  // The next bytes of the tensors, cut anywhere.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Syncs and closes. REQUIRES: all bytes were written.
  void finish();

 private:
  FileWriter file_;
  std::vector<StoredTensor> tensors_;
  std::int64_t header_bytes_ = 0, file_bytes_ = 0;
  std::uint64_t header_digest_ = 0;
};

}  // namespace dew
