// Packs pieces of tensors into safetensors files of one size limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"
#include "dew/checkpoint/safetensors.h"

namespace dew {

// A piece, and the tensor it belongs to by its place in a list of TensorRecords.
struct WrittenPiece {
  std::size_t tensor = 0;
  StoredPiece piece;
  bool operator==(const WrittenPiece&) const = default;
};

struct ShardOptions {
  std::int64_t owner = 0;  // the process that writes
  std::int64_t shard_bytes = 0;
  bool bytes_stay = false;  // what add() is given lives until finish()
};

// Pieces come in any order and are gathered until they fill a file, because a header stands before
// the bytes that it describes: in memory, which stays below `shard_bytes`, unless their bytes stay.
// A piece that fills a file alone is never copied.
class ShardWriter {
 public:
  // Files are `directory`/shard-OWNER-NUMBER.safetensors.
  ShardWriter(Path directory, const ShardOptions& options);

  // REQUIRES: `bytes` are those of the box, which has elements.
  void add(const TensorRecord& tensor, std::size_t index, const Box& box,
           std::span<const std::byte> bytes);
  // Writes what is left. Then pieces() and files() are complete.
  void finish() { flush(); }

  const std::vector<WrittenPiece>& pieces() const { return pieces_; }
  const std::vector<ShardFile>& files() const { return files_; }

 private:
  struct Held {
    WrittenPiece written;  // its file and offset are open
    StoredTensor header;
    std::span<const std::byte> bytes;  // in buffer_, or the caller's
  };

  void flush();
  void write(std::span<Held> held);

  Path directory_;
  ShardOptions options_;
  std::vector<std::byte> buffer_;  // never grows beyond what was reserved: `Held` points into it
  std::size_t held_bytes_ = 0;
  std::vector<Held> held_;
  std::vector<WrittenPiece> pieces_;
  std::vector<ShardFile> files_;
};

}  // namespace dew
