#include "dew/checkpoint/writer.h"

#include <algorithm>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;

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
      part_(partial(), options) {
  manifest_.info = std::move(info);
  if (file_kind(directory_, kCode) == FileKind::missing) {
    create_directories(directory_, kCode);
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

void CheckpointWriter::add_file(const std::string& name, std::string_view text) {
  DEW_CHECK(is_file_name(name), in_quotes(name));
  write_new_file(partial() / name, text);
  manifest_.files.push_back({.name = name,
                             .bytes = static_cast<std::int64_t>(text.size()),
                             .digest = digest_of(std::as_bytes(std::span(text)))});
}

void CheckpointWriter::adopt(const WrittenPart& part) {
  manifest_.shards.insert(manifest_.shards.end(), part.files.begin(), part.files.end());
  for (const WrittenPiece& written : part.pieces) {
    DEW_CHECK(written.tensor < part_.tensors().size(), written.piece.file);
    pieces_.push_back(written);
  }
}

void CheckpointWriter::gather_pieces() {
  manifest_.tensors = part_.tensors();
  for (const WrittenPiece& written : pieces_) {
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
  adopt(part_.finish());
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
  writer.add(state);
  for (const CarriedFile& file : files) writer.add_file(file.name, file.bytes);
  return writer.commit();
}

}  // namespace dew
