#include "dew/data/tokenizers/ascii_words.h"

#include <algorithm>
#include <array>

namespace dew {
namespace {

enum Kind : std::uint8_t {
  lower = 1,
  upper = 2,
  digit = 4,
  line_end = 8,  // CR and LF
  space = 16,    // other white space
  beyond = 32,   // what is not ASCII
  other = 64,
};
constexpr unsigned kLetter = lower | upper, kWhite = line_end | space;

constexpr Kind kind_of(unsigned c) {
  if (c >= 0x80) return beyond;
  if (c >= 'a' && c <= 'z') return lower;
  if (c >= 'A' && c <= 'Z') return upper;
  if (c >= '0' && c <= '9') return digit;
  if (c == '\n' || c == '\r') return line_end;
  return c == ' ' || (c >= '\t' && c <= '\r') ? space : other;
}

constexpr auto kKinds = [] {
  std::array<Kind, 256> kinds{};
  for (unsigned c = 0; c < 256; ++c) kinds[c] = kind_of(c);
  return kinds;
}();

constexpr std::size_t kUnknown = 0;

// One match. Places are in the text; every step checks for its end.
class Match {
 public:
  Match(const AsciiWords& rules, std::string_view text, std::size_t from)
      : rules_(rules), text_(text), from_(from) {}

  std::size_t end() const {
    const char first = text_[from_];
    const unsigned kind = kind_at(from_);
    if (kind == beyond) return kUnknown;
    if (first == '\'' && !rules_.cuts_at_case) {
      const std::size_t suffix = suffix_end(from_);
      if (suffix != from_) return suffix;
    }
    if ((kind & kLetter) != 0) return letters(from_);
    if (kind == digit) return digits(from_);
    const unsigned next = kind_at(from_ + 1);
    if (next == beyond) return kUnknown;
    const bool before_letters = rules_.any_before_letters ? kind != line_end : first == ' ';
    if ((next & kLetter) != 0 && before_letters) return letters(from_ + 1);
    if (first == ' ' && next == digit && rules_.most_digits == 0) return digits(from_ + 1);
    if (first == ' ' && next == other) return others(from_ + 1);
    return kind == other ? others(from_) : white();
  }

 private:
  // Beyond the end of the text nobody knows.
  unsigned kind_at(std::size_t at) const {
    return at < text_.size() ? kKinds[static_cast<unsigned char>(text_[at])] : beyond;
  }
  std::size_t run_end(std::size_t at, unsigned kinds) const {
    while ((kind_at(at) & kinds) != 0) ++at;
    return at;
  }
  // A run's end is certain if ASCII follows it.
  std::size_t certain(std::size_t at) const { return kind_at(at) == beyond ? kUnknown : at; }

  char letter_at(std::size_t at) const {
    const auto c = static_cast<unsigned char>(text_[at]);
    return static_cast<char>(rules_.any_case && kKinds[c] == upper ? c | 0x20U : c);
  }

  // Behind 's and its like, `at` if there is none.
  std::size_t suffix_end(std::size_t at) const {
    if (kind_at(at + 1) == beyond) return kUnknown;
    const char a = letter_at(at + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (a != 'r' && a != 'v' && a != 'l') return at;
    if (kind_at(at + 2) == beyond) return kUnknown;
    return letter_at(at + 2) == (a == 'l' ? 'l' : 'e') ? at + 3 : at;
  }

  std::size_t letters(std::size_t at) const {
    if (!rules_.cuts_at_case) return certain(run_end(at, kLetter));
    const std::size_t end = certain(run_end(run_end(at, upper), lower));
    return end != kUnknown && text_[end] == '\'' ? suffix_end(end) : end;
  }

  std::size_t digits(std::size_t at) const {
    if (rules_.most_digits == 0) return certain(run_end(at, digit));
    const std::size_t most = at + rules_.most_digits;
    while (at < most && kind_at(at) == digit) ++at;
    return at == most ? at : certain(at);
  }

  std::size_t others(std::size_t at) const {
    std::size_t end = certain(run_end(at, other));
    if (end == kUnknown || !rules_.lines) return end;
    while (kind_at(end) == line_end ||
           (rules_.cuts_at_case && end < text_.size() && text_[end] == '/'))
      ++end;
    return end < text_.size() ? end : kUnknown;
  }

  std::size_t white() const {
    const std::size_t end = certain(run_end(from_, kWhite));
    if (end == kUnknown) return kUnknown;
    for (std::size_t at = end; rules_.lines && at > from_; --at) {
      if (kind_at(at - 1) == line_end) return at;
    }
    return std::max(end - 1, from_ + 1);
  }

  const AsciiWords& rules_;
  std::string_view text_;
  std::size_t from_;
};

struct Known {
  std::string_view pattern;
  AsciiWords rules;
};

constexpr AsciiWords kGpt2 = {
    .any_before_letters = false, .most_digits = 0, .any_case = false, .lines = false};
constexpr AsciiWords kGpt4 = {}, kQwen = {.most_digits = 1}, kGpt4o = {.cuts_at_case = true};

// As tokenizer.json and as tiktoken spell them.
constexpr auto kKnown = std::to_array<Known>({
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", kGpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kGpt4},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
     R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     kGpt4},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kQwen},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kGpt4o},
});

}  // namespace

const AsciiWords* AsciiWords::of(std::string_view pattern) {
  const auto known = std::ranges::find(kKnown, pattern, &Known::pattern);
  return known == kKnown.end() ? nullptr : &known->rules;
}

std::size_t AsciiWords::match(std::string_view text, std::size_t from) const {
  return Match(*this, text, from).end();
}

}  // namespace dew
