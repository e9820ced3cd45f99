#include "dew/data/tokenizers/char_map.h"

#include <array>
#include <cstring>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::size_t kClusterBytes = 6;  // clusters of so many are looked up by character

constexpr std::array<std::int16_t, 256> base64_values() {
  std::array<std::int16_t, 256> values{};
  for (auto& value : values) value = -1;
  std::int16_t next = 0;
  for (const char c :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"))
    values[static_cast<unsigned char>(c)] = next++;
  return values;
}

constexpr std::array<std::int16_t, 256> kBase64 = base64_values();

// A unit of the trie.
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffff; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ff; }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

CharMap::CharMap(std::string_view blob, const std::string& where) {
  std::uint32_t bytes = 0;
  if (blob.size() >= sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
  if (blob.size() < sizeof bytes || bytes == 0 || bytes % sizeof(std::uint32_t) != 0 ||
      bytes > blob.size() - sizeof bytes) {
    fail(ErrorCode::data, format("{}: the character map is cut off: {} bytes, its table has {}",
                                 where, blob.size(), bytes));
  }
  trie_.resize(bytes / sizeof(std::uint32_t));
  std::memcpy(trie_.data(), blob.data() + sizeof bytes, bytes);
  replacements_ = blob.substr(sizeof bytes + bytes);
  if (replacements_.empty() || replacements_.back() != '\0')
    fail(ErrorCode::data, format("{}: the character map's last text has no end", where));
  if (valid_utf8_prefix(replacements_) != replacements_.size())
    fail(ErrorCode::data, format("{}: the character map has broken UTF-8", where));
}

std::optional<std::string_view> CharMap::find(std::string_view text) const {
  std::uint32_t node = offset_of(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    if (node >= trie_.size() || label_of(trie_[node]) != byte) return std::nullopt;
    const bool ends = has_value(trie_[node]);
    node ^= offset_of(trie_[node]);
    if (!ends) continue;
    if (node >= trie_.size()) return std::nullopt;
    const std::uint32_t begin = value_of(trie_[node]);
    if (begin >= replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    // A damaged table may point into the middle of a character.
    if (utf8_front(rest).kind != Utf8Front::Kind::character) return std::nullopt;
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void CharMap::append_replaced(std::string_view valid, GrownText& out) const {
  GraphemeReader clusters(valid);
  for (std::string_view cluster = clusters.next(); !cluster.empty(); cluster = clusters.next()) {
    if (cluster.size() < kClusterBytes) {
      if (const auto by = find(cluster)) {
        out += *by;
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, front_code_point(cluster).bytes);
      out += find(character).value_or(character);
      cluster.remove_prefix(character.size());
    }
  }
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t pads = 0;
  while (pads < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++pads;
  }
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = kBase64[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    held = held << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(held >> bits & 0xff);
  }
  return bytes;
}

}  // namespace dew
