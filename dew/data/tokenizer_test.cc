#include "dew/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string all_bytes() {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  return bytes + bytes;
}

TEST(ByteTokenizer, IdsAreBytes) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.name(), "byte");
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.eos_id(), std::nullopt);
  EXPECT_THAT(tokenizer.encode("a\xff\n"), ElementsAre(97, 255, 10));
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all_bytes())), all_bytes());
}

TEST(ByteTokenizer, EndTokenIsNoText) {
  const ByteTokenizer tokenizer(true);
  EXPECT_EQ(tokenizer.eos_id(), 255);
  const std::vector<std::int32_t> ids = {104, 105, 255, 33};
  EXPECT_EQ(tokenizer.decode(ids), "hi!");
  const auto encoder = tokenizer.encoder();
  std::vector<std::int32_t> out;
  encoder->feed("abc", out);
  EXPECT_EQ(error_of(ErrorCode::data, [&] { encoder->feed("d\xff", out); }),
            "byte 4 of the text is 255, the end token; it cannot be part of a document");
}

TEST(ByteTokenizer, RefusesIdsOutsideTheVocabulary) {
  for (const std::int32_t id : {-1, 256}) {
    EXPECT_THAT(error_of(ErrorCode::data, [&] { ByteTokenizer().decode(std::vector{id}); }),
                HasSubstr("outside the vocabulary"));
  }
}

// What each id adds to the text, and at last what finish() adds.
std::vector<std::string> stream(const std::string& bytes) {
  const ByteTokenizer tokenizer;
  const auto decoder = tokenizer.decoder();
  std::vector<std::string> pieces;
  for (const std::int32_t id : tokenizer.encode(bytes)) decoder->feed(id, pieces.emplace_back());
  decoder->finish(pieces.emplace_back());
  return pieces;
}

TEST(ByteTokenizer, NeverDecodesHalfACharacter) {
  EXPECT_THAT(stream("a\xc3\xa4!"), ElementsAre("a", "", "\xc3\xa4", "!", ""));
  EXPECT_THAT(stream("\xf0\x9f\x98\x80"), ElementsAre("", "", "", "\xf0\x9f\x98\x80", ""));
  // Broken sequences come out as they are, as soon as they are known to be broken.
  EXPECT_THAT(stream("\xe2\x82z"), ElementsAre("", "", "\xe2\x82z", ""));
  EXPECT_THAT(stream("\x80\xff"), ElementsAre("\x80", "\xff", ""));
  EXPECT_THAT(stream("\xe2\xc3\xa4"), ElementsAre("", "\xe2", "\xc3\xa4", ""));
  EXPECT_THAT(stream("\xe2\x82"), ElementsAre("", "", "\xe2\x82"));
}

}  // namespace
}  // namespace dew
