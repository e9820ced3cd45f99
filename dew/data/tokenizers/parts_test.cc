// A small tokenizer for each part of the format, with the ids and the text that the Hugging Face
// implementation gives (0.22 and 0.23 agree): tests/data/tokenizers/parts.jsonl, a tokenizer a
// line.
#include <gtest/gtest.h>

#include <fstream>

#include "dew/base/json.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<Json> cases() {
  std::vector<Json> all;
  std::ifstream file("tests/data/tokenizers/parts.jsonl");
  for (std::string line; std::getline(file, line);)
    all.push_back(parse_json(line, "parts.jsonl", ErrorCode::internal));
  return all;
}

template <typename Visit>
void each_example(Visit visit) {
  int tokenizers = 0, examples = 0;
  for (const Json& one : cases()) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto tokenizer = parse_tokenizer_json(one["tokenizer"].dump(), "tokenizer.json");
    ++tokenizers;
    for (const Json& example : one["examples"]) {
      SCOPED_TRACE(example["text"].dump());
      visit(*tokenizer, example);
      ++examples;
    }
  }
  EXPECT_EQ(tokenizers, 73);
  EXPECT_EQ(examples, 73 * 21);
}

constexpr EncodeOptions kFramed = {.special_in_text = true, .frame = true};

TEST(TokenizerParts, EncodeAsTheReference) {
  each_example([](const Tokenizer& tokenizer, const Json& e) {
    const auto text = e["text"].get<std::string>();
    const auto ids = e["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(text, kFramed), ids);
    EXPECT_EQ(tokenizer.encode(text, {.special_in_text = true}), e.value("ids_plain", ids));
  });
}

TEST(TokenizerParts, EncodeInPiecesToo) {
  each_example([](const Tokenizer& tokenizer, const Json& e) {
    const auto text = e["text"].get<std::string>();
    for (const std::size_t size : {1, 2, 5}) {
      const auto encoder = tokenizer.encoder(kFramed);
      Ids ids;
      for (std::size_t at = 0; at < text.size(); at += size)
        encoder->feed(std::string_view(text).substr(at, size), ids);
      encoder->finish(ids);
      EXPECT_EQ(ids, e["ids"].get<Ids>()) << "in pieces of " << size;
    }
  });
}

TEST(TokenizerParts, DecodeAsTheReference) {
  each_example([](const Tokenizer& tokenizer, const Json& e) {
    if (!e.contains("decoded")) return;
    const auto ids = e["ids"].get<Ids>();
    const auto decoded = e["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer.decode(ids), decoded);
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = false}), e.value("decoded_all", decoded));
  });
}

}  // namespace
}  // namespace dew
