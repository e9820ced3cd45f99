// Each stage of a tokenizer by itself, whole and in pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/base/file_test_support.h"
#include "dew/data/tokenizers/added_tokens.h"
#include "dew/data/tokenizers/bpe.h"
#include "dew/data/tokenizers/normalizer.h"
#include "dew/data/tokenizers/splitter.h"
#include "dew/data/tokenizers/text_decoder.h"
#include "dew/data/tokenizers/unigram.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Texts = std::vector<std::string>;
using Ids = std::vector<TokenId>;

std::shared_ptr<const Pattern> regex(const char* text) {
  return std::make_shared<Pattern>(text, PatternSyntax::oniguruma, "here");
}

// ---- normalizers

std::string fed_in_characters(const NormalizerSteps& steps, std::string_view text) {
  Normalizer normalizer(steps);
  normalizer.begin();
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = front_code_point(text).bytes;
    normalizer.feed(text.substr(0, bytes), out);
    text.remove_prefix(bytes);
  }
  normalizer.finish(out);
  return out;
}

void expect_normalized(const NormalizerSteps& steps, std::string_view text,
                       std::string_view expected) {
  EXPECT_EQ(normalized(steps, text), expected) << text;
  EXPECT_EQ(fed_in_characters(steps, text), expected) << text;
}

TEST(NormalizerStage, Forms) {
  expect_normalized({NormalForm::nfc}, "e\xcc\x81", "\xc3\xa9");
  expect_normalized({NormalForm::nfd}, "\xc3\xa9", "e\xcc\x81");
  expect_normalized({NormalForm::nfkc}, "\xef\xac\x81\xc2\xb2", "fi2");
  expect_normalized({NormalForm::nfkd}, "\xef\xac\x81\xc3\xa9", "fie\xcc\x81");
  expect_normalized({NormalForm::nfc}, "\xe1\x84\x80\xe1\x85\xa1", "\xea\xb0\x80");
}

TEST(NormalizerStage, Characters) {
  expect_normalized({LowercaseStep{}}, "AB\xc3\x89\xc4\xb0", "ab\xc3\xa9i\xcc\x87");
  expect_normalized({NormalForm::nfd, StripAccentsStep{}}, "\xc3\xa9\xc3\xa0", "ea");
  expect_normalized({NmtStep{}}, "a\x01\tb\xe2\x80\x8b\xef\xbb\xbf", "a b  ");
  expect_normalized({PrependStep{"_"}}, "ab", "_ab");
  expect_normalized({PrependStep{"_"}}, "", "");
  expect_normalized({ReplaceStep{"aa", nullptr, "b"}}, "aaaaa", "bba");
  expect_normalized({ReplaceStep{"", regex("\\s+"), "_"}}, "a \n b", "a_b");
  expect_normalized({StripStep{}}, " \xe3\x80\x80 a b \n", "a b");
  expect_normalized({StripStep{.left = false}}, " a ", " a");
  expect_normalized({PrependStep{"_"}, ReplaceStep{" ", nullptr, "_"}}, "a b", "_a_b");
}

// Whether the text still begins where everything begins, which Metaspace's "first" asks.
TEST(NormalizerStage, FrontsThatAreGone) {
  const auto gone = [](const NormalizerSteps& steps, std::string_view text) {
    Normalizer normalizer(steps);
    normalizer.begin();
    std::string out;
    normalizer.feed(text, out);
    normalizer.finish(out);
    return normalizer.front_is_gone();
  };
  EXPECT_TRUE(gone({StripStep{}}, " a"));
  EXPECT_FALSE(gone({StripStep{}}, "a "));
  EXPECT_TRUE(gone({NmtStep{}},
                   "\x01"
                   "a"));
  EXPECT_FALSE(gone({NmtStep{}}, "a\x01"));
  EXPECT_TRUE(gone({StripAccentsStep{}},
                   "\xcc\x81"
                   "a"));
  EXPECT_TRUE(gone({ReplaceStep{"a", nullptr, ""}}, "ab"));
  EXPECT_FALSE(gone({ReplaceStep{"a", nullptr, "c"}}, "ab"));
  EXPECT_TRUE(gone({ReplaceStep{"", regex("[ab]"), ""}}, "ab"));
  EXPECT_FALSE(gone({ReplaceStep{"", regex("[ab]"), ""}}, "cab"));
}

// ---- pre-tokenizers

Texts pieces_of(const PreTokenizer& steps, std::string_view text, std::size_t size = 1 << 20) {
  Texts pieces;
  Splitter splitter(steps);
  const PieceSink sink = [&](auto some) { pieces.insert(pieces.end(), some.begin(), some.end()); };
  splitter.begin(true);
  for (std::size_t at = 0; at < text.size(); at += size) splitter.feed(text.substr(at, size), sink);
  splitter.finish(sink);
  return pieces;
}

TEST(SplitterStage, Behaviors) {
  const auto split = [](SplitBehavior behavior, bool invert = false) {
    const PreTokenizer steps = {SplitStep{regex("-"), behavior, invert}};
    const Texts whole = pieces_of(steps, "a--b-");
    EXPECT_EQ(pieces_of(steps, "a--b-", 1), whole);
    return whole;
  };
  EXPECT_THAT(split(SplitBehavior::isolated), ElementsAre("a", "-", "-", "b", "-"));
  EXPECT_THAT(split(SplitBehavior::removed), ElementsAre("a", "b"));
  EXPECT_THAT(split(SplitBehavior::contiguous), ElementsAre("a", "--", "b", "-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_previous), ElementsAre("a-", "-", "b-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_next), ElementsAre("a", "-", "-b", "-"));
  EXPECT_THAT(split(SplitBehavior::removed, true), ElementsAre("-", "-", "-"));
  EXPECT_THAT(split(SplitBehavior::merged_with_next, true), ElementsAre("a-", "-", "b-"));
}

TEST(SplitterStage, StepsAfterSteps) {
  const PreTokenizer steps = {SplitStep{regex("\\s"), SplitBehavior::removed},
                              MarkStep{.mark = "_", .prefix = PrefixWhen::always},
                              SplitStep{regex("\\d"), SplitBehavior::isolated}};
  EXPECT_THAT(pieces_of(steps, "a1 b"), ElementsAre("_a", "1", "_b"));
  EXPECT_THAT(pieces_of(steps, ""), IsEmpty());
  EXPECT_THAT(pieces_of(steps, "   "), IsEmpty());
  const PreTokenizer bytes = {PrefixStep{}, ByteCharactersStep{}};
  EXPECT_THAT(pieces_of(bytes, "\xc3\xa9"), ElementsAre("\xc4\xa0\xc3\x83\xc2\xa9"));
}

TEST(SplitterStage, MarksInFront) {
  const auto marked = [](PrefixWhen when, std::string_view text) {
    return pieces_of({SplitStep{regex("\\|"), SplitBehavior::removed}, MarkStep{"_", when}}, text);
  };
  EXPECT_THAT(marked(PrefixWhen::always, "a|b c| d"), ElementsAre("_a", "_b_c", "_d"));
  EXPECT_THAT(marked(PrefixWhen::first, "a|b c| d"), ElementsAre("_a", "b_c", "_d"));
  EXPECT_THAT(marked(PrefixWhen::never, "a|b c| d"), ElementsAre("a", "b_c", "_d"));
  EXPECT_THAT(marked(PrefixWhen::first, "|b"), ElementsAre("b"));
}

// ---- added tokens

std::string found_in(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token.text, &token);
  std::string out;
  AddedTokenFinder::Place place;
  finder.visit(text, place, true, true, [&](const AddedTokenFinder::Found& found) {
    const std::string_view part = text.substr(found.begin, found.end - found.begin);
    out += found.token != nullptr ? "[" + std::to_string(found.token->id) + ":" : "(";
    out += part;
    out += found.token != nullptr ? ']' : ')';
  });
  return out;
}

TEST(AddedTokensStage, TheLongestOfTheLeftmost) {
  const std::vector<AddedToken> tokens = {
      {.text = "ab", .id = 1}, {.text = "abc", .id = 2}, {.text = "bcd", .id = 3}};
  EXPECT_EQ(found_in(tokens, "xabcdab"), "(x)[2:abc](d)[1:ab]");
  EXPECT_EQ(found_in({{.text = "a", .id = 1}, {.text = "a", .id = 2}}, "a"), "[1:a]");
}

TEST(AddedTokensStage, Flags) {
  EXPECT_EQ(found_in({{.text = "a", .id = 1, .single_word = true}}, "a ba a-"),
            "[1:a]( ba )[1:a](-)");
  EXPECT_EQ(found_in({{.text = "a", .id = 1, .lstrip = true, .rstrip = true}}, "b  a  b"),
            "(b)[1:  a  ](b)");
  // White space that one has taken is not there for the next.
  EXPECT_EQ(
      found_in({{.text = "a", .id = 1, .rstrip = true}, {.text = " ", .id = 2, .lstrip = true}},
               "a  b "),
      "[1:a  ](b)[2: ]");
}

// The second token begins with the blank that the first one has taken, wherever the text is cut.
TEST(AddedTokensStage, TextThatComesInPieces) {
  const AddedToken token = {.text = " x", .id = 1, .lstrip = true, .rstrip = true};
  AddedTokenFinder finder;
  finder.add(token.text, &token);
  const std::string text = "a x  x xb x";
  for (std::size_t first = 0; first <= text.size(); ++first) {
    AddedTokenFinder::Place place;
    int tokens = 0;
    std::string between;
    const auto visit = [&](const AddedTokenFinder::Found& found) {
      if (found.token != nullptr) ++tokens;
      if (found.token == nullptr) between += text.substr(found.begin, found.end - found.begin);
    };
    finder.visit(std::string_view(text).substr(0, first), place, false, true, visit);
    finder.visit(text, place, true, true, visit);
    EXPECT_EQ(tokens, 4) << first;
    EXPECT_EQ(between, "ab") << first;
  }
}

// ---- models

std::array<TokenId, 256> no_bytes() {
  std::array<TokenId, 256> ids{};
  ids.fill(-1);
  return ids;
}

Vocabulary vocabulary_of(const Texts& texts) {
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_TRUE(vocabulary.add(texts[i], static_cast<TokenId>(i)));
  return vocabulary;
}

Ids encoded(const TokenModel& model, std::string_view piece) {
  Ids ids;
  const auto encoder = model.encoder();
  encoder->encode(piece, ids);
  const std::size_t once = ids.size();
  encoder->encode(piece, ids);  // what is remembered is the same
  EXPECT_EQ(Ids(ids.begin() + static_cast<std::ptrdiff_t>(once), ids.end()),
            Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(once)));
  ids.resize(once);
  return ids;
}

Bpe small_bpe(BpeOptions options = {}) {
  MergeTable merges;
  merges.reserve(3);
  merges.set(0, 0, {0, 2});  // a a
  merges.set(0, 1, {1, 3});  // a b
  merges.set(2, 3, {2, 4});  // aa ab
  return {vocabulary_of({"a", "b", "aa", "ab", "aaab", "?"}), std::move(merges), options,
          no_bytes()};
}

TEST(BpeStage, TheFirstMergeAndTheLeftmostPlace) {
  EXPECT_THAT(encoded(small_bpe(), "aaab"), ElementsAre(4));  // aa, ab, then both
  EXPECT_THAT(encoded(small_bpe(), "aab"), ElementsAre(2, 1));
  EXPECT_THAT(encoded(small_bpe(), "ab"), ElementsAre(3));
  EXPECT_THAT(encoded(small_bpe(), ""), IsEmpty());
}

TEST(BpeStage, UnknownCharacters) {
  EXPECT_THAT(encoded(small_bpe(), "xab"), ElementsAre(3));
  EXPECT_THAT(encoded(small_bpe({.unknown = 5}), "xyab\xc3\xa9"), ElementsAre(5, 5, 3, 5));
  EXPECT_THAT(encoded(small_bpe({.unknown = 5, .join_unknown = true}), "xyab\xc3\xa9"),
              ElementsAre(5, 3, 5));
  EXPECT_THAT(encoded(small_bpe({.whole_pieces = true}), "aaab"), ElementsAre(4));
  EXPECT_THAT(error_of(ErrorCode::data, [] { encoded(small_bpe({.unknown_fails = true}), "ax"); }),
              HasSubstr("no token for 'x'"));
}

// Few symbols are merged by looking at all of them, many through a heap: the same ids.
TEST(BpeStage, LongPiecesAsShortOnes) {
  for (const std::size_t size : {63u, 64u, 65u, 66u, 1000u}) {
    const Ids ids = encoded(small_bpe(), std::string(size, 'a'));
    EXPECT_EQ(ids.size(), size / 2 + size % 2) << size;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), static_cast<std::ptrdiff_t>(size / 2));
  }
}

TEST(UnigramStage, TheBestSumOfScores) {
  const Unigram model(vocabulary_of({"?", "a", "b", "ab", "bb", "abb"}),
                      {0, -1, -1, -1.5, -1.25, -3}, 0, std::nullopt);
  EXPECT_THAT(encoded(model, "ab"), ElementsAre(3));
  EXPECT_THAT(encoded(model, "abb"), ElementsAre(1, 4));
  EXPECT_THAT(encoded(model, "axyb"), ElementsAre(1, 0, 2));  // several unknown ones are one
  EXPECT_THAT(encoded(model, ""), IsEmpty());
  const Unigram strict(vocabulary_of({"a"}), {0}, std::nullopt, std::nullopt);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { encoded(strict, "ab"); }),
              HasSubstr("no token for the character 'b'"));
}

// The front of a piece, then its rest: sums go on, whatever was remembered.
TEST(UnigramStage, PiecesInPartsAsWholeOnes) {
  const Unigram model(vocabulary_of({"?", "a", "aa", "-", "--", "b"}),
                      {0, -1.1, -2.2000000000000002, -3.3, -6.7, -0.7}, 0, std::nullopt);
  const auto encoder = model.encoder();
  const auto whole_encoder = model.encoder();
  const std::string text = "bb" + std::string(70, 'a') + "b" + std::string(99, '-') + "b-aaab";
  Ids whole;
  whole_encoder->encode(text, whole);
  for (int turn = 0; turn < 2; ++turn) {
    Ids ids;
    std::string_view rest = text;
    while (const std::size_t front = encoder->separable(rest)) {
      encoder->encode_front(rest.substr(0, front), ids);
      rest.remove_prefix(front);
    }
    EXPECT_LT(rest.size(), text.size());
    encoder->encode(rest, ids);
    EXPECT_EQ(ids, whole);
  }
}

TEST(VocabularyStage, TextsAndIdsAreThereOnce) {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.add("a", 7));
  EXPECT_FALSE(vocabulary.add("a", 8));
  EXPECT_FALSE(vocabulary.add("b", 7));
  EXPECT_FALSE(vocabulary.add("b", -1));
  EXPECT_FALSE(vocabulary.add("b", Vocabulary::kMostIds));
  EXPECT_TRUE(vocabulary.add("", 0));
  EXPECT_EQ(vocabulary.size(), 2u);
  EXPECT_EQ(vocabulary.end(), 8);
  EXPECT_EQ(vocabulary.find("a"), 7);
  EXPECT_EQ(vocabulary.find("c"), std::nullopt);
  EXPECT_EQ(vocabulary.text(3), std::nullopt);
  EXPECT_EQ(vocabulary.text(8), std::nullopt);
}

// ---- decoders

std::string decoded(const DecodeSteps& steps, const Texts& tokens) {
  TextDecoder decoder(steps);
  std::string text;
  for (const std::string& token : tokens) decoder.token(token, text);
  decoder.finish(text);
  std::string again;  // as after another text
  for (const std::string& token : tokens) decoder.token(token, again);
  decoder.finish(again);
  EXPECT_EQ(again, text);
  return text;
}

TEST(DecoderStage, EachByItself) {
  EXPECT_EQ(decoded({ByteLevelDecode{}}, {"\xc4\xa0\xc3\x83", "\xc2\xa9"}), " \xc3\xa9");
  EXPECT_EQ(decoded({ByteFallbackDecode{}}, {"a", "<0xC3>", "<0xA9>", "b"}), "a\xc3\xa9\x62");
  EXPECT_EQ(decoded({ByteFallbackDecode{}}, {"<0xC3>", "b"}), "\xef\xbf\xbd\x62");
  EXPECT_EQ(decoded({MarkDecode{"_", true}}, {"_a", "_b_c"}), "a b c");
  EXPECT_EQ(decoded({MarkDecode{"_", false}}, {"_a", "_b"}), " a b");
  EXPECT_EQ(decoded({ReplaceStep{"_", nullptr, " "}}, {"_a", "b_"}), " ab ");
  EXPECT_EQ(decoded({ReplaceStep{"", regex("[0-9]+"), "#"}}, {"a12", "34"}), "a##");
  EXPECT_EQ(decoded({StripDecode{"a", 1, 1}}, {"aaba", "xa"}), "abx");
  EXPECT_EQ(decoded({FuseDecode{}, StripDecode{"a", 1, 2}}, {"a", "ab", "aa", "a"}), "aba");
  EXPECT_EQ(decoded({}, {"a", "b"}), "ab");
}

TEST(DecoderStage, BytesInRowsAreTextOrBrokenTogether) {
  // One broken byte in the row breaks all of them, as in the reference.
  EXPECT_EQ(decoded({ByteFallbackDecode{}}, {"<0xC3>", "<0xA9>", "<0xFF>"}),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(decoded({ByteFallbackDecode{}}, {"<0xC3>", "x", "<0xA9>"}),
            "\xef\xbf\xbdx\xef\xbf\xbd");
  EXPECT_EQ(decoded({ByteFallbackDecode{}}, {"<0xG1>", "<0x1>"}), "<0xG1><0x1>");
}

}  // namespace
}  // namespace dew
