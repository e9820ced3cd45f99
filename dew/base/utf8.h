// UTF-8 as it comes: whole characters, broken ones, and ones that are not all there yet.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dew {

// What text begins with. `bytes` is 0 for empty text only.
struct Utf8Front {
  enum class Kind {
    character,   // of so many bytes
    broken,      // so many bytes that no character begins with, or whose character breaks off
    unfinished,  // all of the text, the beginning of a character
  };
  Kind kind = Kind::unfinished;
  std::size_t bytes = 0;
};
Utf8Front utf8_front(std::string_view text);

// Makes valid UTF-8 of bytes that come in pieces, cut anywhere: what is broken becomes U+FFFD, one
// for each part that Utf8Front calls broken, and half a character waits for the rest.
class Utf8Stream {
 public:
  // Appends the text that is certain now.
  void feed(std::string_view bytes, std::string& text);
  // The bytes end: half a character is a broken one.
  void finish(std::string& text);

 private:
  std::string held_;
};

}  // namespace dew
