#include "dew/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "dew/base/digest.h"
#include "dew/checkpoint/sample_test_support.h"

namespace dew {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f", ErrorCode::checkpoint);
}

TEST(Safetensors, RoundTrip) {
  const TempDir dir;
  const Bytes a = ramp(6), b = ramp(2, 9);
  SafetensorsWriter writer(
      dir / "x.safetensors", ErrorCode::checkpoint,
      {{.name = "b \"quoted\" \xc3\xa4", .type = StoredType::i64, .shape = {1}},
       {.name = "a", .type = StoredType::f32, .shape = {2, 3}},
       {.name = "empty", .type = StoredType::f32, .shape = {0, 7}},
       {.name = "scalar", .type = StoredType::u8, .shape = {}}},
      {{"format", "pt"}});
  writer.write(b);
  writer.write(std::span(a).first(5));
  writer.write(std::span(a).subspan(5));
  writer.write(Bytes{std::byte{'s'}});
  writer.finish();
  const std::string text = read_text(dir / "x.safetensors");
  EXPECT_EQ(static_cast<std::int64_t>(text.size()), writer.file_bytes());
  EXPECT_EQ(writer.header_bytes() % 8, 0);
  EXPECT_EQ(
      digest_of(
          std::as_bytes(std::span(text)).first(static_cast<std::size_t>(writer.header_bytes()))),
      writer.header_digest());

  const SafetensorsFile file(dir / "x.safetensors", ErrorCode::checkpoint);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const StoredTensor* found = file.find("a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->shape, (Dims{2, 3}));
  EXPECT_TRUE(std::ranges::equal(file.bytes(*found), a));
  EXPECT_EQ(file.bytes(*file.find("scalar"))[0], std::byte{'s'});
  EXPECT_TRUE(file.bytes(*file.find("empty")).empty());
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_NE(file.find("b \"quoted\" \xc3\xa4"), nullptr);
}

TEST(Safetensors, TakesWhatOthersWrite) {
  // Spaces after the header, unknown members, any order of tensors.
  const auto header = parse(file_of(
      R"( {"z":{"data_offsets":[0,4],"dtype":"F32","shape":[1],"more":1},"a":{"dtype":"BF16","shape":[],"data_offsets":[4,6]}}   )",
      6));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].offset, header.bytes + 4);
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
}

struct Hostile {
  const char* what;
  std::string file;
  const char* message;
};

std::vector<Hostile> hostile_files() {
  const auto one = [](const std::string& members, std::size_t bytes) {
    return file_of("{\"t\":{" + members + "}}", bytes);
  };
  const std::string f32 = R"("dtype":"F32",)";
  return {
      {"empty", "", "too short"},
      {"seven bytes", "1234567", "too short"},
      {"length beyond the file", with_length(3, "{}"), "truncated"},
      {"length of 2^64 - 1", with_length(~std::uint64_t{0}, "{}"), "not a safetensors file"},
      {"length above the limit", with_length(100'000'001, "{}"), "not a safetensors file"},
      {"no JSON", file_of("{", 0), "not valid JSON"},
      {"no object", file_of("[]", 0), "not a JSON object"},
      {"more after the JSON", file_of("{}{}", 0), "not valid JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", 0), "not valid JSON"},
      {"deep", file_of(std::string(200, '['), 0), "levels deep"},
      {"name twice",
       file_of(
           R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       "appears twice"},
      {"tensor is a number", file_of("{\"t\":1}", 0), "tensor 't'"},
      {"no dtype", one(R"("shape":[],"data_offsets":[0,4])", 4), "'dtype' is missing"},
      {"no shape", one(f32 + R"("data_offsets":[0,4])", 4), "'shape' is missing"},
      {"no offsets", one(f32 + R"("shape":[])", 4), "'data_offsets' is missing"},
      {"unknown dtype", one(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])", 1), "F8_E4M3"},
      {"dtype is a number", one(R"("dtype":4,"shape":[1],"data_offsets":[0,1])", 1), "a string"},
      {"negative size", one(f32 + R"("shape":[-1],"data_offsets":[0,4])", 4), "from 0 to"},
      {"size is a float", one(f32 + R"("shape":[1.0],"data_offsets":[0,4])", 4), "from 0 to"},
      {"size of 2^63", one(f32 + R"("shape":[9223372036854775808],"data_offsets":[0,4])", 4),
       "from 0 to"},
      {"size of 2^64", one(f32 + R"("shape":[18446744073709551616],"data_offsets":[0,4])", 4),
       "from 0 to"},
      {"shape is a number", one(f32 + R"("shape":4,"data_offsets":[0,4])", 4), "a list"},
      {"product overflows to 4",
       one(f32 + R"("shape":[4294967296,4294967296,1],"data_offsets":[0,4])", 4), "does not take"},
      {"product overflows beside a zero",
       one(f32 + R"("shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0])", 0),
       "does not take"},
      {"fewer bytes than the shape", one(f32 + R"("shape":[2],"data_offsets":[0,4])", 4),
       "does not take"},
      {"one offset", one(f32 + R"("shape":[1],"data_offsets":[0])", 4), "not [begin, end]"},
      {"three offsets", one(f32 + R"("shape":[1],"data_offsets":[0,4,8])", 4), "not [begin, end]"},
      {"end before begin", one(f32 + R"("shape":[1],"data_offsets":[4,0])", 4), "not [begin, end]"},
      {"end beyond the file", one(f32 + R"("shape":[1],"data_offsets":[0,5])", 4),
       "not [begin, end]"},
      {"offsets of 2^63 - 1",
       one(f32 + R"("shape":[0],"data_offsets":[9223372036854775807,9223372036854775807])", 4),
       "not [begin, end]"},
      {"a hole before", one(f32 + R"("shape":[1],"data_offsets":[1,5])", 5), "no tensor's"},
      {"bytes left over", one(f32 + R"("shape":[1],"data_offsets":[0,4])", 5),
       "the last tensor ends"},
      {"overlap",
       file_of(
           R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"u":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "overlap"},
      {"the same bytes twice",
       file_of(
           R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"u":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
           2),
       "overlap"},
      {"metadata is a list", file_of(R"({"__metadata__":[]})", 0), "__metadata__"},
      {"metadata has numbers", file_of(R"({"__metadata__":{"a":1}})", 0), "'a' must be a string"},
      {"a name with a newline", file_of("{\"a\\nb\":1}", 0), "tensor 'a?b'"},
      {"a very long name", file_of("{\"" + std::string(100'000, 'n') + "\":1}", 0), "...'"},
  };
}

TEST(Safetensors, HostileFilesAreRefused) {
  for (const Hostile& hostile : hostile_files()) {
    SCOPED_TRACE(hostile.what);
    const std::string message = refusal([&] { parse(hostile.file); });
    EXPECT_THAT(message, AllOf(HasSubstr(hostile.message), HasSubstr("f: ")));
    EXPECT_LT(message.size(), 600u);
  }
}

TEST(Safetensors, EveryTruncationIsFound) {
  const TempDir dir;
  SafetensorsWriter writer(dir / "x", ErrorCode::checkpoint,
                           {{.name = "a", .type = StoredType::f32, .shape = {3}},
                            {.name = "b", .type = StoredType::bf16, .shape = {5}}});
  writer.write(Bytes(22));
  writer.finish();
  const std::string text = read_text(dir / "x");
  EXPECT_EQ(parse(text).tensors.size(), 2u);
  for (std::size_t n = 0; n < text.size(); ++n) refusal([&] { parse(text.substr(0, n)); });
  refusal([&] { parse(text + "x"); });
}

TEST(Safetensors, MissingFilesAndDirectories) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] { SafetensorsFile(dir / "no", ErrorCode::checkpoint); }),
              HasSubstr("No such file"));
  refusal([&] { SafetensorsFile(dir.path(), ErrorCode::checkpoint); });
  refusal([&] { SafetensorsFile(dir.path(), ErrorCode::data); }, ErrorCode::data);
}

// Above 4 GiB, where 32-bit offsets wrap. The file is a hole and takes no room.
TEST(Safetensors, LargeOffsets) {
  const TempDir dir;
  const std::int64_t big = std::int64_t{5} << 30;
  const std::string header =
      R"({"big":{"dtype":"U8","shape":[5368709120],"data_offsets":[0,5368709120]},)"
      R"("last":{"dtype":"F32","shape":[1],"data_offsets":[5368709120,5368709124]}})";
  write_text(dir / "x", file_of(header, 0));
  std::filesystem::resize_file(dir / "x", 8 + header.size() + static_cast<std::uint64_t>(big) + 4);
  const SafetensorsFile file(dir / "x", ErrorCode::checkpoint);
  EXPECT_EQ(file.find("big")->bytes, big);
  float value = 1;
  read_floats(StoredType::f32, file.bytes(*file.find("last")), std::span(&value, 1));
  EXPECT_EQ(value, 0);
}

TEST(Safetensors, EveryHalfConverts) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    float got = 0;
    read_floats(StoredType::f16, std::as_bytes(std::span(&half, 1)), std::span(&got, 1));
    const int exponent = (half >> 10) & 31, mantissa = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    const double expected = exponent == 31  ? sign * INFINITY
                            : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                                            : sign * std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(got), expected) << bits;
    ASSERT_EQ(std::signbit(got), half >> 15 == 1) << bits;
  }
}

TEST(Safetensors, FloatsConvert) {
  std::vector<float> to(2);
  const std::vector<double> wide = {0.1, -1e300};
  read_floats(StoredType::f64, std::as_bytes(std::span(wide)), to);
  EXPECT_THAT(to, ElementsAre(0.1f, -INFINITY));
  const std::vector<bf16> narrow = {bf16(1.5f), bf16(-2.0f)};
  read_floats(StoredType::bf16, std::as_bytes(std::span(narrow)), to);
  EXPECT_THAT(to, ElementsAre(1.5f, -2.0f));
}

template <class T>
std::vector<std::int64_t> integers(StoredType type, std::vector<T> values) {
  std::vector<std::int64_t> to(values.size());
  read_integers(type, std::as_bytes(std::span(values)), to, ErrorCode::data);
  return to;
}

TEST(Safetensors, IntegersConvert) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(integers<std::int64_t>(StoredType::i64, {-100, kMost}), ElementsAre(-100, kMost));
  EXPECT_THAT(integers<std::int32_t>(StoredType::i32, {-7, 7}), ElementsAre(-7, 7));
  EXPECT_THAT(integers<std::int16_t>(StoredType::i16, {-7, 7}), ElementsAre(-7, 7));
  EXPECT_THAT(integers<std::int8_t>(StoredType::i8, {-7, 7}), ElementsAre(-7, 7));
  EXPECT_THAT(integers<std::uint64_t>(StoredType::u64, {7}), ElementsAre(7));
  EXPECT_THAT(integers<std::uint32_t>(StoredType::u32, {4294967295u}), ElementsAre(4294967295));
  EXPECT_THAT(integers<std::uint16_t>(StoredType::u16, {65535}), ElementsAre(65535));
  EXPECT_THAT(integers<std::uint8_t>(StoredType::u8, {255}), ElementsAre(255));
  EXPECT_THAT(integers<std::uint8_t>(StoredType::boolean, {0, 1}), ElementsAre(0, 1));
  refusal(
      [] {
        integers<std::uint64_t>(StoredType::u64, {1, ~std::uint64_t{0}});
      },
      ErrorCode::data);
  refusal([] { integers<std::uint8_t>(StoredType::boolean, {2}); }, ErrorCode::data);
}

TEST(Safetensors, EveryTypeHasItsName) {
  for (int i = 0; i <= static_cast<int>(StoredType::boolean); ++i) {
    const auto type = static_cast<StoredType>(i);
    const std::string bytes = std::to_string(byte_size(type));
    const auto header = parse(file_of("{\"t\":{\"dtype\":\"" + std::string(name(type)) +
                                          "\",\"shape\":[],\"data_offsets\":[0," + bytes + "]}}",
                                      static_cast<std::size_t>(byte_size(type))));
    EXPECT_EQ(static_cast<int>(header.tensors.at(0).type), i);
  }
}

}  // namespace
}  // namespace dew
