// The tensors of a Hugging Face model directory: model.safetensors, or several files and
// model.safetensors.index.json that says what is where.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/safetensors.h"

namespace dew::hf {

// Files are mapped; only what is asked for is read. Immutable, usable from any thread. All faults
// are ErrorCode::checkpoint and name file and tensor: files that are missing or none, an index and
// files that do not say the same, a name twice.
class TensorFiles {
 public:
  explicit TensorFiles(const Path& directory);

  // All names, sorted.
  std::vector<std::string> names() const;
  // nullptr if there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  const Path& file_of(std::string_view name) const;
  std::span<const std::byte> bytes(std::string_view name) const;

  // The tensor's elements as f32. REQUIRES: it is there and floating point; `out` has its size.
  void read(std::string_view name, std::span<float> out) const;

 private:
  struct Entry {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  const Entry& entry(std::string_view name) const;
  void add_file(const Path& path);
  void read_index(const Path& directory, const Path& index);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace dew::hf
