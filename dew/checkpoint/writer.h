// Writes a checkpoint: complete or absent, whenever the power goes.
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
  bool bytes_stay = false;  // what add() is given lives until commit(): nothing is held
  std::int64_t owner = 0;   // number of the process, part of the files' names
};

// An array of a state: what it is, and its bytes in parts that cover it once.
struct StateTensor {
  struct Part {
    Box box;
    std::span<const std::byte> bytes;
  };

  TensorRecord record;  // without pieces
  std::vector<Part> parts;
};

// Everything goes into DIRECTORY/step_00000400.partial; commit() syncs it, writes the manifest
// last, and renames. Every failure is an error that leaves older checkpoints alone; without
// commit(), what was written is removed. Example:
//
//   CheckpointWriter writer("runs/x/checkpoints", info);
//   writer.declare({.name = "params/a", .dtype = DType::f32, .shape = {4, 2}, .axes = {"", ""}});
//   writer.add("params/a", {{2, 0}, {2, 2}}, rows_2_and_3);
//   writer.add("params/a", {{0, 0}, {2, 2}}, rows_0_and_1);
//   writer.commit();
//
// Belongs to one thread at a time, which may be any.
class CheckpointWriter {
 public:
  // Makes the directory where missing and removes what killed writers left in it. Throws
  // ErrorCode::checkpoint if a complete checkpoint of this step is there already; a damaged one is
  // replaced at commit() and kept as step_00000400.broken.
  CheckpointWriter(Path directory, CheckpointInfo info, const WriterOptions& options = {});
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  // Announces a tensor, `tensor.pieces` left empty.
  void declare(TensorRecord tensor);

  // The bytes of a box of it, in any order; not needed after the call but for bytes_stay. A tensor
  // without elements has no pieces. Throws ErrorCode::non_finite, naming the tensor, if one is not
  // a finite number: a state that cannot be continued must not push out one that can.
  void add(std::string_view tensor, const Box& box, std::span<const std::byte> bytes);
  void add(std::string_view tensor, std::span<const std::byte> bytes);  // all of it

  // Another file, such as tokenizer.json.
  void add_file(const std::string& name, std::string_view text);

  // Afterwards the checkpoint is complete and lasting. Returns its path. REQUIRES: every declared
  // tensor was added exactly once.
  Path commit();

 private:
  Path partial() const;
  void check_room();
  void gather_pieces();

  Path directory_, final_;
  Manifest manifest_;
  std::unordered_map<std::string, std::size_t> index_;
  ShardWriter shards_;
  bool replaces_ = false, committed_ = false;
};

// A file beside the shards: its name and its bytes.
struct CarriedFile {
  std::string name, bytes;
};

// A checkpoint of these arrays and files. Returns its path.
Path write_checkpoint(const Path& directory, const CheckpointInfo& info,
                      std::span<const StateTensor> state, std::span<const CarriedFile> files = {});

}  // namespace dew
