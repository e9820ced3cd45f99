#include "dew/hf/tensor_files.h"

#include <set>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/checkpoint/box.h"
#include "dew/checkpoint/manifest.h"

namespace dew::hf {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMaxIndex = std::int64_t{1} << 28;

}  // namespace

TensorFiles::TensorFiles(const Path& directory) {
  const bool one = file_kind(directory / kOneFile, kCode) != FileKind::missing;
  const bool index = file_kind(directory / kIndex, kCode) != FileKind::missing;
  if (one && index) {
    fail(kCode, format("'{}' has both {} and {}: one of them must go", directory.string(), kOneFile,
                       kIndex));
  }
  if (one) add_file(directory / kOneFile);
  if (index) read_index(directory, directory / kIndex);
  if (one || index) return;
  fail(kCode,
       format("'{}' has no weights: neither {} nor {}", directory.string(), kOneFile, kIndex),
       "weights in other formats (pytorch_model.bin) are not read");
}

void TensorFiles::add_file(const Path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path, kCode));
  for (const StoredTensor& tensor : files_.back()->tensors()) {
    const auto [at, fresh] = entries_.try_emplace(tensor.name, Entry{files_.back().get(), &tensor});
    if (fresh) continue;
    fail(kCode, format("{}: tensor {} is in '{}' already", path.string(), in_quotes(tensor.name),
                       at->second.file->path().string()));
  }
}

void TensorFiles::read_index(const Path& directory, const Path& index) {
  const Json json = read_json(index, kMaxIndex, kCode);
  const JsonObject object(json, index.string(), kCode);
  const JsonObject map = object.object("weight_map");
  std::map<std::string, std::string> want;
  std::set<std::string> names;
  for (const auto& item : object.at("weight_map").items()) {
    const std::string file = map.text(item.key());
    if (!is_file_name(file)) {
      fail(kCode, format("{}: {} of tensor {} is no name of a file beside it", index.string(),
                         in_quotes(file), in_quotes(item.key())));
    }
    want[item.key()] = file;
    names.insert(file);
  }
  for (const std::string& name : names) add_file(directory / name);
  for (const auto& [tensor, file] : want) {
    const auto found = entries_.find(tensor);
    if (found != entries_.end() && found->second.file->path() == directory / file) continue;
    fail(kCode, format("{}: tensor {} is not in '{}'", index.string(), in_quotes(tensor), file));
  }
  for (const auto& [tensor, entry] : entries_) {
    if (want.contains(tensor)) continue;
    fail(kCode, format("{}: tensor {} is not in {}", entry.file->path().string(), in_quotes(tensor),
                       kIndex));
  }
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const StoredTensor* TensorFiles::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.tensor;
}

const TensorFiles::Entry& TensorFiles::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  DEW_CHECK(found != entries_.end(), std::string(name));
  return found->second;
}

const Path& TensorFiles::file_of(std::string_view name) const { return entry(name).file->path(); }

std::span<const std::byte> TensorFiles::bytes(std::string_view name) const {
  const Entry& found = entry(name);
  return found.file->bytes(*found.tensor);
}

void TensorFiles::read(std::string_view name, std::span<float> out) const {
  read_floats(entry(name).tensor->type, bytes(name), out);
}

}  // namespace dew::hf
