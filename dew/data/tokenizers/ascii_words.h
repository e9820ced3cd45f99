// The patterns by which published byte-level tokenizers cut text, by hand where text is ASCII: most
// of English, and several times as fast as a regular expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dew {

// What such patterns differ in. All of them cut text without gaps, at 's 't 're 've 'm 'll 'd, runs
// of letters, of digits, of other characters, and of white space, whose last character goes to what
// is behind it.
struct AsciiWords {
  // What may be in front of letters: a blank, or one character that is no letter, digit or end of a
  // line. Only a blank may be in front of digits, and only where it is all.
  bool any_before_letters = true;
  std::uint8_t most_digits = 3;  // in one piece; 0: any number of them, and a blank before
  bool any_case = true;          // 'S is 's too
  // Letters with an upper case letter behind a lower case one are two pieces, and 's belongs to
  // what is before it.
  bool cuts_at_case = false;
  // Other characters take along the ends of lines behind them, and slashes if letters are cut at
  // case; white space ends behind its last end of a line.
  bool lines = true;

  // The rules that are this pattern; none if it is none of those known.
  static const AsciiWords* of(std::string_view pattern);

  // Where the match ends that begins at byte `from`, whatever follows the text; 0 if characters
  // beyond ASCII or what follows the text decide that. REQUIRES: from < text.size().
  std::size_t match(std::string_view text, std::size_t from) const;
};

}  // namespace dew
