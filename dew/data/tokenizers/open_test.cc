// Files of every kind under their usual names, and what is carried of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"
#include "dew/data/tokenizers/byte_characters.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

const Path kGpt2 = "tests/data/tokenizers/gpt2";
constexpr const char* kEnd = "<|endoftext|>";

struct Example {
  std::string text;
  std::vector<std::int32_t> ids;
};

std::vector<Example> examples() {
  std::vector<Example> all;
  std::ifstream file(kGpt2 / "expected.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, "expected", ErrorCode::internal);
    all.push_back({json["text"].get<std::string>(), json["ids"].get<std::vector<std::int32_t>>()});
  }
  return all;
}

Json gpt2_model() {
  return parse_json(read_text(kGpt2 / "tokenizer.json"), "gpt2", ErrorCode::internal)["model"];
}

// What a directory or checkpoint carries is the tokenizer again, under the name that it is given.
void expect_carried(const OpenedTokenizer& opened) {
  std::map<std::string, std::string> files(opened.files.begin(), opened.files.end());
  const std::string name = opened.tokenizer->name();
  EXPECT_EQ(name, opened.files.at(0).first);
  const auto read = [&](const std::string& file) {
    return files.contains(file) ? std::optional(files.at(file)) : std::nullopt;
  };
  const auto carried = carried_tokenizer(name, true, read, "model");
  EXPECT_EQ(carried->name(), name);
  for (const Example& e : examples())
    EXPECT_EQ(carried->encode(e.text), opened.tokenizer->encode(e.text)) << e.text;
}

TEST(OpenTokenizer, TokenizerJson) {
  const OpenedTokenizer opened = open_tokenizer(kGpt2.string());
  EXPECT_EQ(opened.tokenizer->name(), "tokenizer.json");
  expect_carried(opened);
}

// ---- GPT-2's pair

void write_pair(const Path& vocab, const Path& merges) {
  const Json model = gpt2_model();
  Json tokens = model["vocab"];
  tokens[kEnd] = tokens.size();
  write_text(vocab, tokens.dump());
  std::string lines = "#version: 0.2\n";
  for (const Json& merge : model["merges"])
    lines += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write_text(merges, lines);
}

TEST(OpenTokenizer, VocabAndMergesUnderBothNames) {
  for (const auto& [vocab, merges] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    const TemporaryDirectory tmp;
    write_pair(tmp / vocab, tmp / merges);
    const OpenedTokenizer opened = open_tokenizer(tmp.path().string());
    for (const Example& e : examples())
      EXPECT_EQ(opened.tokenizer->encode(e.text, {.special_in_text = true}), e.ids) << e.text;
    EXPECT_EQ(opened.tokenizer->eos_id(), 1000);
    EXPECT_EQ(opened.tokenizer->name(), "vocab.json");
    expect_carried(opened);
  }
}

// ---- rank files

std::string in_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::array<unsigned char, 3> three{};
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - at);
    std::memcpy(three.data(), bytes.data() + at, n);
    const std::size_t bits = three[0] << 16U | three[1] << 8U | three[2];
    for (std::size_t i = 0; i < 4; ++i) text += i <= n ? kDigits[bits >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

// The fixture's tokens by rank, and as many that no text has as make the file r50k_base's.
std::string ranks_of_gpt2() {
  const Json vocab = gpt2_model()["vocab"];
  std::vector<std::string> tokens(50256);
  for (const auto& [characters, id] : vocab.items())
    tokens[id.get<std::size_t>()] = bytes_of_characters(characters).value();
  for (std::size_t i = vocab.size(); i < tokens.size(); ++i) {
    tokens[i] = "\xff\xfe\xff";
    for (const std::size_t digit : {i >> 8, i}) tokens[i] += static_cast<char>(digit & 0xffU);
  }
  std::string file;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    file += in_base64(tokens[i]) + " " + std::to_string(i) + "\n";
  return file;
}

TEST(OpenTokenizer, RankFiles) {
  const TemporaryDirectory tmp;
  write_text(tmp / "any.tiktoken", ranks_of_gpt2());
  const OpenedTokenizer opened = open_tokenizer((tmp / "any.tiktoken").string());
  EXPECT_EQ(opened.tokenizer->eos_id(), 50256);
  for (Example e : examples()) {
    std::ranges::replace(e.ids, 1000, 50256);  // the end token
    EXPECT_EQ(opened.tokenizer->encode(e.text, {.special_in_text = true}), e.ids) << e.text;
  }
  EXPECT_EQ(opened.tokenizer->name(), "tokenizer.tiktoken");
  expect_carried(opened);
}

// ---- SentencePiece

std::string field(int number, std::string_view bytes) {  // of up to 127 bytes
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} +
         std::string(bytes);
}

std::string number_field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

std::string piece(std::string_view text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bits + number_field(3, type));
}

// A BPE model of a few pieces, as its library stores it.
std::string small_model() {
  constexpr int kNormal = 1, kUnknown = 2, kControl = 3;
  std::string model =
      piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  float score = 0;
  for (const char* text : {"\u2581a", "\u2581ab", "\u2581", "a", "b"})
    model += piece(text, score--, kNormal);
  return model + field(2, number_field(3, 2)) + field(3, field(1, "identity"));
}

TEST(OpenTokenizer, SentencePieceModels) {
  const TemporaryDirectory tmp;
  write_text(tmp / "tokenizer.model", small_model());
  const OpenedTokenizer opened = open_tokenizer(tmp.path().string());
  EXPECT_EQ(opened.tokenizer->vocab_size(), 8);
  EXPECT_EQ(opened.tokenizer->bos_id(), 1);
  EXPECT_EQ(opened.tokenizer->eos_id(), 2);
  EXPECT_THAT(opened.tokenizer->encode("ab b", {.frame = true}), testing::ElementsAre(1, 4, 5, 7));
  EXPECT_EQ(opened.tokenizer->decode(std::vector<std::int32_t>{1, 4, 5, 7}), "ab b");
  EXPECT_EQ(opened.tokenizer->name(), "tokenizer.model");
  expect_carried(opened);
}

}  // namespace
}  // namespace dew
