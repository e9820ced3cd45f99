// The alphabet of byte-level tokenizers: a printable character for each byte, itself where it is
// one (GPT-2's table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dew {

std::uint32_t byte_character(unsigned char byte);
std::optional<unsigned char> byte_of_character(std::uint32_t code_point);

// Appends each byte as its character.
void append_byte_characters(std::string_view bytes, std::string& out);
// Back; none if one of the characters stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view valid);

}  // namespace dew
