// Small tokenizers of every kind with the ids and the text that the Hugging Face implementation
// gives (tests/data/tokenizers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "dew/base/json.h"
#include "dew/base/utf8.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

struct Example {
  std::string text, decoded, decoded_all;
  std::vector<std::int32_t> ids, ids_plain;
};

std::vector<Example> examples_of(const std::string& directory) {
  std::vector<Example> examples;
  std::ifstream file(directory + "/expected.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, directory, ErrorCode::internal);
    examples.push_back({.text = json["text"].get<std::string>(),
                        .decoded = json["decoded"].get<std::string>(),
                        .decoded_all = json["decoded_all"].get<std::string>(),
                        .ids = json["ids"].get<std::vector<std::int32_t>>(),
                        .ids_plain = json["ids_plain"].get<std::vector<std::int32_t>>()});
  }
  return examples;
}

class TokenizerFixtures : public testing::TestWithParam<const char*> {
 protected:
  const std::string directory_ = std::string("tests/data/tokenizers/") + GetParam();
  const std::unique_ptr<Tokenizer> tokenizer_ = open_tokenizer(directory_).tokenizer;
  const std::vector<Example> examples_ = examples_of(directory_);
};

constexpr EncodeOptions kFramed = {.special_in_text = true, .frame = true};

TEST_P(TokenizerFixtures, EncodesAsTheReference) {
  ASSERT_GT(examples_.size(), 90u);
  for (const Example& e : examples_) {
    EXPECT_EQ(tokenizer_->encode(e.text, kFramed), e.ids) << e.text;
    EXPECT_EQ(tokenizer_->encode(e.text, {.special_in_text = true}), e.ids_plain) << e.text;
  }
}

TEST_P(TokenizerFixtures, DecodesAsTheReference) {
  for (const Example& e : examples_) {
    EXPECT_EQ(tokenizer_->decode(e.ids), e.decoded);
    EXPECT_EQ(tokenizer_->decode(e.ids, {.skip_special = false}), e.decoded_all);
  }
}

// One encoder for all texts, which come in pieces of all sizes, through characters too.
TEST_P(TokenizerFixtures, PiecesOfTextChangeNothing) {
  for (const std::size_t size : {1, 2, 3, 7}) {
    const auto encoder = tokenizer_->encoder(kFramed);
    for (const Example& e : examples_) {
      std::vector<std::int32_t> ids;
      for (std::size_t at = 0; at < e.text.size(); at += size)
        encoder->feed(std::string_view(e.text).substr(at, size), ids);
      encoder->finish(ids);
      EXPECT_EQ(ids, e.ids) << e.text << " in pieces of " << size;
    }
  }
}

// All texts as one, long enough that most of it is encoded before its end has come.
TEST_P(TokenizerFixtures, StreamsAreWholeTexts) {
  std::string text;
  while (text.size() < 200'000) {
    for (const Example& e : examples_) text += e.text + (text.size() % 3 == 0 ? "\n" : " ");
  }
  for (const bool special : {true, false}) {
    const EncodeOptions options{.special_in_text = special};
    const auto whole = tokenizer_->encode(text, options);
    const auto encoder = tokenizer_->encoder(options);
    std::vector<std::int32_t> ids;
    for (std::size_t at = 0; at < text.size(); at += 1000)
      encoder->feed(std::string_view(text).substr(at, 1000), ids);
    encoder->finish(ids);
    EXPECT_TRUE(ids == whole) << special;
  }
}

TEST_P(TokenizerFixtures, StreamsOfIdsNeverGiveHalfACharacter) {
  const auto decoder = tokenizer_->decoder();
  for (const Example& e : examples_) {
    std::string all;
    for (const std::int32_t id : e.ids) {
      std::string part;
      decoder->feed(id, part);
      for (std::string_view rest = part; !rest.empty();) {
        const Utf8Front front = utf8_front(rest);
        EXPECT_EQ(front.kind, Utf8Front::Kind::character) << e.text;
        rest.remove_prefix(front.bytes);
      }
      all += part;
    }
    decoder->finish(all);
    EXPECT_EQ(all, e.decoded);
  }
}

// Text that spells a control token is text unless it is asked for.
TEST_P(TokenizerFixtures, TextIsText) {
  const std::string text = "a <|endoftext|> b<s></s><|begin_of_text|>";
  const auto ids = tokenizer_->encode(text);
  EXPECT_EQ(tokenizer_->decode(ids), text);
  EXPECT_EQ(tokenizer_->decode(ids, {.skip_special = false}).find(text) != std::string::npos, true);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFixtures,
                         testing::Values("gpt2", "llama2", "llama3", "qwen2"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace dew
