// Bytes of text from a file, a pipe or standard input, decompressed where they are compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dew/base/file.h"

namespace dew {

// What a source is called in messages: its path in quotes, or "standard input".
std::string source_name(const Path& path);

// Reads from front to back. A file of zstd or gzip is told by its first bytes, whatever its name,
// and may be several such parts one after the other. Throws ErrorCode::data, naming it, if it
// cannot be read, is cut off or damaged, or is called .gz or .zst and is not.
class TextSource {
 public:
  // "-": standard input.
  explicit TextSource(const Path& path);
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;
  ~TextSource();

  // Fills `out`; returns less than its size only at the end.
  std::size_t read(std::span<char> out);
  // Bytes taken from the file so far, compressed ones where it is.
  std::int64_t bytes_taken() const;

  class Decompressor;

 private:
  std::size_t read_plain(std::span<char> out);
  void refill();

  std::string name_;
  FileReader reader_;
  std::string buffer_;     // of the file
  std::size_t begin_ = 0;  // what of it is taken
  std::int64_t taken_ = 0;
  std::unique_ptr<Decompressor> decompressor_;
};

}  // namespace dew
