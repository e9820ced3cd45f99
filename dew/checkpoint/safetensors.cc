#include "dew/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/checkpoint/box.h"

namespace dew {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeader = 100'000'000;  // as the format's own library
constexpr std::int64_t kAlignment = 8;            // of the first tensor byte
constexpr const char* kMetadata = "__metadata__";
constexpr std::size_t kMaxRank = 32;  // dimensions; no framework has more

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::int64_t bytes;
};
// In the order of the enumeration.
constexpr std::array<TypeRow, 13> kTypes = {{{StoredType::f64, "F64", 8},
                                             {StoredType::f32, "F32", 4},
                                             {StoredType::f16, "F16", 2},
                                             {StoredType::bf16, "BF16", 2},
                                             {StoredType::i64, "I64", 8},
                                             {StoredType::i32, "I32", 4},
                                             {StoredType::i16, "I16", 2},
                                             {StoredType::i8, "I8", 1},
                                             {StoredType::u64, "U64", 8},
                                             {StoredType::u32, "U32", 4},
                                             {StoredType::u16, "U16", 2},
                                             {StoredType::u8, "U8", 1},
                                             {StoredType::boolean, "BOOL", 1}}};

const TypeRow& row(StoredType type) { return kTypes[static_cast<std::size_t>(type)]; }

// One tensor of a header, with everything that can be wrong about it alone.
class TensorParser {
 public:
  TensorParser(std::string name, const std::string& where, std::int64_t data_begin,
               std::int64_t data_bytes, ErrorCode code)
      : where_(format("{}: tensor {}", where, in_quotes(name))),
        data_begin_(data_begin),
        data_bytes_(data_bytes),
        code_(code) {
    tensor_.name = std::move(name);
  }

  StoredTensor parse(const Json& json) {
    const JsonObject object(json, where_, code_);
    tensor_.type = type(object.text("dtype"));
    tensor_.shape = numbers(object, "shape");
    place(numbers(object, "data_offsets"));
    check_size();
    return std::move(tensor_);
  }

 private:
  StoredType type(const std::string& text) const {
    for (const TypeRow& known : kTypes) {
      if (known.name == text) return known.type;
    }
    fail(code_, format("{}: dtype {} is not known", where_, in_quotes(text)));
  }

  Dims numbers(const JsonObject& object, const std::string& key) const {
    const Json& list = object.at(key);
    if (!list.is_array()) object.refuse(key, "a list of integers");
    if (list.size() > kMaxRank) object.refuse(key, format("a list of at most {}", kMaxRank));
    Dims values;
    for (const Json& value : list) {
      // Everything that is not negative parses as unsigned.
      if (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
        object.refuse(key, "a list of integers from 0 to 2^63 - 1");
      }
      values.push_back(value.get<std::int64_t>());
    }
    return values;
  }

  void place(const Dims& range) {
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes_) {
      fail(code_, format("{}: data_offsets [{}] are not [begin, end] inside the {} bytes of data",
                         where_, join(range), data_bytes_));
    }
    tensor_.offset = data_begin_ + range[0];
    tensor_.bytes = range[1] - range[0];
  }

  void check_size() const {
    const auto bytes = checked_bytes(tensor_.shape, byte_size(tensor_.type));
    if (bytes == tensor_.bytes) return;
    fail(code_, format("{}: shape [{}] of {} does not take the {} bytes of its data_offsets",
                       where_, join(tensor_.shape), name(tensor_.type), tensor_.bytes));
  }

  std::string where_;
  std::int64_t data_begin_, data_bytes_;
  ErrorCode code_;
  StoredTensor tensor_;
};

// The length of the header's text, from the first 8 bytes.
std::int64_t header_length(std::span<const std::byte> file, const std::string& where,
                           ErrorCode code) {
  const auto size = static_cast<std::int64_t>(file.size());
  if (size < kLengthBytes) {
    fail(code, format("{}: {} bytes are too short for a safetensors file", where, size));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(kMaxHeader)) {
    fail(code, format("{}: not a safetensors file: its header would have {} bytes, at most {} are "
                      "taken",
                      where, length, kMaxHeader));
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    fail(code,
         format("{}: a header of {} bytes, but the file has {}: truncated?", where, length, size));
  }
  return static_cast<std::int64_t>(length);
}

std::map<std::string, std::string> parse_metadata(const Json& json, const std::string& where,
                                                  ErrorCode code) {
  std::map<std::string, std::string> metadata;
  const JsonObject object(json, where + ": " + kMetadata, code);
  for (const auto& item : json.items()) metadata[item.key()] = object.text(item.key());
  return metadata;
}

// Every byte after the header belongs to exactly one tensor.
void check_data(const SafetensorsHeader& header, std::int64_t file_bytes, const std::string& where,
                ErrorCode code) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  std::int64_t end = header.bytes;
  for (const StoredTensor* tensor : order) {
    if (tensor->offset != end) {
      fail(code,
           format("{}: tensor {} begins at byte {}, but the one before it ends at {}: {}", where,
                  in_quotes(tensor->name), tensor->offset, end,
                  tensor->offset < end ? "they overlap" : "the bytes between are no tensor's"));
    }
    end += tensor->bytes;
  }
  if (end != file_bytes) {
    fail(code, format("{}: {} bytes, but the last tensor ends at {}", where, file_bytes, end));
  }
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or below the smallest normal number
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// Calls put(i, element) with element i of type T, for n elements.
template <class T, class Put>
void for_each_element(std::span<const std::byte> bytes, std::size_t n, Put put) {
  DEW_CHECK(n <= bytes.size() / sizeof(T), "fewer bytes than elements");
  for (std::size_t i = 0; i < n; ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    put(i, element);
  }
}

template <class T>
void widen(std::span<const std::byte> bytes, std::span<std::int64_t> to) {
  for_each_element<T>(bytes, to.size(), [&](std::size_t i, T x) { to[i] = +x; });
}

void widen_u64(std::span<const std::byte> bytes, std::span<std::int64_t> to, ErrorCode code) {
  for_each_element<std::uint64_t>(bytes, to.size(), [&](std::size_t i, std::uint64_t x) {
    if (x > std::numeric_limits<std::int64_t>::max()) {
      fail(code, format("element {} is {}: above 2^63 - 1", i, x));
    }
    to[i] = static_cast<std::int64_t>(x);
  });
}

void widen_booleans(std::span<const std::byte> bytes, std::span<std::int64_t> to, ErrorCode code) {
  for_each_element<std::uint8_t>(bytes, to.size(), [&](std::size_t i, std::uint8_t x) {
    if (x > 1) fail(code, format("element {} is {}: a BOOL is 0 or 1", i, x));
    to[i] = x;
  });
}

// The header's text, padded so that what follows it is aligned.
std::string header_text(const std::vector<StoredTensor>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += format("\"{}\":{}", kMetadata, Json(metadata).dump());
  std::int64_t at = 0;
  for (const StoredTensor& t : tensors) {
    text += format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                   text.size() > 1 ? "," : "", Json(t.name).dump(), name(t.type), join(t.shape), at,
                   at + t.bytes);
    at += t.bytes;
  }
  text += "}";
  while ((kLengthBytes + static_cast<std::int64_t>(text.size())) % kAlignment != 0) text += ' ';
  return text;
}

}  // namespace

std::string_view name(StoredType type) { return row(type).name; }
std::int64_t byte_size(StoredType type) { return row(type).bytes; }

bool is_float(StoredType type) {
  return type == StoredType::f64 || type == StoredType::f32 || type == StoredType::f16 ||
         type == StoredType::bf16;
}

StoredType stored_type(DType type) {
  switch (type) {
    case DType::f32:
      return StoredType::f32;
    case DType::bf16:
      return StoredType::bf16;
    case DType::f64:
      return StoredType::f64;
    case DType::i32:
      return StoredType::i32;
    case DType::u32:
      return StoredType::u32;
    case DType::pred:
      return StoredType::boolean;
  }
  fail(ErrorCode::internal, "no stored type");
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where,
                                    ErrorCode code) {
  const std::int64_t length = header_length(file, where, code);
  SafetensorsHeader header;
  header.bytes = kLengthBytes + length;
  const auto file_bytes = static_cast<std::int64_t>(file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  const Json json = parse_json(text, where + ": header", code);
  if (!json.is_object()) fail(code, format("{}: the header is not a JSON object", where));
  for (const auto& item : json.items()) {  // in the order of the names
    if (item.key() == kMetadata) {
      header.metadata = parse_metadata(item.value(), where, code);
    } else {
      TensorParser parser(item.key(), where, header.bytes, file_bytes - header.bytes, code);
      header.tensors.push_back(parser.parse(item.value()));
    }
  }
  check_data(header, file_bytes, where, code);
  return header;
}

SafetensorsFile::SafetensorsFile(const Path& path, ErrorCode code)
    : path_(path),
      map_(path, code, Access::random),
      header_(parse_safetensors(map_.bytes(), path.string(), code)) {}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto& all = header_.tensors;
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return map_.bytes().subspan(static_cast<std::size_t>(tensor.offset),
                              static_cast<std::size_t>(tensor.bytes));
}

void read_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> to) {
  const auto put = [&](auto convert) {
    return [&to, convert](std::size_t i, auto x) { to[i] = convert(x); };
  };
  switch (type) {
    case StoredType::f64:
      return for_each_element<double>(bytes, to.size(),
                                      put([](double x) { return static_cast<float>(x); }));
    case StoredType::f32:
      DEW_CHECK(to.size_bytes() <= bytes.size(), "fewer bytes than elements");
      if (!to.empty()) std::memcpy(to.data(), bytes.data(), to.size_bytes());
      return;
    case StoredType::f16:
      return for_each_element<std::uint16_t>(bytes, to.size(), put(half_to_float));
    case StoredType::bf16:
      return for_each_element<bf16>(bytes, to.size(),
                                    put([](bf16 x) { return static_cast<float>(x); }));
    default:
      fail(ErrorCode::internal, format("{} is no float", name(type)));
  }
}

void read_integers(StoredType type, std::span<const std::byte> bytes, std::span<std::int64_t> to,
                   ErrorCode code) {
  switch (type) {
    case StoredType::i64:
      return widen<std::int64_t>(bytes, to);
    case StoredType::i32:
      return widen<std::int32_t>(bytes, to);
    case StoredType::i16:
      return widen<std::int16_t>(bytes, to);
    case StoredType::i8:
      return widen<std::int8_t>(bytes, to);
    case StoredType::u64:
      return widen_u64(bytes, to, code);
    case StoredType::u32:
      return widen<std::uint32_t>(bytes, to);
    case StoredType::u16:
      return widen<std::uint16_t>(bytes, to);
    case StoredType::u8:
      return widen<std::uint8_t>(bytes, to);
    case StoredType::boolean:
      return widen_booleans(bytes, to, code);
    default:
      fail(ErrorCode::internal, format("{} is no integer", name(type)));
  }
}

std::string safetensors_header(std::vector<StoredTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  for (StoredTensor& t : tensors) {
    const auto bytes = checked_bytes(t.shape, byte_size(t.type));
    DEW_CHECK(bytes.has_value(), in_quotes(t.name));
    t.bytes = *bytes;
  }
  const std::string text = header_text(tensors, metadata);
  const std::uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  header += text;
  auto end = static_cast<std::int64_t>(header.size());
  for (StoredTensor& t : tensors) {
    t.offset = end;
    end += t.bytes;
  }
  return header;
}

SafetensorsWriter::SafetensorsWriter(const Path& path, ErrorCode code,
                                     std::vector<StoredTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, code), tensors_(std::move(tensors)) {
  const std::string header = safetensors_header(tensors_, metadata);
  file_.write(header);
  header_bytes_ = static_cast<std::int64_t>(header.size());
  header_digest_ = digest_of(std::as_bytes(std::span(header)));
  file_bytes_ = header_bytes_;
  for (const StoredTensor& t : tensors_) file_bytes_ += t.bytes;
}

void SafetensorsWriter::finish() {
  DEW_CHECK(file_.bytes_written() == file_bytes_,
            format("{} bytes of {} written", file_.bytes_written(), file_bytes_));
  file_.finish();
}

}  // namespace dew
