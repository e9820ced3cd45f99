// Members that are absent or null: a file is taken if the reference takes it, and means the same.
// What is said here of each is what `tokenizers` 0.22 does.
#include <gtest/gtest.h>

#include <vector>

#include "dew/base/error.h"
#include "dew/base/json.h"
#include "dew/data/tokenizers/load.h"

namespace dew {
namespace {

constexpr const char* kBase = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 4, "content": "<x>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3},
            "merges": [["a", "b"]]}})";

bool takes(const Json& file) {
  try {
    parse_tokenizer_json(file.dump(), "tokenizer.json");
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    return false;
  }
}

// What may be in place of a member.
struct Member {
  const char* key;
  bool absent, null;
};

struct Row {
  const char* place;  // JSON pointer to what is put in kBase,
  const char* json;   // none: what is there
  std::vector<Member> members;
};

void expect_all(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Json file = Json::parse(kBase);
    Json& part = file[Json::json_pointer(row.place)];
    if (row.json != nullptr) part = Json::parse(row.json);
    EXPECT_TRUE(takes(file)) << row.place << row.json;
    const Json whole = part;
    for (const Member& m : row.members) {
      part.erase(m.key);
      EXPECT_EQ(takes(file), m.absent) << row.place << " without " << m.key;
      part[m.key] = nullptr;
      EXPECT_EQ(takes(file), m.null) << row.place << ", null is " << m.key;
      part = whole;
    }
  }
}

const std::vector<Member> kByteLevel = {
    {"add_prefix_space", false, false}, {"trim_offsets", false, false}, {"use_regex", true, false}};
constexpr const char* kByteLevelJson =
    R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})";

TEST(AbsentAndNull, TheFileAndItsModel) {
  expect_all({
      {"",
       nullptr,
       {{"added_tokens", true, false},
        {"normalizer", true, true},
        {"truncation", true, true},
        {"model", false, false}}},
      {"/added_tokens/0",
       nullptr,
       {{"id", false, false},
        {"content", false, false},
        {"single_word", false, false},
        {"lstrip", false, false},
        {"rstrip", false, false},
        {"normalized", false, false},
        {"special", false, false}}},
      {"/model",
       nullptr,
       {{"type", true, false},
        {"dropout", true, true},
        {"fuse_unk", true, true},
        {"byte_fallback", true, true},
        {"ignore_merges", true, true},
        {"vocab", false, false},
        {"merges", false, false}}},
      {"/model",
       R"({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
                     "vocab": [["u", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -1.0]]})",
       {{"type", true, false},
        {"unk_id", true, true},
        {"byte_fallback", true, false},
        {"vocab", false, false}}},
  });
}

TEST(AbsentAndNull, StepsInFrontOfTheModel) {
  expect_all({
      {"/pre_tokenizer", kByteLevelJson, kByteLevel},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": true})",
       {{"pattern", false, false}, {"behavior", false, false}, {"invert", false, false}}},
      {"/pre_tokenizer",
       R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": true,
           "prepend_scheme": "always", "split": true})",
       {{"replacement", false, false},
        {"add_prefix_space", true, true},
        {"prepend_scheme", true, false},
        {"split", true, true}}},
      {"/pre_tokenizer",
       R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false,
           "prepend_scheme": "never"})",
       {{"prepend_scheme", false, false}}},
      {"/pre_tokenizer",
       R"({"type": "Digits", "individual_digits": true})",
       {{"individual_digits", false, false}}},
      {"/pre_tokenizer",
       R"({"type": "Punctuation", "behavior": "Removed"})",
       {{"behavior", true, false}}},
      {"/normalizer",
       R"({"type": "Strip", "strip_left": true, "strip_right": false})",
       {{"strip_left", false, false}, {"strip_right", false, false}}},
      {"/normalizer",
       R"({"type": "Replace", "pattern": {"String": " "}, "content": "_"})",
       {{"pattern", false, false}, {"content", false, false}}},
  });
}

TEST(AbsentAndNull, StepsBehindTheModel) {
  const char* const frame = R"({"type": "TemplateProcessing",
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<x>": {"id": "<x>", "ids": [4], "tokens": ["<x>"]}}})";
  expect_all({
      {"/decoder", kByteLevelJson, kByteLevel},
      {"/decoder",
       R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"})",
       {{"prepend_scheme", true, false}}},
      {"/decoder",
       R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})",
       {{"content", false, false}, {"start", false, false}, {"stop", false, false}}},
      {"/post_processor", kByteLevelJson, kByteLevel},
      {"/post_processor",
       frame,
       {{"single", false, false}, {"pair", false, false}, {"special_tokens", false, false}}},
  });
  Json file = Json::parse(kBase);
  file["post_processor"] = Json::parse(frame);
  for (const char* member :
       {"/single/0/SpecialToken/id", "/single/0/SpecialToken/type_id", "/single/1/Sequence/id",
        "/single/1/Sequence/type_id", "/special_tokens/<x>/id", "/special_tokens/<x>/ids",
        "/special_tokens/<x>/tokens"}) {
    const Json::json_pointer place(member);
    Json other = file;
    other["post_processor"][place] = nullptr;
    EXPECT_FALSE(takes(other)) << member;
    other["post_processor"][place.parent_pointer()].erase(place.back());
    EXPECT_FALSE(takes(other)) << member;
  }
}

}  // namespace
}  // namespace dew
