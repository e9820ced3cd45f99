#include "dew/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string parse_error(std::string_view text) {
  return error_of(ErrorCode::data, [&] { parse_json(text, "f.json", ErrorCode::data); });
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"a": 2}], "b": {"a": 3}})", "f", ErrorCode::data)["a"][1]["a"],
            2);
  EXPECT_THAT(parse_error("{\"a\": 1"), StartsWith("f.json is not valid JSON: "));
  EXPECT_THAT(parse_error(""), StartsWith("f.json is not valid JSON: "));
  EXPECT_THAT(parse_error("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"a\": \"\xc3\x28\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(parse_error("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
  EXPECT_EQ(parse_error(R"({"a": {"b": 1, "c": 2, "b": 3}})"), "f.json: key \"b\" appears twice");
  EXPECT_EQ(parse_error(std::string(100'000, '[')), "f.json: nested more than 64 levels deep");
  EXPECT_LT(parse_error("\"" + std::string(100'000, 'x')).size(), 400u);
}

TEST(Json, NothingHidesBehindANul) {
  EXPECT_EQ(parse_json("[1]", "x", ErrorCode::data).size(), 1u);
  for (const std::string_view text : {std::string_view("[1]\0junk", 8),
                                      std::string_view("[1]\0", 4), std::string_view("\0[1]", 4)}) {
    try {
      parse_json(text, "x.json", ErrorCode::data);
      ADD_FAILURE() << "taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::data);
      EXPECT_THAT(e.what(), testing::HasSubstr("x.json is not valid JSON: byte"));
    }
  }
}

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{\"k\": 0";
  for (int i = 0; i < 100'000; ++i) text += ", \"k" + std::to_string(i) + "\": {}";
  EXPECT_EQ(parse_json(text + "}", "f", ErrorCode::data).size(), 100'001u);
}

TEST(Json, ReadsFiles) {
  const TemporaryDirectory directory;
  write_text(directory / "a.json", "[1]");
  EXPECT_EQ(read_json(directory / "a.json", 100, ErrorCode::data)[0], 1);
  EXPECT_THAT(
      error_of(ErrorCode::data, [&] { read_json(directory / "a.json", 2, ErrorCode::data); }),
      HasSubstr("larger than"));
}

TEST(JsonObject, NamesTheMemberAtFault) {
  const Json json = parse_json(
      R"({"n": 5, "f": 2.0, "s": "x", "none": null, "big": 18446744073709551615, "neg": -3, "o": {"d": 1}})",
      "f.json", ErrorCode::data);
  const JsonObject object(json, "f.json", ErrorCode::data);
  EXPECT_EQ(object.integer("n", 0, 5), 5);
  EXPECT_EQ(object.integer("neg", -5, 5), -3);
  EXPECT_EQ(object.text("s"), "x");
  EXPECT_EQ(object.integer_or_null("none", 0, 5), std::nullopt);
  EXPECT_EQ(object.integer_or_null("n", 0, 5), 5);
  EXPECT_EQ(object.object("o").integer("d", 0, 1), 1);

  const auto error = [](auto function) { return error_of(ErrorCode::data, function); };
  EXPECT_EQ(error([&] { object.integer("n", 0, 4); }),
            "f.json: 'n' must be an integer from 0 to 4, found 5");
  EXPECT_THAT(error([&] { object.integer("f", 0, 4); }), HasSubstr("found 2.0"));
  EXPECT_THAT(error([&] { object.integer("s", 0, 4); }), HasSubstr("found \"x\""));
  EXPECT_THAT(error([&] { object.integer("big", 0, 1L << 62); }),
              HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(error([&] { object.integer("neg", 0, 4); }), HasSubstr("found -3"));
  EXPECT_THAT(error([&] { object.integer("none", 0, 4); }), HasSubstr("found null"));
  EXPECT_EQ(error([&] { object.text("n"); }), "f.json: 'n' must be a string, found 5");
  EXPECT_EQ(error([&] { object.text("no"); }), "f.json: 'no' is missing");
  EXPECT_EQ(error([&] { object.text("a\n"); }), "f.json: 'a?' is missing");  // one line
  EXPECT_EQ(error([&] { object.object("n"); }), "f.json: 'n': a JSON object is expected, found 5");
}

}  // namespace
}  // namespace dew
