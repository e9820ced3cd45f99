#include "dew/hf/end_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"

namespace dew::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::int64_t> ids(const std::string& config) {
  return end_ids({config, "config.json"}, std::nullopt);
}
std::vector<std::int64_t> ids(const std::string& config, const std::string& generation) {
  return end_ids({config, "config.json"}, ConfigText{generation, "generation_config.json"});
}

TEST(EndIds, OneOrAList) {
  EXPECT_THAT(ids("{}"), IsEmpty());
  EXPECT_THAT(ids(R"({"eos_token_id": null})"), IsEmpty());
  EXPECT_THAT(ids(R"({"eos_token_id": 0})"), ElementsAre(0));
  EXPECT_THAT(ids(R"({"eos_token_id": [128001, 128008, 128009]})"),
              ElementsAre(128001, 128008, 128009));
}

// As transformers generates.
TEST(EndIds, TheGenerationConfigHasTheLastWord) {
  const std::string config = R"({"eos_token_id": 2})";
  EXPECT_THAT(ids(config, "{}"), ElementsAre(2));
  EXPECT_THAT(ids(config, R"({"eos_token_id": null})"), ElementsAre(2));
  EXPECT_THAT(ids(config, R"({"eos_token_id": [5, 7]})"), ElementsAre(5, 7));
}

TEST(EndIds, WhatIsNoIdIsRefused) {
  for (const char* value : {"-1", "2147483648", "1.5", "\"2\"", "[2, -1]", "[2, [3]]", "true",
                            "18446744073709551615", "{}"}) {
    const std::string text = std::string(R"({"eos_token_id": )") + value + "}";
    EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { ids(text); }),
                HasSubstr("config.json: eos_token_id = "))
        << text;
    EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { ids("{}", text); }),
                HasSubstr("generation_config.json: eos_token_id = "))
        << text;
  }
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { ids("{}", "{"); }),
              HasSubstr("generation_config.json"));
}

TEST(EndIds, AnotherOneComesFirst) {
  const auto added = [](const std::string& text, std::int64_t id) {
    return parse_json(with_end_id({text, "config.json"}, id), "text", ErrorCode::internal)
        .at("eos_token_id");
  };
  EXPECT_EQ(added("{}", 3), 3);
  EXPECT_EQ(added(R"({"eos_token_id": 4})", 3), (Json{3, 4}));
  EXPECT_EQ(added(R"({"eos_token_id": [4, 3]})", 3), (Json{4, 3}));
  const std::string text = R"({"z": 1,   "eos_token_id": 3})";
  EXPECT_EQ(with_end_id({text, "config.json"}, 3), text);
}

}  // namespace
}  // namespace dew::hf
