#include "dew/base/digest.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace dew {
namespace {

TEST(Digest, PiecesAreTheWholeAndTextComesBack) {
  const std::string text(1000, 'q');
  const auto bytes = std::as_bytes(std::span(text));
  Digest digest;
  EXPECT_EQ(digest.value(), digest_of({}));
  digest.update(bytes.first(1));
  digest.update({});
  digest.update(bytes.subspan(1));
  EXPECT_EQ(digest.value(), digest_of(bytes));
  EXPECT_EQ(digest_text(digest_of({})), "2d06800538d394c2");  // XXH3-64 of nothing, as published
  EXPECT_EQ(parse_digest(digest_text(digest.value())), digest.value());
  EXPECT_EQ(digest_text(0x1f), "000000000000001f");
  for (const char* bad : {"", "1f", "00000000000000001f", "000000000000001F", "000000000000001g"}) {
    EXPECT_EQ(parse_digest(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace dew
