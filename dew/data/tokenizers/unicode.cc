#include "dew/data/tokenizers/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/utf8.h"

namespace dew {
namespace {

std::uint32_t low_bits(char c, unsigned mask) { return static_cast<unsigned char>(c) & mask; }

utf8proc_int32_t signed_of(std::uint32_t code_point) {
  return static_cast<utf8proc_int32_t>(code_point);
}

struct Range {
  std::uint32_t first, last;
};

// Letters that neither combine with what is before them nor change places with it, in any form.
constexpr Range kPartBegins[] = {
    {0x0, 0x2ff},      // Latin; marks begin at U+0300
    {0x400, 0x482},    // Cyrillic
    {0x48a, 0x52f},    //
    {0x5d0, 0x5ea},    // Hebrew
    {0x621, 0x64a},    // Arabic
    {0x904, 0x939},    // Devanagari
    {0xe01, 0xe2e},    // Thai
    {0x3041, 0x3096},  // Hiragana
    {0x30a1, 0x30fa},  // Katakana
    {0x3400, 0x4dbf},  // Chinese characters
    {0x4e00, 0x9fff},  //
    {0xac00, 0xd7a3},  // Hangul syllables
};

}  // namespace

CodePoint front_code_point(std::string_view valid) {
  const auto first = static_cast<unsigned char>(valid[0]);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1fU) << 6 | low_bits(valid[1], 0x3f), 2};
  if (first < 0xf0) {
    return {(first & 0x0fU) << 12 | low_bits(valid[1], 0x3f) << 6 | low_bits(valid[2], 0x3f), 3};
  }
  return {(first & 0x07U) << 18 | low_bits(valid[1], 0x3f) << 12 | low_bits(valid[2], 0x3f) << 6 |
              low_bits(valid[3], 0x3f),
          4};
}

CodePoint back_code_point(std::string_view valid) {
  std::size_t at = valid.size() - 1;
  while ((static_cast<unsigned char>(valid[at]) & 0xc0) == 0x80) --at;
  return front_code_point(valid.substr(at));
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto tail = [&](unsigned shift) {
    out.push_back(static_cast<char>(0x80 | (c >> shift & 0x3f)));
  };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t valid_utf8_prefix(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & kHighBits) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Front front = utf8_front(text.substr(at));
    if (front.kind != Utf8Front::Kind::character) break;
    at += front.bytes;
  }
  return at;
}

bool is_ascii(std::string_view text) {
  unsigned char any = 0;
  for (const char c : text) any = static_cast<unsigned char>(any | static_cast<unsigned char>(c));
  return any < 0x80;
}

bool is_white_space(std::uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_word_character(std::uint32_t c) {
  switch (utf8proc_category(signed_of(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  const bool joiner = c == 0x200c || c == 0x200d;
  const bool circled_letter = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                              (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  return joiner || circled_letter;
}

bool is_mark(std::uint32_t c) {
  const utf8proc_category_t category = utf8proc_category(signed_of(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

std::uint32_t lower_case(std::uint32_t c) {
  return static_cast<std::uint32_t>(utf8proc_tolower(signed_of(c)));
}

void append_normal_form(std::string_view valid, NormalForm form, std::string& out) {
  if (is_ascii(valid)) {
    out += valid;
    return;
  }
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* text = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &text, options);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  DEW_CHECK(size >= 0, format("normal form: {}", utf8proc_errmsg(size)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(text, &std::free);
  out.append(reinterpret_cast<const char*>(text), static_cast<std::size_t>(size));
}

bool begins_normal_part(std::uint32_t c) {
  for (const Range& range : kPartBegins) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

std::string_view GraphemeReader::next() {
  if (rest_.empty()) return {};
  CodePoint before = front_code_point(rest_);
  std::size_t end = before.bytes;
  utf8proc_int32_t state = 0;
  while (end < rest_.size()) {
    const CodePoint here = front_code_point(rest_.substr(end));
    if (utf8proc_grapheme_break_stateful(signed_of(before.value), signed_of(here.value), &state))
      break;
    end += here.bytes;
    before = here;
  }
  const std::string_view cluster = rest_.substr(0, end);
  rest_.remove_prefix(end);
  return cluster;
}

}  // namespace dew
