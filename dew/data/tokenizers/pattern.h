// Regular expressions of tokenizer files, by PCRE2's just-in-time compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dew {

// The dialect that a pattern is written in. Both are read with Unicode meanings of all classes.
enum class PatternSyntax : std::uint8_t {
  oniguruma,  // of tokenizer.json: ^ and $ at every line, x{1,3}+ repeats a repeat
  rust,       // of tiktoken: $ at the end only, x{1,3}+ is possessive
};

// The pattern in PCRE2's spelling, meaning the same. Throws ErrorCode::data for what has no such
// spelling or is not known to mean the same, with `where`, the construct and its place.
std::string pcre2_spelling(std::string_view pattern, PatternSyntax syntax,
                           const std::string& where);

// A compiled pattern: immutable, usable from any thread.
class Pattern {
 public:
  static constexpr std::size_t kMostBytes = 1 << 16;  // of its text

  // Throws ErrorCode::data as above, and for patterns that are not well formed or too long.
  Pattern(std::string_view pattern, PatternSyntax syntax, const std::string& where);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  // One that matches this text and nothing else.
  static Pattern literal(std::string_view text);

  // How many characters before a match it may look at.
  std::size_t lookbehind() const;
  bool may_match_nothing() const;  // text of no characters

 private:
  friend class Matcher;
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

struct PatternMatch {
  enum class Kind : std::uint8_t {
    found,
    none,
    unfinished,  // what follows the text decides; `begin` is where that match would begin
  };
  Kind kind = Kind::none;
  std::size_t begin = 0, end = 0;
};

// Finds matches; belongs to one thread and needs its pattern alive.
class Matcher {
 public:
  explicit Matcher(const Pattern& pattern);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // The first match that begins at byte `from` or behind. `complete`: nothing follows the text;
  // else it may go on, and what is found does not depend on how. REQUIRES: valid UTF-8, `from` at a
  // character. Throws ErrorCode::data if the pattern takes more steps than kMostSteps.
  PatternMatch find(std::string_view text, std::size_t from, bool complete);
  // The same by PCRE2 alone; find() knows some patterns (ascii_words.h).
  PatternMatch search(std::string_view text, std::size_t from, bool complete);

  static constexpr std::uint32_t kMostSteps = 10'000'000;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dew
