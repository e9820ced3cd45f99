#include "dew/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>

#include "dew/base/digest.h"
#include "dew/checkpoint/sample_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

Manifest sample() {
  Manifest m;
  m.info = sample_info();
  m.shards = {{.name = "shard-00000-00000.safetensors",
               .bytes = 200 + 24 + 16 + 4,
               .header_bytes = 200,
               .header_digest = 1}};
  m.files = {{.name = "tokenizer.json", .bytes = 7, .digest = 2}};
  const std::string& file = m.shards[0].name;
  m.tensors = {
      {.name = "params/a",
       .dtype = DType::f32,
       .shape = {2, 5},
       .axes = {"embed", ""},
       .pieces =
           {{.file = file, .offset = 200, .bytes = 24, .box = {{0, 0}, {2, 3}}, .digest = 3},
            {.file = file, .offset = 224, .bytes = 16, .box = {{0, 3}, {2, 2}}, .digest = 4}}},
      {.name = "params/scalar",
       .dtype = DType::f32,
       .shape = {},
       .axes = {},
       .pieces = {{.file = file, .offset = 240, .bytes = 4, .box = {}, .digest = 5}}},
      {.name = "params/none", .dtype = DType::bf16, .shape = {0}, .axes = {""}, .pieces = {}}};
  return m;
}

std::string refused(const Manifest& manifest) {
  return refusal([&] { parse_manifest(manifest_text(manifest), "m"); });
}

TEST(Manifest, RoundTrip) {
  Manifest m = sample();
  EXPECT_EQ(parse_manifest(manifest_text(m), "m"), m);
  m.info.eval_loss.reset();
  m.info.tokenizer.eos_id.reset();
  m.info.config.clear();
  EXPECT_EQ(parse_manifest(manifest_text(m), "m"), m);
  EXPECT_EQ(parse_manifest(manifest_text({}), "m"), Manifest{});
}

TEST(Manifest, ANonFiniteLossIsNull) {
  Manifest m = sample();
  m.info.clocks.line_loss = -std::numeric_limits<double>::infinity();
  m.info.eval_loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(parse_manifest(manifest_text(m), "m").info.eval_loss, std::nullopt);
  EXPECT_EQ(parse_manifest(manifest_text(m), "m").info.clocks.line_loss, std::nullopt);
}

TEST(Manifest, EveryTruncationIsFound) {
  const std::string text = manifest_text(sample());
  for (std::size_t n = 0; n < text.size(); ++n) {
    refusal([&] { parse_manifest(std::string_view(text).substr(0, n), "m"); });
  }
}

TEST(Manifest, EveryFlippedBitIsFound) {
  std::string text = manifest_text(sample());
  for (char& c : text) {
    for (int bit = 0; bit < 8; ++bit) {
      c = static_cast<char>(c ^ (1 << bit));
      refusal([&] { parse_manifest(text, "m"); });
      c = static_cast<char>(c ^ (1 << bit));
    }
  }
}

// Text with another body and its right digest.
std::string resealed(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const std::string body = text.substr(0, text.rfind("\"xxh3\""));
  return body + "\"xxh3\": \"" + digest_text(digest_of(std::as_bytes(std::span(body)))) + "\"}\n";
}

TEST(Manifest, Versions) {
  const std::string text = manifest_text(sample());
  EXPECT_THAT(
      refusal([&] { parse_manifest(resealed(text, "\"version\": 1", "\"version\": 2"), "m"); }),
      HasSubstr("format version 2, this program reads up to 1"));
  EXPECT_THAT(refusal([&] { parse_manifest(resealed(text, "dew checkpoint", "other"), "m"); }),
              HasSubstr("'format' must be"));
  // Members that a later program adds within the version are no error.
  EXPECT_EQ(parse_manifest(resealed(text, "{\n", "{\n\"later\": [1],\n"), "m"), sample());
}

TEST(Manifest, MembersOfTheWrongKind) {
  const std::string text = manifest_text(sample());
  const std::vector<std::array<const char*, 3>> cases = {
      {"\"step\":400", "\"step\":-1", "'step'"},
      {"\"step\":400", "\"step\":1.5", "'step'"},
      {"\"step\":400,", "", "'step' is missing"},
      {"\"seed\": 18446744073709551615", "\"seed\": -1", "'seed'"},
      {"\"shuffle\":true", "\"shuffle\":1", "'shuffle'"},
      {"\"corpus\":\"0123456789abcdef\"", "\"corpus\":\"0123\"", "16 hexadecimal digits"},
      {"\"eval_loss\": 1.25", "\"eval_loss\": \"low\"", "'eval_loss'"},
      {"\"eos_id\":255", "\"eos_id\":-2", "'eos_id'"},
      {"\"tensors\": [", "\"tensors\": 4, \"more\": [", "'tensors' must be a list"},
      {"\"shape\":[2,5]", "\"shape\":[2,-5]", "tensor 'params/a'"},
      {"\"shape\":[2,5]", "\"shape\":[2,5.0]", "'shape'"},
      {"\"axes\":[\"embed\",\"\"]", "\"axes\":[\"embed\",1]", "'axes'"},
      {"\"dtype\":\"f32\"", "\"dtype\":\"f16\"", "'dtype'"},
      {"\"name\":\"params/a\"", "\"name\":\"params a\"", "cannot be the name"},
      {"\"name\":\"params/a\"", "\"name\":\"\"", "cannot be the name"},
  };
  for (const auto& [from, to, message] : cases) {
    EXPECT_THAT(refusal([&] { parse_manifest(resealed(text, from, to), "m"); }),
                HasSubstr(message));
  }
}

struct Wrong {
  const char* message;
  std::function<void(Manifest&)> change;
};

TEST(Manifest, StructureThatCannotBe) {
  const std::vector<Wrong> cases = {
      {"appears twice", [](Manifest& m) { m.tensors[1].name = "params/a"; }},
      {"axes for", [](Manifest& m) { m.tensors[0].axes.pop_back(); }},
      {"overlap", [](Manifest& m) { m.tensors[0].pieces[1].box.start[1] = 2; }},
      {"6 of 10", [](Manifest& m) { m.tensors[0].pieces.pop_back(); }},
      {"does not lie", [](Manifest& m) { m.tensors[0].pieces[1].box.start[1] = 4; }},
      {"does not lie",
       [](Manifest& m) {
         m.tensors[0].pieces[1].box = {{0}, {2}};
       }},
      {"too large",
       [](Manifest& m) {
         m.tensors[0].shape = {1LL << 40, 1LL << 40};
       }},
      {"4 bytes in place of 16", [](Manifest& m) { m.tensors[0].pieces[1].bytes = 4; }},
      {"none of the shards", [](Manifest& m) { m.tensors[0].pieces[0].file = "other"; }},
      {"does not follow", [](Manifest& m) { m.tensors[0].pieces[0].offset = 0; }},
      {"does not follow", [](Manifest& m) { m.tensors[0].pieces[0].offset = INT64_MAX; }},
      {"does not follow", [](Manifest& m) { m.tensors[0].pieces[1].offset = 200; }},
      {"does not follow", [](Manifest& m) { m.shards[0].header_bytes = 201; }},
      {"does not follow", [](Manifest& m) { m.shards[0].bytes = 240; }},
      {"pieces end at 244", [](Manifest& m) { m.shards[0].bytes = 245; }},
      {"beside the manifest", [](Manifest& m) { m.shards[0].name = "../x"; }},
      {"beside the manifest", [](Manifest& m) { m.shards[0].name = ".."; }},
      {"beside the manifest", [](Manifest& m) { m.files[0].name = kManifestName; }},
      {"this one is taken", [](Manifest& m) { m.files[0].name = m.shards[0].name; }},
      {"pieces have 0 of", [](Manifest& m) { m.tensors[2].shape = {3}; }},
  };
  for (const Wrong& wrong : cases) {
    Manifest m = sample();
    wrong.change(m);
    EXPECT_THAT(refused(m), HasSubstr(wrong.message));
  }
}

TEST(Manifest, Names) {
  EXPECT_TRUE(is_tensor_name("params/layers_3/mlp/up_proj/kernel"));
  EXPECT_FALSE(is_tensor_name("params/a[0:2]"));
  EXPECT_FALSE(is_tensor_name("a b"));
  EXPECT_FALSE(is_tensor_name(std::string(2000, 'a')));
  EXPECT_TRUE(is_file_name("tokenizer.json"));
  EXPECT_FALSE(is_file_name("a/b"));
  EXPECT_FALSE(is_file_name(".."));
  EXPECT_EQ(piece_name("params/a", {4, 2}, whole({4, 2})), "params/a");
  EXPECT_EQ(piece_name("params/a", {4, 2}, {{2, 0}, {2, 2}}), "params/a[2:4,0:2]");
}

}  // namespace
}  // namespace dew
