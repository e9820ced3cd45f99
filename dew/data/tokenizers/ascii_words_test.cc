#include "dew/data/tokenizers/ascii_words.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "dew/data/tokenizers/pattern.h"

namespace dew {
namespace {

struct Case {
  std::string_view pattern;
  PatternSyntax syntax = PatternSyntax::oniguruma;
};

constexpr auto kPatterns = std::to_array<Case>({
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
     PatternSyntax::rust},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     PatternSyntax::rust},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
});

// What texts are made of: all that the rules tell apart, and what is not for them.
constexpr std::size_t kAsciiParts = 37;  // come first
constexpr auto kParts = std::to_array<std::string_view>(
    {"a",    "b",   "S",   "T",    "'s", "'S",  "'t", "'RE",  "'ve",  "'ll",     "'l",
     "'",    "'d",  "re",  "0",    "12", "345", " ",  "  ",   "\n",   "\r",      "\t",
     "\v",   "\f",  ".",   ",",    "/",  "((",  "-",  "\x1c", "\x7f", "~",       "the",
     " The", "'m ", "x'y", "\r\n", "é",  "É",   "ſ",  "中",   "²",    "\xc2\xa0"});

std::string random_text(std::mt19937_64& random) {
  std::string text;
  // Half of the texts have ASCII only.
  const std::size_t parts = random() % 2 == 0 ? kAsciiParts : kParts.size();
  const std::size_t size = 1 + random() % 12;
  for (std::size_t i = 0; i < size; ++i) text += kParts[random() % parts];
  return text;
}

// Where a search may begin: at characters.
bool is_place(std::string_view text, std::size_t at) {
  return (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

class KnownPattern : public ::testing::TestWithParam<Case> {
 protected:
  const AsciiWords* rules_ = AsciiWords::of(GetParam().pattern);
  Pattern pattern_{GetParam().pattern, GetParam().syntax, "here"};
  Matcher matcher_{pattern_};
};

TEST_P(KnownPattern, EndsWhereTheRegularExpressionEndsWhateverFollows) {
  ASSERT_NE(rules_, nullptr);
  const std::uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random), more = text + random_text(random);
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (!is_place(text, at)) continue;
      const std::size_t end = rules_->match(text, at);
      if (end == 0) continue;
      for (const std::string& whole : {text, more}) {
        const PatternMatch match = matcher_.search(whole, at, true);
        ASSERT_EQ(match.kind, PatternMatch::Kind::found);
        ASSERT_EQ(match.begin, at) << "seed " << seed << ": " << text;
        ASSERT_EQ(match.end, end) << "seed " << seed << ", byte " << at << ": " << whole;
      }
    }
  }
}

TEST_P(KnownPattern, KnowsMostOfAnEnglishText) {
  const std::string text =
      "It's 1984, and I said: \"They'll see\"  (or not).\n\nWho'd know? Yes!\n";
  std::size_t at = 0, known = 0, all = 0;
  for (; at < text.size(); ++all) {
    if (rules_->match(text, at) > 0) ++known;
    at = matcher_.search(text, at, true).end;
  }
  EXPECT_EQ(known, all - 1);  // of the last one the end of the text is not certain
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern, ::testing::ValuesIn(kPatterns));

TEST(AsciiWords, OtherPatternsAreNotKnown) {
  EXPECT_EQ(AsciiWords::of("\\p{L}+"), nullptr);
  EXPECT_EQ(AsciiWords::of(""), nullptr);
}

}  // namespace
}  // namespace dew
