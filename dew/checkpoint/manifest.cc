#include "dew/checkpoint/manifest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/base/json.h"

namespace dew {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr const char* kFormat = "dew checkpoint";
constexpr std::size_t kMaxRank = 32;  // dimensions

// ---- the last line: "xxh3": "0123456789abcdef"} ----
constexpr std::string_view kDigestBegin = "\"xxh3\": \"", kDigestEnd = "\"}\n";
constexpr std::size_t kDigestDigits = 16;
constexpr std::size_t kDigestLine = kDigestBegin.size() + kDigestDigits + kDigestEnd.size();

std::uint64_t text_digest(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text)));
}

// Everything but the digest, or an error: only then is the rest worth reading.
void check_digest(std::string_view text, const std::string& where) {
  const bool long_enough = text.size() > kDigestLine;
  const std::string_view body = text.substr(0, long_enough ? text.size() - kDigestLine : 0);
  std::string_view line = text.substr(body.size());
  const bool well_formed = long_enough && body.ends_with('\n') && line.starts_with(kDigestBegin) &&
                           line.ends_with(kDigestEnd);
  if (!well_formed) {
    fail(kCode, format("{}: the last line is not that of a manifest: truncated?", where));
  }
  const auto digest = parse_digest(line.substr(kDigestBegin.size(), kDigestDigits));
  if (digest != text_digest(body)) {
    fail(kCode, format("{}: its digest does not match its text: it was changed or damaged", where));
  }
}

// ---- writing ----
// JSON has no numbers that are not finite.
OrderedJson number_or_null(const std::optional<double>& x) {
  return x && std::isfinite(*x) ? OrderedJson(*x) : OrderedJson();
}

OrderedJson to_json(const Clocks& c) {
  return {{"step", c.step},
          {"updates", c.updates},
          {"skipped", c.skipped},
          {"tokens", c.tokens},
          {"non_finite_streak", c.non_finite_streak},
          {"ema_updates", c.ema_updates},
          {"line_steps", c.line_steps},
          {"line_loss", number_or_null(c.line_loss)}};
}

OrderedJson to_json(const DataState& d) {
  return {{"position", d.position}, {"corpus", digest_text(d.corpus)},
          {"records", d.records},   {"seq_len", d.seq_len},
          {"stride", d.stride},     {"shuffle", d.shuffle},
          {"seed", d.seed}};
}

OrderedJson to_json(const TokenizerState& t) {
  OrderedJson json = {{"name", t.name},
                      {"eos_id", t.eos_id ? OrderedJson(*t.eos_id) : OrderedJson()}};
  if (t.bos_id) json["bos_id"] = *t.bos_id;
  return json;
}

OrderedJson to_json(const ShardFile& s) {
  return {{"name", s.name},
          {"bytes", s.bytes},
          {"header_bytes", s.header_bytes},
          {"header_xxh3", digest_text(s.header_digest)}};
}

OrderedJson to_json(const ExtraFile& f) {
  return {{"name", f.name}, {"bytes", f.bytes}, {"xxh3", digest_text(f.digest)}};
}

OrderedJson to_json(const TensorRecord& t) {
  OrderedJson pieces = OrderedJson::array();
  for (const StoredPiece& p : t.pieces) {
    pieces.push_back({{"file", p.file},
                      {"offset", p.offset},
                      {"bytes", p.bytes},
                      {"start", p.box.start},
                      {"extent", p.box.extent},
                      {"xxh3", digest_text(p.digest)}});
  }
  return {{"name", t.name},
          {"dtype", name(t.dtype)},
          {"shape", t.shape},
          {"axes", t.axes},
          {"pieces", std::move(pieces)}};
}

// One element a line.
template <class T>
void append_list(std::string& text, const char* key, const std::vector<T>& items) {
  text += format("\"{}\": [", key);
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") + to_json(items[i]).dump();
  }
  text += "\n],\n";
}

std::string body_text(const Manifest& m) {
  std::string text = "{\n";
  const auto append = [&](const char* key, const OrderedJson& value) {
    text += format("\"{}\": {},\n", key, value.dump());
  };
  const CheckpointInfo& info = m.info;
  append("format", kFormat);
  append("version", kCheckpointVersion);
  append("program", info.program);
  append("processor", info.processor);
  append("run", info.run);
  append("seed", info.seed);
  append("clocks", to_json(info.clocks));
  append("data", to_json(info.data));
  append("tokenizer", to_json(info.tokenizer));
  append("eval_loss", number_or_null(info.eval_loss));
  append("model", info.model);
  append("config", info.config);
  append_list(text, "shards", m.shards);
  append_list(text, "files", m.files);
  append_list(text, "tensors", m.tensors);
  return text;
}

// ---- reading: members of an object that JsonObject has no function for ----
std::int64_t count(const JsonObject& object, const std::string& key) {
  return object.integer(key, 0, kMost);
}

std::uint64_t unsigned_number(const JsonObject& object, const std::string& key) {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned()) object.refuse(key, "an integer from 0 to 2^64 - 1");
  return value.get<std::uint64_t>();
}

std::uint64_t digest(const JsonObject& object, const std::string& key) {
  const auto value = parse_digest(object.text(key));
  if (!value) object.refuse(key, "16 hexadecimal digits");
  return *value;
}

Dims sizes(const JsonObject& object, const std::string& key) {
  const Json& list = object.at(key);
  Dims values;
  for (const Json& value : list.is_array() && list.size() <= kMaxRank ? list : Json::array()) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMost)) {
      break;
    }
    values.push_back(value.get<std::int64_t>());
  }
  if (!list.is_array() || values.size() != list.size()) {
    object.refuse(key, format("a list of at most {} integers from 0 to 2^63 - 1", kMaxRank));
  }
  return values;
}

std::vector<std::string> texts(const JsonObject& object, const std::string& key) {
  const Json& list = object.at(key);
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_text)) {
    object.refuse(key, "a list of strings");
  }
  return list.get<std::vector<std::string>>();
}

const Json& list(const JsonObject& object, const std::string& key) {
  const Json& value = object.at(key);
  if (!value.is_array()) object.refuse(key, "a list");
  return value;
}

std::optional<double> number_or_none(const JsonObject& o, const std::string& key) {
  const Json& value = o.at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) o.refuse(key, "a number or null");
  return value.get<double>();
}

Clocks parse_clocks(const JsonObject& o) {
  return {.step = count(o, "step"),
          .updates = count(o, "updates"),
          .skipped = count(o, "skipped"),
          .tokens = count(o, "tokens"),
          .non_finite_streak = count(o, "non_finite_streak"),
          .ema_updates = count(o, "ema_updates"),
          .line_steps = count(o, "line_steps"),
          .line_loss = number_or_none(o, "line_loss")};
}

DataState parse_data(const JsonObject& o) {
  if (!o.at("shuffle").is_boolean()) o.refuse("shuffle", "true or false");
  return {.position = count(o, "position"),
          .corpus = digest(o, "corpus"),
          .records = count(o, "records"),
          .seq_len = count(o, "seq_len"),
          .stride = count(o, "stride"),
          .shuffle = o.at("shuffle").get<bool>(),
          .seed = unsigned_number(o, "seed")};
}

CheckpointInfo parse_info(const JsonObject& o) {
  const JsonObject tokenizer = o.object("tokenizer");
  return {.run = o.text("run"),
          .seed = unsigned_number(o, "seed"),
          .clocks = parse_clocks(o.object("clocks")),
          .data = parse_data(o.object("data")),
          .tokenizer = {.name = tokenizer.text("name"),
                        .eos_id = tokenizer.integer_or_null("eos_id", 0, kMost),
                        .bos_id = tokenizer.has("bos_id")
                                      ? tokenizer.integer_or_null("bos_id", 0, kMost)
                                      : std::nullopt},
          .model = o.text("model"),
          .config = o.text("config"),
          .processor = o.text("processor"),
          .program = o.text("program"),
          .eval_loss = number_or_none(o, "eval_loss")};
}

StoredPiece parse_piece(const JsonObject& o) {
  return {.file = o.text("file"),
          .offset = count(o, "offset"),
          .bytes = count(o, "bytes"),
          .box = {.start = sizes(o, "start"), .extent = sizes(o, "extent")},
          .digest = digest(o, "xxh3")};
}

TensorRecord parse_tensor(const Json& json, const std::string& where) {
  const JsonObject unnamed(json, where + ": a tensor", kCode);
  const std::string name = unnamed.text("name");
  if (!is_tensor_name(name)) {
    fail(kCode, format("{}: {} cannot be the name of a tensor", where, in_quotes(name)));
  }
  const std::string tensor_where = format("{}: tensor '{}'", where, name);
  const JsonObject o(json, tensor_where, kCode);
  const auto dtype = parse_dtype(o.text("dtype"));
  if (!dtype) o.refuse("dtype", "f32, bf16, f64, i32, u32 or pred");
  TensorRecord record = {.name = name,
                         .dtype = *dtype,
                         .shape = sizes(o, "shape"),
                         .axes = texts(o, "axes"),
                         .pieces = {}};
  for (const Json& piece : list(o, "pieces")) {
    record.pieces.push_back(parse_piece(JsonObject(piece, tensor_where + ": a piece", kCode)));
  }
  return record;
}

std::string parse_file_name(const JsonObject& o, std::set<std::string>& seen) {
  std::string name = o.text("name");
  if (!is_file_name(name)) o.refuse("name", "a file beside the manifest");
  if (!seen.insert(name).second) o.refuse("name", "another name: this one is taken");
  return name;
}

void parse_files(const JsonObject& o, const std::string& where, Manifest& manifest) {
  std::set<std::string> seen;
  for (const Json& json : list(o, "shards")) {
    const JsonObject shard(json, where + ": a shard", kCode);
    manifest.shards.push_back({.name = parse_file_name(shard, seen),
                               .bytes = count(shard, "bytes"),
                               .header_bytes = count(shard, "header_bytes"),
                               .header_digest = digest(shard, "header_xxh3")});
  }
  for (const Json& json : list(o, "files")) {
    const JsonObject file(json, where + ": a file", kCode);
    manifest.files.push_back({.name = parse_file_name(file, seen),
                              .bytes = count(file, "bytes"),
                              .digest = digest(file, "xxh3")});
  }
}

// ---- what the numbers say together ----
void check_tensor(const TensorRecord& tensor, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    fail(kCode, format("{}: tensor '{}': {}", where, tensor.name, why));
  };
  const auto bytes = checked_bytes(tensor.shape, byte_size(tensor.dtype));
  if (!bytes) refuse(format("shape [{}] is too large to be one", join(tensor.shape)));
  if (tensor.axes.size() != tensor.shape.size()) {
    refuse(format("{} axes for {} dimensions", tensor.axes.size(), tensor.shape.size()));
  }
  std::vector<Box> boxes;
  for (const StoredPiece& piece : tensor.pieces) boxes.push_back(piece.box);
  const std::string problem = tiling_problem(tensor.shape, boxes);
  if (!problem.empty()) refuse(problem);
  for (const StoredPiece& piece : tensor.pieces) {
    const std::int64_t expected = piece.box.elements() * byte_size(tensor.dtype);
    if (piece.bytes == expected) continue;
    refuse(format("piece {} has {} bytes in place of {}", to_string(piece.box), piece.bytes,
                  expected));
  }
}

struct Placed {
  const StoredPiece* piece;
  const TensorRecord* tensor;
};

// The pieces of one shard, one after the other, are all of it after its header.
void check_shard(const ShardFile& shard, std::vector<Placed>& placed, const std::string& where) {
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.piece->offset < b.piece->offset; });
  std::int64_t end = shard.header_bytes;
  for (const auto& [piece, tensor] : placed) {
    // `end` never passes the file's size, so no sum here overflows.
    if (piece->offset != end || end > shard.bytes || piece->bytes > shard.bytes - end) {
      fail(kCode, format("{}: tensor '{}': piece {} of {} bytes at {} of '{}' ({} bytes) does not "
                         "follow the one before, which ends at {}",
                         where, tensor->name, to_string(piece->box), piece->bytes, piece->offset,
                         shard.name, shard.bytes, end));
    }
    end += piece->bytes;
  }
  if (end != shard.bytes) {
    fail(kCode, format("{}: '{}' has {} bytes, but its pieces end at {}", where, shard.name,
                       shard.bytes, end));
  }
}

void check_structure(const Manifest& manifest, const std::string& where) {
  std::unordered_map<std::string_view, std::vector<Placed>> by_file;
  for (const ShardFile& shard : manifest.shards) by_file[shard.name];
  std::set<std::string_view> names;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!names.insert(tensor.name).second) {
      fail(kCode, format("{}: tensor '{}' appears twice", where, tensor.name));
    }
    check_tensor(tensor, where);
    for (const StoredPiece& piece : tensor.pieces) {
      const auto file = by_file.find(piece.file);
      if (file == by_file.end()) {
        fail(kCode, format("{}: tensor '{}': {} is none of the shards", where, tensor.name,
                           in_quotes(piece.file)));
      }
      file->second.push_back({&piece, &tensor});
    }
  }
  for (const ShardFile& shard : manifest.shards) check_shard(shard, by_file[shard.name], where);
}

void check_version(const JsonObject& o, const std::string& where) {
  if (o.text("format") != kFormat) o.refuse("format", format("\"{}\"", kFormat));
  const std::int64_t version = o.integer("version", 1, kMost);
  if (version > kCheckpointVersion) {
    fail(kCode, format("{}: format version {}, this program reads up to {}", where, version,
                       kCheckpointVersion));
  }
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const std::string body = body_text(manifest);
  return body + std::string(kDigestBegin) + digest_text(text_digest(body)) +
         std::string(kDigestEnd);
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  check_digest(text, where);
  const Json json = parse_json(text, where, kCode);
  const JsonObject o(json, where, kCode);
  check_version(o, where);
  Manifest manifest;
  manifest.info = parse_info(o);
  parse_files(o, where, manifest);
  for (const Json& tensor : list(o, "tensors")) {
    manifest.tensors.push_back(parse_tensor(tensor, where));
  }
  check_structure(manifest, where);
  return manifest;
}

bool is_tensor_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  };
  return !name.empty() && name.size() <= 1024 && std::all_of(name.begin(), name.end(), allowed);
}

bool is_file_name(std::string_view name) {
  return is_tensor_name(name) && name.size() <= 255 && name.find('/') == name.npos &&
         name.front() != '.' && name != kManifestName;
}

std::string piece_name(const std::string& tensor, const Dims& shape, const Box& box) {
  return box == whole(shape) ? tensor : tensor + to_string(box);
}

}  // namespace dew
