#include "dew/data/tokenizers/byte_characters.h"

#include <array>

#include "dew/data/tokenizers/unicode.h"

namespace dew {
namespace {

constexpr std::uint32_t kEnd = 0x144;  // above the last character of the table

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Table {
  std::array<std::uint32_t, 256> character{};
  std::array<std::int16_t, kEnd> byte{};
};

constexpr Table make_table() {
  Table table;
  for (auto& byte : table.byte) byte = -1;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t character = stands_for_itself(byte) ? byte : next++;
    table.character[byte] = character;
    table.byte[character] = static_cast<std::int16_t>(byte);
  }
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

std::uint32_t byte_character(unsigned char byte) { return kTable.character[byte]; }

std::optional<unsigned char> byte_of_character(std::uint32_t c) {
  if (c >= kEnd || kTable.byte[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kTable.byte[c]);
}

void append_byte_characters(std::string_view bytes, std::string& out) {
  for (const char c : bytes) append_utf8(byte_character(static_cast<unsigned char>(c)), out);
}

std::optional<std::string> bytes_of_characters(std::string_view valid) {
  std::string bytes;
  while (!valid.empty()) {
    const CodePoint c = front_code_point(valid);
    const auto byte = byte_of_character(c.value);
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
    valid.remove_prefix(c.bytes);
  }
  return bytes;
}

}  // namespace dew
