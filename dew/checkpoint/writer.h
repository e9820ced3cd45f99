// Writes a checkpoint: complete or absent, whenever the power goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"
#include "dew/checkpoint/part_writer.h"

namespace dew {

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

  // See PartWriter. A tensor without elements has no pieces.
  void declare(TensorRecord tensor) { part_.declare(std::move(tensor)); }
  void add(std::string_view tensor, const Box& box, std::span<const std::byte> bytes) {
    part_.add(tensor, box, bytes);
  }
  void add(std::string_view tensor, std::span<const std::byte> bytes) { part_.add(tensor, bytes); }
  void add(std::span<const StateTensor> state) { part_.add(state); }

  // Where other processes write their parts of the declared tensors, and what they have written.
  Path partial() const;
  void adopt(const WrittenPart& part);

  // Another file, such as tokenizer.json.
  void add_file(const std::string& name, std::string_view text);

  // Afterwards the checkpoint is complete and lasting. Returns its path. REQUIRES: every declared
  // tensor was added exactly once, here or by other processes.
  Path commit();

 private:
  void check_room();
  void gather_pieces();

  Path directory_, final_;
  Manifest manifest_;
  PartWriter part_;
  std::vector<WrittenPiece> pieces_;
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
