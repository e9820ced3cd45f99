#include "dew/checkpoint/reader.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/checkpoint/safetensors.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::int64_t kMaxManifest = std::int64_t{1} << 30;
constexpr std::int64_t kMaxExtraFile = std::int64_t{1} << 32;
constexpr std::int64_t kDigestChunk = std::int64_t{1} << 24;

// A shard file, mapped when it is first needed.
struct Shard {
  const ShardFile* record = nullptr;
  std::mutex opening;  // not std::call_once: after an exception TSan's lets nobody in again
  bool open = false;
  MappedFile map;
};

void check_size(const Path& path, std::int64_t bytes) {
  if (file_kind(path, kCode) != FileKind::regular) {
    fail(kCode, format("'{}' is missing, or not a file", path.string()));
  }
  const std::int64_t found = file_size(path, kCode);
  if (found == bytes) return;
  fail(kCode, format("'{}' has {} bytes in place of {}: {}", path.string(), found, bytes,
                     found < bytes ? "truncated" : "it was changed"));
}

}  // namespace

struct CheckpointReader::State {
  explicit State(const Path& directory);

  std::span<const std::byte> shard_bytes(const std::string& name);
  std::span<const std::byte> piece_bytes(const TensorRecord& tensor, std::size_t piece);
  void open_shard(Shard& shard);
  void verify_shard(const ShardFile& file);

  // A shard's header, a piece of a tensor, or a file of another kind.
  struct Unit {
    std::string_view file;
    std::int64_t offset = 0, bytes = 0;
    const ShardFile* shard = nullptr;
    const TensorRecord* tensor = nullptr;
    std::size_t piece = 0;
  };
  std::vector<Unit> units() const;

  Path path;
  Manifest manifest;
  std::unordered_map<std::string_view, std::size_t> tensors;  // by name, into the manifest
  std::unordered_map<std::string_view, Shard*> shards;
  std::deque<Shard> shard_list;
  std::vector<std::size_t> first_piece;     // of each tensor, in `verified`
  std::vector<std::atomic<bool>> verified;  // pieces that were compared with their digest
  std::atomic<std::int64_t> copied{0}, checked{0};
};

CheckpointReader::State::State(const Path& directory) : path(directory) {
  const Path file = path / kManifestName;
  if (file_kind(path, kCode) != FileKind::directory) {
    fail(kCode, format("'{}' is not a checkpoint: there is no such directory", path.string()));
  }
  if (file_kind(file, kCode) != FileKind::regular) {
    fail(kCode,
         format("'{}' is not a complete checkpoint: it has no {}", path.string(), kManifestName));
  }
  manifest = parse_manifest(read_file(file, kCode, kMaxManifest, Source::regular), file.string());
  for (const ShardFile& shard : manifest.shards) {
    check_size(path / shard.name, shard.bytes);
    shard_list.emplace_back().record = &shard;
    shards[shard.name] = &shard_list.back();
  }
  for (const ExtraFile& extra : manifest.files) check_size(path / extra.name, extra.bytes);
  std::size_t pieces = 0;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    tensors[manifest.tensors[i].name] = i;
    first_piece.push_back(pieces);
    pieces += manifest.tensors[i].pieces.size();
  }
  verified = std::vector<std::atomic<bool>>(pieces);
}

// The bytes of a shard whose size and header are right.
std::span<const std::byte> CheckpointReader::State::shard_bytes(const std::string& name) {
  Shard& shard = *shards.at(name);
  const std::lock_guard lock(shard.opening);
  if (!shard.open) open_shard(shard);
  return shard.map.bytes();
}

void CheckpointReader::State::open_shard(Shard& shard) {
  const Path file = path / shard.record->name;
  // Not for random access: a piece is read from one end to the other when its digest is taken.
  MappedFile map(file, kCode, Access::sequential);
  const auto size = static_cast<std::int64_t>(map.bytes().size());
  if (size != shard.record->bytes) {
    fail(kCode,
         format("'{}' has {} bytes in place of {}", file.string(), size, shard.record->bytes));
  }
  const auto header = map.bytes().first(static_cast<std::size_t>(shard.record->header_bytes));
  if (digest_of(header) != shard.record->header_digest) {
    fail(kCode, format("'{}': the header is damaged: its digest differs", file.string()));
  }
  shard.map = std::move(map);
  shard.open = true;
}

// The bytes of a piece that equal its digest.
std::span<const std::byte> CheckpointReader::State::piece_bytes(const TensorRecord& tensor,
                                                                std::size_t piece) {
  const StoredPiece& record = tensor.pieces[piece];
  const auto bytes =
      shard_bytes(record.file)
          .subspan(static_cast<std::size_t>(record.offset), static_cast<std::size_t>(record.bytes));
  std::atomic<bool>& done = verified[first_piece[tensors.at(tensor.name)] + piece];
  if (!done.load(std::memory_order_relaxed)) {
    if (digest_of(bytes) != record.digest) {
      fail(kCode, format("'{}': tensor '{}', piece {}: the bytes are damaged: their digest differs",
                         (path / record.file).string(), tensor.name, to_string(record.box)));
    }
    checked.fetch_add(record.bytes, std::memory_order_relaxed);
    done.store(true, std::memory_order_relaxed);
  }
  return bytes;
}

// Does the header tell other readers what the manifest tells us?
void CheckpointReader::State::verify_shard(const ShardFile& file) {
  const std::string where = (path / file.name).string();
  const SafetensorsHeader header = parse_safetensors(shard_bytes(file.name), where, kCode);
  std::vector<StoredTensor> expected;
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      if (piece.file != file.name) continue;
      expected.push_back({piece_name(tensor.name, tensor.shape, piece.box),
                          stored_type(tensor.dtype), piece.box.extent, piece.offset, piece.bytes});
    }
  }
  std::sort(expected.begin(), expected.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  if (header.bytes != file.header_bytes || header.tensors != expected) {
    fail(kCode, format("'{}': the header does not list the manifest's pieces", where));
  }
}

CheckpointReader::CheckpointReader(const Path& directory)
    : state_(std::make_unique<State>(directory)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const Path& CheckpointReader::path() const { return state_->path; }
const Manifest& CheckpointReader::manifest() const { return state_->manifest; }

const TensorRecord* CheckpointReader::find(std::string_view name) const {
  const auto found = state_->tensors.find(name);
  return found == state_->tensors.end() ? nullptr : &state_->manifest.tensors[found->second];
}

const TensorRecord& CheckpointReader::require(std::string_view name, DType dtype,
                                              const Dims& shape) const {
  const TensorRecord* tensor = find(name);
  if (tensor == nullptr) {
    fail(kCode, format("'{}' has no tensor {}", path().string(), in_quotes(name)));
  }
  if (tensor->dtype != dtype || tensor->shape != shape) {
    fail(kCode,
         format("'{}': tensor '{}' is {}[{}], but {}[{}] is needed", path().string(), name,
                dew::name(tensor->dtype), join(tensor->shape), dew::name(dtype), join(shape)));
  }
  return *tensor;
}

void CheckpointReader::read(const TensorRecord& tensor, const Box& box,
                            std::span<std::byte> out) const {
  DEW_CHECK(lies_in(box, tensor.shape), tensor.name + to_string(box));
  const std::int64_t element = byte_size(tensor.dtype);
  DEW_CHECK(static_cast<std::int64_t>(out.size()) == box.elements() * element, tensor.name);
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const Box& stored = tensor.pieces[i].box;
    const auto part = intersect(stored, box);
    if (part && box.elements() > 0) {
      copy_part(*part, element, stored, state_->piece_bytes(tensor, i), box, out);
      state_->copied.fetch_add(part->elements() * element, std::memory_order_relaxed);
    }
  }
}

ReadTraffic CheckpointReader::traffic() const { return {state_->copied, state_->checked}; }

std::uint64_t CheckpointReader::digest(const TensorRecord& tensor) const {
  if (tensor.pieces.size() == 1) {
    state_->piece_bytes(tensor, 0);
    return tensor.pieces[0].digest;
  }
  Digest digest;
  if (tensor.pieces.empty()) return digest.value();
  // Some rows at a time: a tensor of several pieces may be larger than memory.
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t row_bytes = element_count(tensor.shape) / rows * byte_size(tensor.dtype);
  const std::int64_t step = std::max<std::int64_t>(1, kDigestChunk / row_bytes);
  std::vector<std::byte> buffer;
  for (std::int64_t row = 0; row < rows; row += step) {
    Box box = whole(tensor.shape);
    box.start[0] = row;
    box.extent[0] = std::min(step, rows - row);
    buffer.resize(static_cast<std::size_t>(box.extent[0] * row_bytes));
    read(tensor, box, buffer);
    digest.update(buffer);
  }
  return digest.value();
}

bool CheckpointReader::has_file(std::string_view name) const {
  return std::any_of(manifest().files.begin(), manifest().files.end(),
                     [&](const ExtraFile& file) { return file.name == name; });
}

std::string CheckpointReader::read_extra_file(std::string_view name) const {
  for (const ExtraFile& file : manifest().files) {
    if (file.name != name) continue;
    std::string text = read_file(path() / file.name, kCode, kMaxExtraFile, Source::regular);
    if (digest_of(std::as_bytes(std::span(text))) != file.digest) {
      fail(kCode, format("'{}' is damaged: its digest differs", (path() / file.name).string()));
    }
    return text;
  }
  fail(kCode, format("'{}' has no file {}", path().string(), in_quotes(name)));
}

// What can be verified by itself, in the order of files and of bytes in them.
std::vector<CheckpointReader::State::Unit> CheckpointReader::State::units() const {
  std::vector<Unit> all;
  for (const ShardFile& shard : manifest.shards)
    all.push_back({.file = shard.name, .offset = -1, .bytes = shard.header_bytes, .shard = &shard});
  for (const TensorRecord& tensor : manifest.tensors) {
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const StoredPiece& piece = tensor.pieces[i];
      all.push_back({.file = piece.file,
                     .offset = piece.offset,
                     .bytes = piece.bytes,
                     .tensor = &tensor,
                     .piece = i});
    }
  }
  for (const ExtraFile& file : manifest.files)
    all.push_back({.file = file.name, .offset = 0, .bytes = file.bytes});
  std::ranges::stable_sort(all, {}, [](const Unit& u) { return std::pair(u.file, u.offset); });
  return all;
}

std::vector<std::string> CheckpointReader::problems_of_share(int share, int shares) const {
  std::vector<std::string> problems;
  const auto attempt = [&](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      // What is wrong with a shard is met again with each of its pieces.
      if (std::ranges::find(problems, error.what()) == problems.end()) {
        problems.emplace_back(error.what());
      }
    }
  };
  const std::vector<State::Unit> units = state_->units();
  std::int64_t total = 1, begin = 0;
  for (const State::Unit& unit : units) total += unit.bytes;
  for (const State::Unit& unit : units) {
    const double middle = static_cast<double>(begin) + static_cast<double>(unit.bytes) / 2;
    begin += unit.bytes;
    if (static_cast<int>(middle / static_cast<double>(total) * shares) != share) continue;
    attempt([&] {
      if (unit.shard != nullptr) {
        state_->verify_shard(*unit.shard);
      } else if (unit.tensor != nullptr) {
        state_->piece_bytes(*unit.tensor, unit.piece);
      } else {
        read_extra_file(unit.file);
      }
    });
  }
  return problems;
}

void CheckpointReader::verify_all() const {
  const std::vector<std::string> problems = problems_of_share(0, 1);
  if (!problems.empty()) fail(kCode, format("{}", fmt::join(problems, "; ")));
}

}  // namespace dew
