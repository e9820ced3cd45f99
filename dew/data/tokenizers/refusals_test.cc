// Whatever of a tokenizer.json is not read exactly is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

constexpr const char* kBase = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 4, "content": "<x>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3},
            "merges": [["a", "b"]]}})";

struct Refusal {
  const char* pointer;  // what is changed in kBase
  const char* value;
  const char* says;
};

// The text that parsing says; the change is a JSON pointer and a value.
std::string said(const Refusal& r) {
  Json json = Json::parse(kBase);
  json[Json::json_pointer(r.pointer)] = Json::parse(r.value);
  return error_of(ErrorCode::data, [&] { parse_tokenizer_json(json.dump(), "tokenizer.json"); });
}

void expect_all(const std::vector<Refusal>& all) {
  for (const Refusal& r : all) EXPECT_THAT(said(r), HasSubstr(r.says)) << r.pointer << r.value;
}

TEST(TokenizerRefusals, TheFile) {
  EXPECT_EQ(said({"/model/dropout", "null", ""}), "no error");
  expect_all({
      {"/version", R"("2.0")", "version"},
      {"/version", "null", "version"},
      {"/added_tokens", "null", "added_tokens: an array is expected"},
      {"/model/type", "null", "'type' must be a string"},
      {"/more", "1", "'more' is not supported"},
      {"/truncation", R"({"max_length": 3})", "'truncation' would change texts"},
      {"/padding", R"({"pad_id": 3})", "'padding' would change texts"},
  });
}

TEST(TokenizerRefusals, Models) {
  expect_all({
      {"/model/dropout", "0.1", "'dropout' makes ids random"},
      {"/model/dropout", R"("0")", "'dropout' makes ids random"},
      {"/model/continuing_subword_prefix", R"("##")", "'continuing_subword_prefix'"},
      {"/model/end_of_word_suffix", R"("</w>")", "'end_of_word_suffix'"},
      {"/model/cache_capacity", "5", "'cache_capacity' is not supported"},
      {"/model/type", R"("WordPiece")", "'WordPiece' is not supported"},
      {"/model/type", R"("WordLevel")", "'WordLevel' is not supported"},
      {"/model/fuse_unk", R"("yes")", "fuse_unk"},
      {"/model/merges", R"([["a", "z"]])", "merges[0]"},
      {"/model/merges", R"(["a b a"])", "merges[0]"},
      {"/model/merges", R"([["u", "a"]])", "merges[0]"},
      {"/model/vocab", R"({"a": 0, "b": 0})", "have the same id 0"},
      {"/model/vocab", R"({"a": -1})", "'a'"},
      {"/model", R"({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]})", "unk_id"},
      {"/model", R"({"type": "Unigram", "unk_id": 0, "vocab": []})", "there is no token"},
      {"/model", R"({"type": "Unigram", "vocab": [["a", 0.0], ["a", 1.0]]})", "there twice"},
      {"/model", R"({"type": "Unigram", "vocab": [["a", "b"]]})", "vocab[0]"},
  });
}

// No control token; all its flags are there.
Json added_token(int id, const char* content, bool normalized, bool lstrip = false) {
  return {{"id", id},         {"content", content}, {"normalized", normalized}, {"special", false},
          {"lstrip", lstrip}, {"rstrip", false},    {"single_word", false}};
}

TEST(TokenizerRefusals, AddedTokens) {
  const std::string twice =
      Json::array({added_token(4, "<X>", true), added_token(4, "<X>", true, true)}).dump();
  expect_all({
      {"/added_tokens/0/more", "true", "'more' is not supported"},
      {"/added_tokens/0/id", "9", "has id 9, but the next free one is 4"},
      {"/added_tokens/0/id", "-1", "id"},
      {"/added_tokens/0/content", R"("")", "without text"},
      {"/added_tokens/0/content", R"("ab")", "the model gives it 2"},
      {"/added_tokens/0/lstrip", "1", "lstrip"},
      {"/added_tokens", twice.c_str(), "there twice, with other flags"},
  });
}

// What normalizing makes of added tokens.
TEST(TokenizerRefusals, AddedTokensThatNormalizingChanges) {
  Json json = Json::parse(kBase);
  const auto message = [&] {
    return error_of(ErrorCode::data, [&] { parse_tokenizer_json(json.dump(), "tokenizer.json"); });
  };
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {added_token(4, "AB", true), added_token(5, "Ab", true, true)};
  EXPECT_THAT(message(), HasSubstr("'AB' and 'Ab' are the same when they are normalized"));
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", "_"}};
  json["added_tokens"] = Json::array();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Whitespace"}, {"type": "Metaspace", "replacement": "_",
                               "prepend_scheme": "first"}]})");
  EXPECT_THAT(message(), HasSubstr("'first' behind a split, and the normalizer prepends"));
  json["pre_tokenizer"] = nullptr;
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  json["added_tokens"] = Json::array({added_token(4, "  ", true)});
  EXPECT_THAT(message(), HasSubstr("nothing is left of the token '  '"));
}

TEST(TokenizerRefusals, Normalizers) {
  expect_all({
      {"/normalizer", R"({"type": "BertNormalizer"})", "'BertNormalizer' is not supported"},
      {"/normalizer", R"({"type": "ByteLevel"})", "'ByteLevel' is not supported"},
      {"/normalizer", R"({"type": "NFC", "more": 1})", "'more' is not supported"},
      {"/normalizer", R"({"type": "Prepend"})", "prepend"},
      {"/normalizer", R"({"type": "Prepend", "prepend": ""})", "'prepend' is empty"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})",
       "an empty pattern"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "x"})",
       "matches an empty text"},
      {"/normalizer",
       R"({"type": "Replace", "pattern": {"String": "a", "Regex": "b"}, "content": "x"})",
       "exclude each other"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "!!"})", "base64"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": ""})", "character map"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "X"}]})",
       "normalizers[0]: 'X' is not supported"},
  });
}

TEST(TokenizerRefusals, PreTokenizers) {
  expect_all({
      {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "'BertPreTokenizer' is not supported"},
      {"/pre_tokenizer", R"({"type": "CharDelimiterSplit"})", "'CharDelimiterSplit'"},
      {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "'UnicodeScripts'"},
      {"/pre_tokenizer", R"({"type": "FixedLength", "length": 5})", "'FixedLength'"},
      {"/pre_tokenizer", R"({"type": "ByteLevel", "more": 1})", "'more' is not supported"},
      {"/pre_tokenizer", R"({"type": "Digits", "individual_digits": 1})", "individual_digits"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "isolated"})",
       "'isolated' is not supported"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {}, "behavior": "Isolated"})", "String"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"String": "a", "Other": "b"}, "behavior": "Isolated"})",
       "'Other' is not supported"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "one character"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
       "'last' is not supported"},
      {"/pre_tokenizer",
       R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false,
           "prepend_scheme": "always"})",
       "'add_prefix_space' is false, but 'prepend_scheme' is 'always'"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
          {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
          {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})",
       "pretokenizers[1]: 'prepend_scheme' is 'first' behind a step that changes text"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [null]})", "pretokenizers[0]"},
  });
}

TEST(TokenizerRefusals, PostProcessors) {
  const std::string frame =
      R"({"type": "TemplateProcessing", "pair": [], "special_tokens":
          {"<x>": {"id": "<x>", "ids": [4], "tokens": ["<x>"]}},
          "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}]})";
  EXPECT_EQ(said({"/post_processor", frame.c_str(), ""}), "no error");
  const std::string twice = R"({"type": "Sequence", "processors": [)" + frame + "," + frame + "]}";
  expect_all({
      {"/post_processor", R"({"type": "Other"})", "'Other' is not supported"},
      {"/post_processor", twice.c_str(), "processors[1]: a second one that adds tokens"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "pair": [],
           "single": [{"Sequence": {"id": "A", "type_id": 0}, "More": 1}]})",
       "'More' is not supported"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "pair": [],
           "single": [{"Sequence": {"id": "B", "type_id": 0}}]})",
       "must have the text A once"},
      {"/post_processor", R"({"type": "BertProcessing", "sep": ["<x>", 2], "cls": ["<x>", 4]})",
       "'<x>' with id 2"},
  });
}

TEST(TokenizerRefusals, Decoders) {
  expect_all({
      {"/decoder", R"({"type": "WordPiece"})", "'WordPiece' is not supported"},
      {"/decoder", R"({"type": "CTC"})", "'CTC' is not supported"},
      {"/decoder", R"({"type": "BPEDecoder"})", "'BPEDecoder' is not supported"},
      {"/decoder", R"({"type": "Strip", "content": "a", "start": -1, "stop": 0})", "start"},
      {"/decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})", "one character"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                       {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})",
       "behind a Fuse or ByteLevel"},
      {"/decoder",
       R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false,
           "prepend_scheme": "first"})",
       "'prepend_scheme' is 'first'"},
  });
}

// Ten steps that each make ten of one would be ten billion.
TEST(TokenizerRefusals, StepsThatMultiplyText) {
  const Json replace =
      Json::parse(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})");
  const Json match =
      Json::parse(R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": "aaaaaaaaaa"})");
  const Json prepend = {{"type", "Prepend"}, {"prepend", std::string(5000, 'a')}};
  const std::string says = "bytes of this text, as no tokenizer should";
  for (const Json& step : {replace, match, prepend}) {
    Json json = Json::parse(kBase);
    json["normalizer"] = {{"type", "Sequence"},
                          {"normalizers", std::vector<Json>(step == prepend ? 20 : 10, step)}};
    const auto tokenizer = parse_tokenizer_json(json.dump(), "tokenizer.json");
    EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenizer->encode("ba"); }), HasSubstr(says));
    if (step == prepend) continue;
    EXPECT_EQ(tokenizer->encode("bb").size(), 2u);
    json["normalizer"] = nullptr;
    json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(10, step)}};
    const auto decodes = parse_tokenizer_json(json.dump(), "tokenizer.json");
    EXPECT_THAT(error_of(ErrorCode::data, [&] { decodes->decode(decodes->encode("a")); }),
                HasSubstr(says));
  }
  Json json = Json::parse(kBase);
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::vector<Json>(5, bytes)}};
  EXPECT_THAT(
      error_of(ErrorCode::data, [&] { parse_tokenizer_json(json.dump(), "tokenizer.json"); }),
      HasSubstr("more than 4 of them, each of which doubles text"));
}

// As the reference, which notices it when it needs the token.
TEST(TokenizerRefusals, AnUnknownTokenThatIsNotThere) {
  for (const char* name : {R"("")", R"("<unk>")"}) {
    Json json = Json::parse(kBase);
    json["model"]["unk_token"] = Json::parse(name);
    const auto tokenizer = parse_tokenizer_json(json.dump(), "tokenizer.json");
    EXPECT_EQ(tokenizer->encode("abu"), (std::vector<std::int32_t>{2, 3}));
    EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenizer->encode("abz"); }),
                HasSubstr("no token for 'z'"));
  }
}

}  // namespace
}  // namespace dew
