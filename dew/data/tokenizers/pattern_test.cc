#include "dew/data/tokenizers/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

std::string spelled(std::string_view pattern, PatternSyntax syntax = PatternSyntax::oniguruma) {
  return pcre2_spelling(pattern, syntax, "here");
}

// What a pattern matches in a text, "|" between.
std::string matches(std::string_view pattern, std::string_view text,
                    PatternSyntax syntax = PatternSyntax::oniguruma) {
  const Pattern compiled(pattern, syntax, "here");
  Matcher matcher(compiled);
  std::string found;
  for (std::size_t at = 0; at <= text.size();) {
    const PatternMatch match = matcher.find(text, at, true);
    if (match.kind != PatternMatch::Kind::found || match.end == match.begin) break;
    if (!found.empty()) found += '|';
    found += text.substr(match.begin, match.end - match.begin);
    at = match.end;
  }
  return found;
}

TEST(PatternSpelling, WhatBothReadAlikeStays) {
  for (const char* same : {"a|b", "(?:ab)+?c*", "(?i:'t|'ll)", "(?=a)(?!b)(?<=c)(?<!d)", "[a-z0-9]",
                           "[^\\r\\n]", "\\p{Lu}", "\\.\\-\\$", "(?>a)", "\\A\\z", "x{2,3}"}) {
    EXPECT_EQ(spelled(same), same);
  }
}

TEST(PatternSpelling, WhatPcre2ReadsInAnotherWayIsSpelledOut) {
  EXPECT_EQ(spelled("\\s"), "[\\x{9}-\\x{d}\\x{20}\\p{White_Space}]");
  EXPECT_EQ(spelled("[^\\s]"), "[^\\x{9}-\\x{d}\\x{20}\\p{White_Space}]");
  EXPECT_EQ(spelled("\\d"), "\\p{Nd}");
  EXPECT_EQ(spelled("\\h"), "[0-9a-fA-F]");
  EXPECT_EQ(spelled("{,3}"), "{0,3}");
  EXPECT_EQ(spelled("a{x"), "a\\{x");
  EXPECT_EQ(spelled("[]a]"), "[\\]a]");
  EXPECT_EQ(spelled("\\x41\\u00e9\\x{1F642}"), "\\x{41}\\x{00e9}\\x{1F642}");
  EXPECT_EQ(spelled("\\p{^L}"), "\\P{L}");
  EXPECT_EQ(spelled("\\p{Lowercase_Letter}"), "\\p{Ll}");
  EXPECT_EQ(spelled("\\p{Han}"), "\\p{sc:han}");
  EXPECT_EQ(spelled("\\p{L}"), "[A-Za-z\\p{L}]");
  EXPECT_EQ(spelled("[\\p{N}]"), "[0-9\\p{N}]");
  EXPECT_EQ(spelled("\\v"), "\\x{b}");
}

TEST(PatternSpelling, RefusedByName) {
  const auto message = [](const char* pattern, PatternSyntax syntax = PatternSyntax::oniguruma) {
    return error_of(ErrorCode::data, [&] { spelled(pattern, syntax); });
  };
  for (const char* pattern :
       {"[[:alpha:]]", "[a[b]]", "[a&&b]", "a{2}+",  "a{2}?",  "a{1,3}+", "(?<n>a)",
        "a(?i)b",      "(?s:a)", "(?x:a)", "\\b",    "\\B",    "\\G",     "\\K",
        "\\R",         "\\X",    "\\Z",    "\\1",    "\\k<n>", "\\xff",   "\\p{NoSuch1}",
        "\\pL",        "[a",     "\\",     "(*UTF)", "\\u12"}) {
    EXPECT_THAT(message(pattern), HasSubstr("here: the pattern ")) << pattern;
  }
  EXPECT_EQ(spelled("\\pL", PatternSyntax::rust), "[A-Za-z\\p{L}]");
  EXPECT_EQ(spelled("a{1,3}+", PatternSyntax::rust), "a{1,3}+");
}

// Oniguruma takes "ss" for U+00DF and the other way round where case is ignored, PCRE2 does not.
TEST(PatternSpelling, WhereCaseIsIgnoredOnlyWhatFoldsAlike) {
  for (const char* pattern : {"(?i)straSSe", "(?i:of|if|ff)", "(?i:\xc3\xa9)", "(?i)[^a]",
                              "(?i)\\S", "(?i)\\p{L}", "(?i)[\\p{Ll}]", "(?i)[\\w]", "(?i)s{2}",
                              "(?i)s(?:t)", "(?i)\\x{df}", "(?i)\\P{N}", "(?i)[\xc3\xa9]"}) {
    EXPECT_THAT(error_of(ErrorCode::data, [&] { spelled(pattern); }),
                HasSubstr("where case is ignored"))
        << pattern;
  }
  for (const char* pattern : {"(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i)the[a-z]+\\s*\\d\\p{N}",
                              "(?i:s)\\p{L}", "(?i:if|so)st", "(?i:s|t)", "(?i)\\w"}) {
    spelled(pattern);
  }
  EXPECT_EQ(matches("(?i:'s|k)", "'S 's '\xc5\xbf K \xe2\x84\xaa"),
            "'S|'s|'\xc5\xbf|K|\xe2\x84\xaa");
  spelled("(?i)stra\xc3\x9f\x65", PatternSyntax::rust);
}

// By itself Oniguruma's \w means six more characters than in a class.
TEST(Pattern, Words) {
  const char* text = "a_1 \xc2\xb2\xc2\xbd \xe0\xa4\xbf \xe2\x80\x8d";
  EXPECT_EQ(matches("\\w+", text), "a_1|\xc2\xb2\xc2\xbd|\xe0\xa4\xbf");
  EXPECT_EQ(matches("[\\w]+", text), "a_1|\xe0\xa4\xbf");
  EXPECT_EQ(matches("\\w+", text, PatternSyntax::rust), "a_1|\xe0\xa4\xbf|\xe2\x80\x8d");
  EXPECT_EQ(matches("\\W+", "a\xc2\xb2-b"), "-");
}

TEST(Pattern, LinesAndEnds) {
  EXPECT_EQ(matches("^a", "a\na"), "a|a");
  EXPECT_EQ(matches("a$", "a\na"), "a|a");
  EXPECT_EQ(matches("a$", "a\nb\na", PatternSyntax::rust), "a");
  EXPECT_EQ(matches(".+", "ab\ncd"), "ab|cd");
  EXPECT_EQ(matches("a{1,3}+", "aaaa", PatternSyntax::rust), "aaa|a");
}

TEST(Pattern, PublishedOnesCutAsTheyShould) {
  const char* gpt4 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(matches(gpt4, "It'S  12345 \xc3\xa9t\xc3\xa9!!\n\n x"),
            "It|'S| | |123|45| \xc3\xa9t\xc3\xa9|!!\n\n| x");
}

TEST(Pattern, UnfinishedMatchesWait) {
  const Pattern pattern("\\s+(?!\\S)|\\s+|a+", PatternSyntax::oniguruma, "here");
  Matcher matcher(pattern);
  EXPECT_EQ(matcher.find("baa", 0, false).kind, PatternMatch::Kind::unfinished);
  EXPECT_EQ(matcher.find("baa", 0, false).begin, 1u);
  EXPECT_EQ(matcher.find("baab", 0, false).kind, PatternMatch::Kind::found);
  EXPECT_EQ(matcher.find("bc", 0, false).kind, PatternMatch::Kind::none);
  EXPECT_EQ(matcher.find("baa", 0, true).end, 3u);
}

TEST(Pattern, LiteralsAreNoPatterns) {
  const Pattern dot = Pattern::literal("a.[");
  Matcher matcher(dot);
  EXPECT_EQ(matcher.find("ab[a.[", 0, true).begin, 3u);
  EXPECT_EQ(dot.lookbehind(), 0u);
  EXPECT_FALSE(dot.may_match_nothing());
  EXPECT_EQ(Pattern("(?<=ab)c", PatternSyntax::oniguruma, "here").lookbehind(), 2u);
  EXPECT_TRUE(Pattern("a*", PatternSyntax::oniguruma, "here").may_match_nothing());
}

// Repeats of repeats take exponential time on a text that does not match at last.
TEST(Pattern, CatastrophicOnesAreBounded) {
  std::string text(4000, 'a');
  text += 'b';
  const auto begin = std::chrono::steady_clock::now();
  for (const char* pattern : {"(?:a+)+c", "(?:a|a)*c", "(?:a*)*c", "(?:a+a+)+c", "(?:(?:a+)+)+$",
                              "(?:a|aa)+c", "(a?){20,30}c"}) {
    const Pattern compiled(pattern, PatternSyntax::oniguruma, "here");
    Matcher matcher(compiled);
    const std::string said = error_of(ErrorCode::data, [&] { matcher.find(text, 0, true); });
    if (said != "no error") {
      EXPECT_THAT(said, HasSubstr("takes too much work")) << pattern;
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Pattern, LongOnesAreRefused) {
  const auto message = [](const std::string& pattern) {
    return error_of(ErrorCode::data, [&] { Pattern(pattern, PatternSyntax::oniguruma, "here"); });
  };
  EXPECT_THAT(message(std::string(Pattern::kMostBytes + 1, 'a')), HasSubstr("the most is 65536"));
  EXPECT_EQ(message(std::string(1000, 'a')), "no error");
  EXPECT_THAT(message("(?:(?:(?:a{1000}){1000}){1000})"), HasSubstr("here: the pattern"));
  EXPECT_THAT(message(std::string(5000, '(') + std::string(5000, ')')), HasSubstr("here"));
  EXPECT_THAT(message("(a"), HasSubstr("is not understood"));
  EXPECT_THAT(message("*a"), HasSubstr("is not understood"));
}

}  // namespace
}  // namespace dew
