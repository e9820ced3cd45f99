#include "dew/checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;

// Is one of kBlock elements infinite or NaN, that is, are all bits of its exponent set? The
// constant count makes the compiler use vector instructions.
constexpr std::size_t kBlock = 1024;
template <class Word>
bool block_has_non_finite(const std::byte* bytes, Word exponent) {
  std::array<Word, kBlock> words;
  std::memcpy(words.data(), bytes, sizeof words);
  Word found = 0;
  for (const Word word : words) found = static_cast<Word>(found | ((word & exponent) == exponent));
  return found != 0;
}

// The first such element; none if all are finite.
template <class Word>
std::optional<std::size_t> find_non_finite(std::span<const std::byte> bytes, Word exponent) {
  const std::size_t count = bytes.size() / sizeof(Word);
  std::size_t i = 0;
  while (i + kBlock <= count && !block_has_non_finite(&bytes[i * sizeof(Word)], exponent)) {
    i += kBlock;
  }
  for (; i < count; ++i) {
    Word word;
    std::memcpy(&word, &bytes[i * sizeof(Word)], sizeof(Word));
    if ((word & exponent) == exponent) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> find_non_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::f32:
      return find_non_finite<std::uint32_t>(bytes, 0x7f800000u);
    case DType::bf16:
      return find_non_finite<std::uint16_t>(bytes, 0x7f80u);
    case DType::f64:
      return find_non_finite<std::uint64_t>(bytes, 0x7ff0000000000000u);
    default:
      return std::nullopt;
  }
}

void write_new_file(const Path& path, std::string_view text) {
  FileWriter file(path, kCode);
  file.write(text);
  file.finish();
}

}  // namespace

CheckpointWriter::CheckpointWriter(Path directory, CheckpointInfo info,
                                   const WriterOptions& options)
    : directory_(std::move(directory)),
      final_(directory_ / step_name(info.clocks.step)),
      shards_(partial(), {options.owner, options.shard_bytes, options.bytes_stay}) {
  manifest_.info = std::move(info);
  if (file_kind(directory_, kCode) == FileKind::missing) {
    create_directories(directory_, kCode);
    sync_directory(directory_.parent_path(), kCode);
  }
  clean_leftovers(directory_);
  check_room();
  if (!create_directory(partial(), kCode)) {
    fail(kCode, format("'{}' is in the way and cannot be removed", partial().string()));
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (!committed_) remove_quietly(partial());
}

Path CheckpointWriter::partial() const {
  Path path = final_;
  path += kPartialSuffix;
  return path;
}

// The step's name must be free, or taken by something that nobody can resume from.
void CheckpointWriter::check_room() {
  if (file_kind(final_, kCode) == FileKind::missing) return;
  try {
    CheckpointReader(final_).verify_all();
  } catch (const Error&) {
    replaces_ = true;
    return;
  }
  fail(kCode, format("'{}' exists and is complete: it is not overwritten", final_.string()),
       "resume from it, or use another run.dir");
}

void CheckpointWriter::declare(TensorRecord tensor) {
  DEW_CHECK(is_tensor_name(tensor.name), in_quotes(tensor.name));
  DEW_CHECK(checked_bytes(tensor.shape, byte_size(tensor.dtype)).has_value(), tensor.name);
  DEW_CHECK(tensor.axes.size() == tensor.shape.size() && tensor.pieces.empty(), tensor.name);
  DEW_CHECK(index_.emplace(tensor.name, manifest_.tensors.size()).second, tensor.name);
  manifest_.tensors.push_back(std::move(tensor));
}

void CheckpointWriter::add(std::string_view name, const Box& box,
                           std::span<const std::byte> bytes) {
  const auto found = index_.find(std::string(name));
  DEW_CHECK(found != index_.end(), in_quotes(name));
  const TensorRecord& tensor = manifest_.tensors[found->second];
  DEW_CHECK(lies_in(box, tensor.shape), tensor.name + to_string(box));
  DEW_CHECK(static_cast<std::int64_t>(bytes.size()) == box.elements() * byte_size(tensor.dtype),
            tensor.name + to_string(box));
  if (const auto bad = find_non_finite(tensor.dtype, bytes)) {
    fail(ErrorCode::non_finite,
         format("step {} is not saved: tensor '{}' has a value that is not finite (element {} of "
                "{})",
                manifest_.info.clocks.step, tensor.name, *bad, to_string(box)));
  }
  if (!bytes.empty()) shards_.add(tensor, found->second, box, bytes);
}

void CheckpointWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = index_.find(std::string(name));
  DEW_CHECK(found != index_.end(), in_quotes(name));
  add(name, whole(manifest_.tensors[found->second].shape), bytes);
}

void CheckpointWriter::add_file(const std::string& name, std::string_view text) {
  DEW_CHECK(is_file_name(name), in_quotes(name));
  write_new_file(partial() / name, text);
  manifest_.files.push_back({.name = name,
                             .bytes = static_cast<std::int64_t>(text.size()),
                             .digest = digest_of(std::as_bytes(std::span(text)))});
}

void CheckpointWriter::gather_pieces() {
  manifest_.shards = shards_.files();
  for (const WrittenPiece& written : shards_.pieces()) {
    manifest_.tensors[written.tensor].pieces.push_back(written.piece);
  }
  for (TensorRecord& tensor : manifest_.tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const StoredPiece& a, const StoredPiece& b) { return a.box.start < b.box.start; });
    std::vector<Box> boxes;
    for (const StoredPiece& piece : tensor.pieces) boxes.push_back(piece.box);
    const std::string problem = tiling_problem(tensor.shape, boxes);
    DEW_CHECK(problem.empty(), format("tensor '{}': {}", tensor.name, problem));
  }
}

Path CheckpointWriter::commit() {
  shards_.finish();
  gather_pieces();
  const std::string text = manifest_text(manifest_);
  // What no reader would take must not push out what one takes.
  DEW_CHECK(parse_manifest(text, final_.string()) == manifest_, final_.string());
  write_new_file(partial() / kManifestName, text);
  sync_directory(partial(), kCode);
  if (replaces_) {
    Path broken = final_;
    broken += kBrokenSuffix;
    remove_quietly(broken);
    rename_file(final_, broken, kCode);
  }
  rename_file(partial(), final_, kCode);
  committed_ = true;
  sync_directory(directory_, kCode);
  return final_;
}

Path write_checkpoint(const Path& directory, const CheckpointInfo& info,
                      std::span<const StateTensor> state, std::span<const CarriedFile> files) {
  CheckpointWriter writer(directory, info, {.bytes_stay = true});
  for (const StateTensor& tensor : state) writer.declare(tensor.record);
  for (const StateTensor& tensor : state) {
    for (const auto& [box, bytes] : tensor.parts) writer.add(tensor.record.name, box, bytes);
  }
  for (const CarriedFile& file : files) writer.add_file(file.name, file.bytes);
  return writer.commit();
}

}  // namespace dew
