#include "dew/checkpoint/part_writer.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/json.h"

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

}  // namespace

PartWriter::PartWriter(Path directory, const WriterOptions& options)
    : directory_(std::move(directory)),
      shards_(directory_, {options.owner, options.shard_bytes, options.bytes_stay}) {}

void PartWriter::declare(TensorRecord tensor) {
  DEW_CHECK(is_tensor_name(tensor.name), in_quotes(tensor.name));
  DEW_CHECK(checked_bytes(tensor.shape, byte_size(tensor.dtype)).has_value(), tensor.name);
  DEW_CHECK(tensor.axes.size() == tensor.shape.size() && tensor.pieces.empty(), tensor.name);
  DEW_CHECK(index_.emplace(tensor.name, tensors_.size()).second, tensor.name);
  tensors_.push_back(std::move(tensor));
}

std::size_t PartWriter::index(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  DEW_CHECK(found != index_.end(), in_quotes(name));
  return found->second;
}

void PartWriter::add(std::string_view name, const Box& box, std::span<const std::byte> bytes) {
  const std::size_t i = index(name);
  const TensorRecord& tensor = tensors_[i];
  DEW_CHECK(lies_in(box, tensor.shape), tensor.name + to_string(box));
  DEW_CHECK(static_cast<std::int64_t>(bytes.size()) == box.elements() * byte_size(tensor.dtype),
            tensor.name + to_string(box));
  if (const auto bad = find_non_finite(tensor.dtype, bytes)) {
    fail(ErrorCode::non_finite,
         format("tensor '{}' has a value that is not finite (element {} of {})", tensor.name, *bad,
                to_string(box)));
  }
  if (!bytes.empty()) shards_.add(tensor, i, box, bytes);
}

void PartWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  add(name, whole(tensors_[index(name)].shape), bytes);
}

void PartWriter::add(std::span<const StateTensor> state) {
  for (const StateTensor& tensor : state) declare(tensor.record);
  for (const StateTensor& tensor : state) {
    for (const auto& [box, bytes] : tensor.parts) add(tensor.record.name, box, bytes);
  }
}

WrittenPart PartWriter::finish() {
  shards_.finish();
  sync_directory(directory_, kCode);
  return {shards_.pieces(), shards_.files()};
}

// ---- as text ----

std::string to_text(const WrittenPart& part) {
  Json files = Json::array(), pieces = Json::array();
  for (const ShardFile& f : part.files)
    files.push_back({f.name, f.bytes, f.header_bytes, f.header_digest});
  for (const auto& [tensor, p] : part.pieces) {
    pieces.push_back(
        {tensor, p.file, p.offset, p.bytes, p.digest, Json(p.box.start), Json(p.box.extent)});
  }
  return Json({{"files", files}, {"pieces", pieces}}).dump();
}

WrittenPart part_from_text(std::string_view text, const std::string& where) {
  WrittenPart part;
  try {
    const Json json = parse_json(text, where, kCode);
    for (const Json& f : json.at("files"))
      part.files.push_back({f.at(0).get<std::string>(), f.at(1), f.at(2), f.at(3)});
    for (const Json& p : json.at("pieces")) {
      part.pieces.push_back({p.at(0),
                             {.file = p.at(1).get<std::string>(),
                              .offset = p.at(2),
                              .bytes = p.at(3),
                              .box = {p.at(5).get<Dims>(), p.at(6).get<Dims>()},
                              .digest = p.at(4)}});
    }
  } catch (const Json::exception& e) {
    fail(kCode, format("{}: {}", where, e.what()));
  }
  return part;
}

}  // namespace dew
