#include "dew/base/utf8.h"

#include <gtest/gtest.h>

#include <vector>

namespace dew {
namespace {

std::string streamed(const std::vector<std::string>& pieces) {
  Utf8Stream stream;
  std::string text;
  for (const std::string& piece : pieces) stream.feed(piece, text);
  stream.finish(text);
  return text;
}

std::string byte_by_byte(const std::string& bytes) {
  std::vector<std::string> pieces;
  for (const char c : bytes) pieces.emplace_back(1, c);
  return streamed(pieces);
}

const std::string kBroken = "\xef\xbf\xbd";

TEST(Utf8Stream, ValidTextStaysAsItIs) {
  const std::string text =
      std::string("a\0b", 3) + "\u00e9\u07ff\u0800\xed\x9f\xbf\ue000\uffff\U00010000\U0010ffff.";
  EXPECT_EQ(streamed({text}), text);
  EXPECT_EQ(byte_by_byte(text), text);
  EXPECT_EQ(streamed({}), "");
}

// As the WHATWG's decoder counts them.
TEST(Utf8Stream, WhatIsBrokenIsReplaced) {
  const std::pair<std::string, int> cases[] = {
      {"\x80", 1},              // no character begins so
      {"\xc0\xaf", 2},          // longer than needed
      {"\xe0\x9f\xbf", 3},      //
      {"\xed\xa0\x80", 3},      // a surrogate
      {"\xf4\x90\x80\x80", 4},  // beyond the last character
      {"\xf5", 1},              //
      {"\xff", 1},              //
      {"\xe2\x82", 1},          // breaks off
      {"\xf0\x9f\x92", 1},      //
  };
  for (const auto& [bytes, count] : cases) {
    std::string want;
    for (int i = 0; i < count; ++i) want += kBroken;
    EXPECT_EQ(streamed({bytes}), want) << testing::PrintToString(bytes);
    EXPECT_EQ(byte_by_byte(bytes), want) << testing::PrintToString(bytes);
    EXPECT_EQ(streamed({"x" + bytes + "y"}), "x" + want + "y") << testing::PrintToString(bytes);
    EXPECT_EQ(byte_by_byte("x" + bytes + "\u20ac"), "x" + want + "\u20ac");
  }
}

TEST(Utf8Stream, NeverHalfACharacterAndNeverLate) {
  Utf8Stream stream;
  std::string text;
  stream.feed("\xe2", text);
  stream.feed("\x82", text);
  EXPECT_EQ(text, "");
  stream.feed("\xac", text);
  EXPECT_EQ(text, "\u20ac");
  stream.feed("\xe2", text);
  stream.feed("a", text);  // proves that the byte before is broken
  EXPECT_EQ(text, "\u20ac" + kBroken + "a");
  stream.finish(text);
  EXPECT_EQ(text, "\u20ac" + kBroken + "a");
  stream.feed("\xf0\x9f", text);
  stream.finish(text);
  stream.feed("b", text);  // another text
  EXPECT_EQ(text, "\u20ac" + kBroken + "a" + kBroken + "b");
}

}  // namespace
}  // namespace dew
