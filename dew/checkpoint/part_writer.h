// What one process writes of a checkpoint: pieces of arrays, into a directory that is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"
#include "dew/checkpoint/shard_writer.h"

namespace dew {

struct WriterOptions {
  // Bytes of tensors in one file; also what the writer holds in memory at most.
  std::int64_t shard_bytes = std::int64_t{128} << 20;
  bool bytes_stay = false;  // what add() is given lives until the end: nothing is held
  std::int64_t owner = 0;   // number of the process, part of the files' names
};

// An array of a state: what it is, and its bytes in parts that cover it once; those of all
// processes together where several write.
struct StateTensor {
  struct Part {
    Box box;
    std::span<const std::byte> bytes;
  };

  TensorRecord record;  // without pieces
  std::vector<Part> parts;
};

// Where everything lies that a process has written. Tensors go by their places in the state, which
// is the same in all processes.
struct WrittenPart {
  std::vector<WrittenPiece> pieces;
  std::vector<ShardFile> files;
};
// As processes tell each other. from_text() throws ErrorCode::checkpoint for any other text.
std::string to_text(const WrittenPart& part);
WrittenPart part_from_text(std::string_view text, const std::string& where);

class PartWriter {
 public:
  PartWriter(Path directory, const WriterOptions& options);

  // Announces a tensor, `tensor.pieces` left empty.
  void declare(TensorRecord tensor);
  const std::vector<TensorRecord>& tensors() const { return tensors_; }

  // The bytes of a box of it, in any order. Throws ErrorCode::non_finite, naming the tensor, if one
  // is not a finite number: a state that cannot be continued must not push out one that can.
  void add(std::string_view tensor, const Box& box, std::span<const std::byte> bytes);
  void add(std::string_view tensor, std::span<const std::byte> bytes);  // all of it

  // All tensors of a state, and its parts.
  void add(std::span<const StateTensor> state);

  // Writes what is left and syncs the directory.
  WrittenPart finish();

 private:
  std::size_t index(std::string_view name) const;

  Path directory_;
  std::vector<TensorRecord> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  ShardWriter shards_;
};

}  // namespace dew
