// What the fuzz targets share. A target is a file x_fuzz.cc that gives one parser any bytes:
//
//   void dew::fuzz::run(std::string_view input);
//
// The parser must return a value or throw one Error of the code that it documents, on one line of
// bearable length; a value that can be written must read back as the same. Anything else ends the
// process, as do crashes, hangs and large allocations (tools/fuzz sets the limits).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "dew/base/error.h"

namespace dew::fuzz {

// Throws nothing that is no bug.
void run(std::string_view input);

[[noreturn]] inline void broken(const std::string& what) {
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

inline void require(bool condition, const char* what) {
  if (!condition) broken(what);
}

// One line that a terminal can show. Names from the input may be in it, so the rest of the world's
// bytes are left to the program's last escape; control characters are not.
inline void check_line(const std::string& text) {
  constexpr std::size_t kLongest = 2000;
  if (text.size() > kLongest) broken("a message of " + std::to_string(text.size()) + " bytes");
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) broken("a message with a control character: " + text);
  }
}

inline void check_error(const Error& error, ErrorCode code) {
  if (error.code() != code) broken("an error of another code: " + std::string(error.what()));
  if (error.what()[0] == '\0') broken("an empty message");
  check_line(error.what());
  check_line(error.hint());
}

// What `parse` returns; none after an Error, which must have that code.
template <class Parse>
auto parsed(ErrorCode code, Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Error& error) {
    check_error(error, code);
    return std::nullopt;
  }
}

// The same of text that we wrote ourselves: it must be accepted.
template <class Parse>
auto parsed_again(Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    broken(std::string("what was written cannot be read: ") + error.what());
  }
}

}  // namespace dew::fuzz
