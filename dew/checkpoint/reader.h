// Reads a checkpoint, any box of any tensor, and trusts nothing that a digest does not cover.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"

namespace dew {

// Bytes of tensors so far.
struct ReadTraffic {
  std::int64_t copied = 0;   // that read() gave
  std::int64_t checked = 0;  // that were compared with digests
};

// Opening reads the manifest and looks at the sizes of all files. Shards are mapped when they are
// first needed; of a tensor only the pieces that a box meets are read, each is compared with its
// digest once, the first time. All of it may be called from several threads.
//
// Whatever is missing, truncated or changed is ErrorCode::checkpoint naming the file and the
// tensor.
class CheckpointReader {
 public:
  explicit CheckpointReader(const Path& directory);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const Path& path() const;
  const Manifest& manifest() const;
  const CheckpointInfo& info() const { return manifest().info; }
  const std::vector<TensorRecord>& tensors() const { return manifest().tensors; }

  // nullptr if there is none of that name.
  const TensorRecord* find(std::string_view name) const;
  // The tensor, which must be there with this type and shape; the error has both.
  const TensorRecord& require(std::string_view name, DType dtype, const Dims& shape) const;

  // The elements of `box` in row-major order. REQUIRES: `tensor` is one of tensors(), the box lies
  // in it, and `out` has exactly its bytes.
  void read(const TensorRecord& tensor, const Box& box, std::span<std::byte> out) const;
  void read(const TensorRecord& tensor, std::span<std::byte> out) const {
    read(tensor, whole(tensor.shape), out);
  }

  ReadTraffic traffic() const;

  // XXH3-64 of the whole tensor's bytes in row-major order, however it is stored. Two states are
  // equal if these are.
  std::uint64_t digest(const TensorRecord& tensor) const;

  // A file that is no shard, such as "tokenizer.json".
  bool has_file(std::string_view name) const;
  std::string read_extra_file(std::string_view name) const;

  // Compares every byte of every file with its digest, and the shards' headers with the manifest.
  // The error names all that is wrong.
  void verify_all() const;
  // The same for one of several that divide the work, each with about as many bytes, of few files.
  // Returns what is wrong, a line each.
  std::vector<std::string> problems_of_share(int share, int shares) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dew
