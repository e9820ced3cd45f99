// Characters of UTF-8 text for tokenizers: reading them, their classes, normal forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dew {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;
};

// The first and the last character. REQUIRES: valid UTF-8 that is not empty.
CodePoint front_code_point(std::string_view valid);
CodePoint back_code_point(std::string_view valid);

void append_utf8(std::uint32_t code_point, std::string& out);

// Bytes of whole, valid characters that the text begins with. What follows them is broken, or the
// beginning of a character that the text cuts off (utf8_front tells).
std::size_t valid_utf8_prefix(std::string_view text);

bool is_ascii(std::string_view text);
bool is_white_space(std::uint32_t code_point);  // Unicode's White_Space
// Letters, marks, decimal digits, connecting punctuation, joiners: \w of Unicode regular
// expressions.
bool is_word_character(std::uint32_t code_point);
bool is_mark(std::uint32_t code_point);  // general category M
std::uint32_t lower_case(std::uint32_t code_point);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// Appends the normal form. REQUIRES: valid UTF-8.
void append_normal_form(std::string_view valid, NormalForm form, std::string& out);

// True of characters before which text can be cut so that the normal forms of both parts, one after
// the other, are the form of the whole: they never combine with what is before them. Not true of
// all such characters, but of some in every script.
bool begins_normal_part(std::uint32_t code_point);

// Calls visit(part) for each extended grapheme cluster. REQUIRES: valid UTF-8.
class GraphemeReader {
 public:
  explicit GraphemeReader(std::string_view valid) : rest_(valid) {}
  // The next cluster; empty at the end.
  std::string_view next();

 private:
  std::string_view rest_;
};

}  // namespace dew
