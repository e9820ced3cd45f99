#include "dew/data/tokenizers/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"
#include "dew/data/count_words.h"
#include "dew/data/tokenizers/load.h"
#include "dew/data/tokenizers/splitter.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WordCounts words_of(const std::vector<std::string>& texts) {
  static const PreTokenizer steps = byte_level_words();
  WordCounts words;
  Splitter splitter(steps);
  const PieceSink sink = [&](auto some) {
    for (const std::string_view word : some) words.add(word);
  };
  for (const std::string& text : texts) {
    splitter.begin(true);
    splitter.feed(text, sink);
    splitter.finish(sink);
  }
  return words;
}

// "a b" for each merge, blanks as "_".
std::vector<std::string> merges_of(const TrainedBpe& trained) {
  const auto special = static_cast<TokenId>(trained.special.size());
  const auto text = [&](TokenId id) {
    std::string bytes = trained.tokens[static_cast<std::size_t>(id - special)];
    for (char& c : bytes) c = c == ' ' ? '_' : c;
    return bytes;
  };
  std::vector<std::string> merges;
  for (const auto& [left, right] : trained.merges) merges.push_back(text(left) + " " + text(right));
  return merges;
}

std::vector<std::string> trained(const std::vector<std::string>& texts, std::int64_t size = 300,
                                 std::int64_t min_count = 2) {
  return merges_of(train_bpe(words_of(texts), {.vocab_size = size, .min_count = min_count}));
}

// The expected merges are those of the Hugging Face trainer (0.23) for the same documents.
TEST(BpeTrainer, OfEqualCountsTheLowestIds) {
  EXPECT_THAT(trained({"ab cd ab cd"}), ElementsAre("a b", "c d", "_ cd"));
  EXPECT_THAT(trained({"zy ba zy ba"}), ElementsAre("b a", "z y", "_ ba"));
  EXPECT_THAT(trained({"the cat the hat the rat"}, 261),
              ElementsAre("a t", "h e", "t he", "_ the"));
  EXPECT_THAT(trained({"to to to two two ton"}), ElementsAre("_ t", "_t o", "w o", "_t wo"));
}

TEST(BpeTrainer, PairsThatOverlapAreCountedOnceEach) {
  EXPECT_THAT(trained({"aaaa aaaa aaaaa"}), ElementsAre("a a", "aa aa", "_ aaaa"));
  EXPECT_THAT(trained({"abab abab ababab"}), ElementsAre("a b", "ab ab", "_ abab"));
  EXPECT_THAT(trained({"aab aab aba aba baa baa"}),
              ElementsAre("a a", "a b", "b aa", "_ ab", "_ baa", "aa b", "_ab a"));
  EXPECT_THAT(trained({"abc abc bc bc ab ab abcabc"}),
              ElementsAre("a b", "_ ab", "b c", "_ bc", "ab c", "_ab c"));
}

TEST(BpeTrainer, TinyTexts) {
  EXPECT_THAT(trained({}), IsEmpty());
  EXPECT_THAT(trained({""}), IsEmpty());
  EXPECT_THAT(trained({"a"}), IsEmpty());
  EXPECT_THAT(trained({"ab"}), IsEmpty());
  EXPECT_THAT(trained({"ab"}, 300, 1), ElementsAre("a b"));
  EXPECT_THAT(trained({"ab", "ab"}), ElementsAre("a b"));
  const TrainedBpe nothing = train_bpe(WordCounts(), {.vocab_size = 1000});
  EXPECT_EQ(nothing.vocab_size(), 257);
}

TEST(BpeTrainer, CharactersOfSeveralBytes) {
  EXPECT_THAT(trained({"\xc3\xa9 \xc3\xa9 \xc3\xa9\x61 \xc3\xa9\x61"}),
              ElementsAre("\xc3 \xa9", "_ \xc3\xa9", "_\xc3\xa9 a"));
}

TEST(BpeTrainer, RoomForFewOrNone) {
  EXPECT_THAT(trained({"abc abc abc"}, 257), IsEmpty());
  EXPECT_THAT(trained({"abc abc abc"}, 258), ElementsAre("a b"));
  const TrainedBpe no_special =
      train_bpe(words_of({"hello hello help"}), {.vocab_size = 270, .special = {}});
  EXPECT_THAT(merges_of(no_special), ElementsAre("e l", "h el", "l o", "_ hel"));
  EXPECT_EQ(no_special.vocab_size(), 260);
}

TEST(BpeTrainer, VocabulariesThatAreTooSmall) {
  const auto message = [](const BpeTraining& options) {
    return error_of(ErrorCode::usage, [&] { train_bpe(WordCounts(), options); });
  };
  EXPECT_THAT(message({.vocab_size = 256}), HasSubstr("must be from 257"));
  EXPECT_THAT(message({.vocab_size = 255, .special = {}}), HasSubstr("must be from 256"));
  EXPECT_THAT(message({.vocab_size = 0}), HasSubstr("a vocabulary of 0"));
  EXPECT_THAT(message({.vocab_size = -1}), HasSubstr("a vocabulary of -1"));
  EXPECT_THAT(message({.vocab_size = std::int64_t{1} << 40}), HasSubstr("to 16777216"));
  EXPECT_THAT(message({.vocab_size = 300, .special = {"a", "a"}}), HasSubstr("'a' is there twice"));
  EXPECT_THAT(message({.vocab_size = 300, .special = {""}}), HasSubstr("without text"));
}

// The file depends on how often words occur, not on where.
TEST(BpeTrainer, TheOrderOfWordsDoesNotMatter) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back("w" + std::to_string(i * i % 977));
  const TrainedBpe forward = train_bpe(words_of(texts), {.vocab_size = 333});
  std::reverse(texts.begin(), texts.end());
  const TrainedBpe backward = train_bpe(words_of(texts), {.vocab_size = 333});
  EXPECT_EQ(tokenizer_json_of(forward), tokenizer_json_of(backward));
  EXPECT_GT(forward.merges.size(), 40u);
}

// Words are cut at 1024 bytes, so that one endless word costs no more than others.
TEST(BpeTrainer, OneLongWord) {
  WordCounts words;
  words.add(std::string(3 * kMostTrainedWord + 1, 'a'));
  const TrainedBpe trained = train_bpe(words, {.vocab_size = 300});
  for (const std::string& token : trained.tokens) EXPECT_LE(token.size(), kMostTrainedWord);
  EXPECT_EQ(trained.tokens[256], "aa");
}

TEST(BpeTrainer, WhatIsThrownEndsIt) {
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.push_back("x" + std::to_string(i * 7919));
  std::int64_t seen = 0;
  const auto stop = [&](std::int64_t tokens) {
    seen = tokens;
    fail(ErrorCode::data, "enough");
  };
  EXPECT_EQ(error_of(ErrorCode::data,
                     [&] { train_bpe(words_of(texts), {.vocab_size = 2000, .progress = stop}); }),
            "enough");
  EXPECT_EQ(seen % 256, 0);
}

// The file is one that this library reads, with the ids that the training says.
TEST(BpeTrainer, ItsFileIsRead) {
  const TrainedBpe bpe = train_bpe(words_of({"the cat \"sat\"\n\xc3\xa9 the cat sat"}),
                                   {.vocab_size = 280, .special = {"<|a\"b|>", "\xe2\x96\x81"}});
  const auto tokenizer = parse_tokenizer_json(tokenizer_json_of(bpe), "trained");
  EXPECT_EQ(tokenizer->vocab_size(), bpe.vocab_size());
  const std::string text = "the cat <|a\"b|> \xe2\x96\x81 \xc3\xa9";
  const auto ids = tokenizer->encode(text, {.special_in_text = true});
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special = false}), text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
}

}  // namespace
}  // namespace dew
