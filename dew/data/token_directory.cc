#include "dew/data/token_directory.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/json.h"

namespace dew {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

constexpr std::int64_t kMaxMetaBytes = 1 << 20;
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxVocab = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kScanPiece = 1 << 18;  // stays in L2 between the digest and the check
constexpr std::int64_t kSampleBlocks = 256, kSampleBytes = 1 << 16;

constexpr IdType kIdTypes[] = {IdType::uint8, IdType::uint16, IdType::uint32};

std::int64_t width(IdType type) { return static_cast<std::int64_t>(type); }

std::int64_t capacity(IdType type) { return std::int64_t{1} << (8 * width(type)); }

// Calls body(span of the stored type) for `bytes`.
template <typename Body>
auto with_ids(std::span<const std::byte> bytes, IdType type, Body body) {
  const auto as = [&]<typename T>(T) {
    return body(std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)));
  };
  switch (type) {
    case IdType::uint8:
      return as(std::uint8_t{});
    case IdType::uint16:
      return as(std::uint16_t{});
    case IdType::uint32:
      break;
  }
  return as(std::uint32_t{});
}

// Written for the vectoriser at -O2, which takes loops of known length only, and no std::max.
constexpr std::size_t kBlock = 64;

template <typename T>
T largest(std::span<const T> ids) {
  T lanes[kBlock] = {};
  std::size_t i = 0;
  for (; i + kBlock <= ids.size(); i += kBlock) {
    for (std::size_t k = 0; k < kBlock; ++k) {
      const T id = ids[i + k];
      lanes[k] = id > lanes[k] ? id : lanes[k];
    }
  }
  for (; i < ids.size(); ++i) lanes[0] = std::max(lanes[0], ids[i]);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

template <typename T>
void widen(std::span<const T> ids, std::int32_t* __restrict out) {
  std::size_t i = 0;
  for (; i + kBlock <= ids.size(); i += kBlock) {
    for (std::size_t k = 0; k < kBlock; ++k) out[i + k] = static_cast<std::int32_t>(ids[i + k]);
  }
  for (; i < ids.size(); ++i) out[i] = static_cast<std::int32_t>(ids[i]);
}

// Index of the first id that is not below `vocab_size`, or the number of ids.
template <typename T>
std::size_t first_outside(std::span<const T> ids, std::int64_t vocab_size) {
  if (vocab_size > std::int64_t{std::numeric_limits<T>::max()}) return ids.size();
  const T least_bad = static_cast<T>(vocab_size);
  if (largest(ids) < least_bad) return ids.size();
  const auto bad = std::find_if(ids.begin(), ids.end(), [=](T id) { return id >= least_bad; });
  return static_cast<std::size_t>(bad - ids.begin());
}

IdType parse_dtype_of(const JsonObject& meta) {
  const std::string text = meta.text("dtype");
  for (const IdType type : kIdTypes) {
    if (text == name(type)) return type;
  }
  meta.refuse("dtype", "one of uint8, uint16, uint32");
}

std::optional<std::uint64_t> digest_member(const JsonObject& digests, const std::string& file) {
  if (!digests.has(file)) return std::nullopt;
  const auto digest = parse_digest(digests.text(file));
  if (!digest) digests.refuse(file, "16 hexadecimal digits");
  return digest;
}

TokenFileSpec file_spec(const TokenMeta& meta, std::int64_t tokens,
                        std::optional<std::uint64_t> digest) {
  return {.dtype = meta.dtype, .vocab_size = meta.vocab_size, .tokens = tokens, .digest = digest};
}

}  // namespace

std::string_view name(IdType type) {
  switch (type) {
    case IdType::uint8:
      return "uint8";
    case IdType::uint16:
      return "uint16";
    case IdType::uint32:
      break;
  }
  return "uint32";
}

IdType id_type_for(std::int64_t vocab_size) {
  for (const IdType type : kIdTypes) {
    if (vocab_size <= capacity(type)) return type;
  }
  fail(ErrorCode::data, format("a vocabulary of {} does not fit into 32-bit ids", vocab_size));
}

TokenMeta read_token_meta(const Path& directory) {
  const Path path = directory / "meta.json";
  if (file_kind(path, ErrorCode::data) == FileKind::missing) {
    const bool there = file_kind(directory, ErrorCode::data) != FileKind::missing;
    fail(ErrorCode::data,
         there ? format("'{}' is no token directory: it has no meta.json", directory.string())
               : format("there is no token directory '{}'", directory.string()),
         "dew tokenize TEXT --out DIR makes one");
  }
  return parse_token_meta(read_file(path, ErrorCode::data, kMaxMetaBytes, Source::regular),
                          path.string());
}

TokenMeta parse_token_meta(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where, ErrorCode::data);
  const JsonObject meta(json, where, ErrorCode::data);

  TokenMeta result;
  result.tokenizer = meta.text("tokenizer");
  result.vocab_size = meta.integer("vocab_size", 1, kMaxVocab);
  result.dtype = parse_dtype_of(meta);
  result.train_tokens = meta.integer("train_tokens", 0, kMaxInt64);
  result.val_tokens = meta.integer("val_tokens", 0, kMaxInt64);
  result.eos_id = meta.integer_or_null("eos_id", 0, result.vocab_size - 1);
  if (meta.has("bos_id")) result.bos_id = meta.integer_or_null("bos_id", 0, result.vocab_size - 1);
  if (meta.has("documents")) result.documents = meta.integer_or_null("documents", 0, kMaxInt64);
  if (meta.has("digests")) {
    const JsonObject digests = meta.object("digests");
    result.train_digest = digest_member(digests, "train.bin");
    result.val_digest = digest_member(digests, "val.bin");
  }
  // A wider type than needed is harmless; a narrower one cannot hold the ids, so they were cut when
  // written.
  if (width(result.dtype) < width(id_type_for(result.vocab_size))) {
    fail(ErrorCode::data, format("{}: dtype {} cannot hold the ids of a vocabulary of {}", where,
                                 name(result.dtype), result.vocab_size));
  }
  return result;
}

std::string token_meta_text(const TokenMeta& meta) {
  OrderedJson json;
  json["tokenizer"] = meta.tokenizer;
  json["vocab_size"] = meta.vocab_size;
  json["dtype"] = name(meta.dtype);
  json["train_tokens"] = meta.train_tokens;
  json["val_tokens"] = meta.val_tokens;
  json["eos_id"] = meta.eos_id ? OrderedJson(*meta.eos_id) : OrderedJson(nullptr);
  if (meta.bos_id) json["bos_id"] = *meta.bos_id;
  if (meta.documents) json["documents"] = *meta.documents;
  if (meta.train_digest) json["digests"]["train.bin"] = digest_text(*meta.train_digest);
  if (meta.val_digest) json["digests"]["val.bin"] = digest_text(*meta.val_digest);
  return json.dump() + "\n";
}

void write_token_meta(const Path& directory, const TokenMeta& meta) {
  write_file_atomic(directory / "meta.json", token_meta_text(meta), ErrorCode::data);
}

TokenFile::TokenFile(Path path, const TokenFileSpec& spec)
    : path_(std::move(path)),
      spec_(spec),
      map_(path_, ErrorCode::data, Access::random),
      bytes_(map_.bytes()) {
  open();
}

TokenFile::TokenFile(Path path, std::span<const std::byte> bytes, const TokenFileSpec& spec)
    : path_(std::move(path)), spec_(spec), bytes_(bytes) {
  open();
}

void TokenFile::open() {
  check_size();
  if (static_cast<std::int64_t>(bytes_.size()) > kScanBytes) {
    fingerprint_ = sample();
    return;
  }
  map_.advise(Access::sequential);
  fingerprint_ = scan();
  // Windows are read in random order, and what was scanned is in memory: no reading around them.
  map_.advise(Access::random);
}

void TokenFile::check_size() const {
  const auto bytes = static_cast<std::int64_t>(bytes_.size());
  const std::string where = path_.string();
  if (bytes == 0) fail(ErrorCode::data, format("{} is empty", where));
  if (bytes % width(spec_.dtype) != 0) {
    fail(ErrorCode::data,
         format("{}: {} bytes are not a whole number of {} ids", where, bytes, name(spec_.dtype)),
         "the file is cut off, or meta.json names the wrong dtype");
  }
  const std::int64_t ids = bytes / width(spec_.dtype);
  if (ids < spec_.tokens) {
    fail(ErrorCode::data, format("{} is truncated: it holds {} {} ids, meta.json says {}", where,
                                 ids, name(spec_.dtype), spec_.tokens));
  }
  if (ids > spec_.tokens) {
    fail(ErrorCode::data,
         format("{} is larger than described: it holds {} {} ids, meta.json says {}", where, ids,
                name(spec_.dtype), spec_.tokens));
  }
}

std::uint64_t TokenFile::scan() const {
  Digest digest;
  for (std::size_t at = 0; at < bytes_.size(); at += kScanPiece) {
    const auto piece = bytes_.subspan(at, std::min(kScanPiece, bytes_.size() - at));
    digest.update(piece);
    with_ids(piece, spec_.dtype, [&](auto ids) {
      const std::size_t bad = first_outside(ids, spec_.vocab_size);
      if (bad < ids.size())
        refuse_id(static_cast<std::int64_t>(at / sizeof(ids[0]) + bad), ids[bad]);
    });
  }
  if (spec_.digest && digest.value() != *spec_.digest) {
    fail(ErrorCode::data,
         format("{} was changed after it was written: its digest is {}, meta.json says {}",
                path_.string(), digest_text(digest.value()), digest_text(*spec_.digest)));
  }
  return digest.value();
}

std::uint64_t TokenFile::sample() const {
  const auto size = static_cast<std::int64_t>(bytes_.size());
  Digest digest;
  digest.update(std::as_bytes(std::span(&size, 1)));
  const std::int64_t stride = (size - kSampleBytes) / kSampleBlocks;
  for (std::int64_t i = 0; i <= kSampleBlocks; ++i) {
    // The last block ends with the file.
    const std::int64_t at = i == kSampleBlocks ? size - kSampleBytes : i * stride;
    digest.update(
        bytes_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(kSampleBytes)));
  }
  return digest.value();
}

void TokenFile::refuse_id(std::int64_t position, std::uint32_t id) const {
  fail(ErrorCode::data,
       format("{}: id {} at position {} is outside the vocabulary of {}", path_.string(), id,
              position, spec_.vocab_size),
       "the file belongs to another tokenizer, or meta.json names the wrong vocab_size or dtype");
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  DEW_CHECK(0 <= first && first <= size() - count, format("ids {}+{} of {}", first, count, size()));
  const auto bytes = bytes_.subspan(static_cast<std::size_t>(first * width(spec_.dtype)),
                                    static_cast<std::size_t>(count * width(spec_.dtype)));
  with_ids(bytes, spec_.dtype, [&](auto ids) {
    const std::size_t bad = first_outside(ids, spec_.vocab_size);
    if (bad < ids.size()) refuse_id(first + static_cast<std::int64_t>(bad), ids[bad]);
    widen(ids, out.data());
  });
}

TokenDirectory::TokenDirectory(const Path& path)
    : meta_(read_token_meta(path)),
      train_(std::make_shared<TokenFile>(path / "train.bin",
                                         file_spec(meta_, meta_.train_tokens, meta_.train_digest))),
      val_(std::make_shared<TokenFile>(path / "val.bin",
                                       file_spec(meta_, meta_.val_tokens, meta_.val_digest))) {}

}  // namespace dew
