#include "dew/data/token_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "dew/base/digest.h"
#include "dew/data/data_test_support.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNotebook = "tests/data/notebook-tokens";

TEST(TokenDirectory, ReadsTheNotebooksCorpus) {
  const TokenDirectory directory(kNotebook);
  EXPECT_EQ(directory.meta().tokenizer, "byte");
  EXPECT_EQ(directory.meta().vocab_size, 256);
  EXPECT_EQ(directory.meta().eos_id, std::nullopt);
  EXPECT_EQ(directory.meta().documents, std::nullopt);
  EXPECT_EQ(directory.train()->size(), 95598);
  EXPECT_EQ(directory.val()->size(), 1950);
  const std::string text = read_text(std::string(kNotebook) + "/train.bin");
  std::vector<std::int32_t> ids(5);
  directory.train()->read(95593, ids);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(ids[i], text[95593 + i]);
  EXPECT_EQ(directory.train()->fingerprint(), digest_of(std::as_bytes(std::span(text))));
}

TEST(TokenDirectory, ReadsEveryWidth) {
  const TemporaryDirectory tmp;
  write_directory<std::uint16_t>(tmp / "a", 50257, {0, 50256, 256}, {1});
  write_directory<std::uint32_t>(tmp / "b", 2'000'000'000, {0, 1'999'999'999, 65536}, {1});
  std::vector<std::int32_t> ids(3);
  TokenDirectory(tmp / "a").train()->read(0, ids);
  EXPECT_THAT(ids, ElementsAre(0, 50256, 256));
  TokenDirectory(tmp / "b").train()->read(0, ids);
  EXPECT_THAT(ids, ElementsAre(0, 1'999'999'999, 65536));
  // A wider type than the vocabulary needs is read; so are members that we do not know.
  write_directory<std::uint16_t>(tmp / "c", 10, {3, 9}, {1});
  write_text(tmp / "c/meta.json",
             R"({"made_by": "x", "tokenizer": "byte", "vocab_size": 10, "dtype": "uint16",
                 "train_tokens": 2, "val_tokens": 1, "eos_id": 9, "documents": null})");
  EXPECT_EQ(TokenDirectory(tmp / "c").meta().eos_id, 9);
}

TEST(TokenMeta, ComesBack) {
  const TemporaryDirectory tmp;
  const TokenMeta meta{.tokenizer = "t\"\xc3\xa4",
                       .vocab_size = 70000,
                       .dtype = IdType::uint32,
                       .train_tokens = std::int64_t{1} << 40,
                       .val_tokens = 3,
                       .eos_id = 69999,
                       .documents = 2,
                       .train_digest = 0x1,
                       .val_digest = ~std::uint64_t{0}};
  write_token_meta(tmp.path(), meta);
  const TokenMeta read = read_token_meta(tmp.path());
  EXPECT_EQ(read.tokenizer, meta.tokenizer);
  EXPECT_EQ(read.vocab_size, meta.vocab_size);
  EXPECT_EQ(read.dtype, meta.dtype);
  EXPECT_EQ(read.train_tokens, meta.train_tokens);
  EXPECT_EQ(read.eos_id, meta.eos_id);
  EXPECT_EQ(read.documents, meta.documents);
  EXPECT_EQ(read.train_digest, meta.train_digest);
  EXPECT_EQ(read.val_digest, meta.val_digest);
}

// One broken thing in an otherwise good directory, and what the error must say.
struct Broken {
  const char* what;
  std::function<void(const Path&)> how;
  const char* message;
};

void meta_is(const Path& path, std::string_view text) { write_text(path / "meta.json", text); }

void meta_with(const Path& path, const std::string& from, const std::string& to) {
  std::string text = meta_text(10, "uint16", 4, 2);
  const auto at = text.find(from);
  ASSERT_NE(at, text.npos) << from;
  meta_is(path, text.replace(at, from.size(), to));
}

const std::vector<Broken>& broken_directories() {
  using P = const Path&;
  static const std::vector<Broken> all = {
      {"no directory", [](P p) { remove_quietly(p); }, "there is no token directory '"},
      {"no train.bin", [](P p) { remove_quietly(p / "train.bin"); },
       "train.bin': No such file or directory"},
      {"no val.bin", [](P p) { remove_quietly(p / "val.bin"); },
       "val.bin': No such file or directory"},
      {"no meta.json", [](P p) { remove_quietly(p / "meta.json"); },
       "is no token directory: it has no meta.json"},
      {"train.bin is a directory",
       [](P p) {
         remove_quietly(p / "train.bin");
         create_directory(p / "train.bin", ErrorCode::internal);
       },
       "train.bin': Is a directory"},
      {"truncated", [](P p) { write_text(p / "train.bin", "1234"); },
       "train.bin is truncated: it holds 2 uint16 ids, meta.json says 4"},
      {"too large", [](P p) { write_text(p / "val.bin", std::string(6, '\0')); },
       "val.bin is larger than described: it holds 3 uint16 ids, meta.json says 2"},
      {"half an id", [](P p) { write_text(p / "train.bin", "1234567"); },
       "train.bin: 7 bytes are not a whole number of uint16 ids"},
      {"empty", [](P p) { write_text(p / "val.bin", ""); }, "val.bin is empty"},
      {"empty as described",
       [](P p) {
         write_text(p / "train.bin", "");
         meta_with(p, "\"train_tokens\": 4", "\"train_tokens\": 0");
       },
       "train.bin is empty"},
      {"id outside",
       [](P p) {
         write_ids<std::uint16_t>(p / "train.bin", {0, 9, 10, 65535});
       },
       "train.bin: id 10 at position 2 is outside the vocabulary of 10"},
      {"id outside in val",
       [](P p) {
         write_ids<std::uint16_t>(p / "val.bin", {0, 65535});
       },
       "val.bin: id 65535 at position 1 is outside the vocabulary of 10"},
      {"dtype too narrow", [](P p) { meta_with(p, "10", "65537"); },
       "dtype uint16 cannot hold the ids of a vocabulary of 65537"},
      {"dtype unknown", [](P p) { meta_with(p, "uint16", "float32"); },
       "'dtype' must be one of uint8, uint16, uint32, found \"float32\""},
      {"wrong digest",
       [](P p) {
         meta_with(p, "null", "null, \"digests\": {\"train.bin\": \"0123456789abcdef\"}");
       },
       "train.bin was changed after it was written: its digest is "},
      {"digest malformed",
       [](P p) { meta_with(p, "null", "null, \"digests\": {\"val.bin\": \"xyz\"}"); },
       "'val.bin' must be 16 hexadecimal digits, found \"xyz\""},
      {"meta empty", [](P p) { meta_is(p, ""); }, "meta.json is not valid JSON: "},
      {"meta cut off", [](P p) { meta_is(p, "{\"tokenizer\": \"by"); },
       "meta.json is not valid JSON: "},
      {"meta not UTF-8", [](P p) { meta_with(p, "byte", "b\xff"); },
       "meta.json is not valid JSON: "},
      {"meta huge", [](P p) { meta_is(p, std::string(2 << 20, ' ')); },
       "meta.json' is larger than the 1048576 bytes"},
      {"meta a list", [](P p) { meta_is(p, "[1, 2]"); }, "a JSON object is expected, found [1,2]"},
      {"meta twice", [](P p) { meta_with(p, "\"eos_id\"", "\"dtype\": \"uint8\", \"eos_id\""); },
       "key \"dtype\" appears twice"},
      {"member missing", [](P p) { meta_with(p, "eos_id", "eos"); }, "'eos_id' is missing"},
      {"vocabulary a float", [](P p) { meta_with(p, "10", "10.0"); },
       "'vocab_size' must be an integer from 1 to 2147483647, found 10.0"},
      {"vocabulary empty", [](P p) { meta_with(p, "10", "0"); }, "'vocab_size' must be"},
      {"tokens a string", [](P p) { meta_with(p, "\"val_tokens\": 2", "\"val_tokens\": \"2\""); },
       "'val_tokens' must be an integer from 0 to"},
      {"tokens negative", [](P p) { meta_with(p, "\"train_tokens\": 4", "\"train_tokens\": -4"); },
       "found -4"},
      {"end token outside", [](P p) { meta_with(p, "null", "10"); },
       "'eos_id' must be an integer from 0 to 9, found 10"},
      {"tokenizer a number", [](P p) { meta_with(p, "\"byte\"", "7"); },
       "'tokenizer' must be a string, found 7"},
  };
  return all;
}

TEST(TokenDirectory, EveryFaultHasItsOwnError) {
  for (const Broken& broken : broken_directories()) {
    SCOPED_TRACE(broken.what);
    const TemporaryDirectory tmp;
    write_directory<std::uint16_t>(tmp / "t", 10, {0, 1, 2, 9}, {3, 4});
    EXPECT_EQ(error_of(ErrorCode::data, [&] { TokenDirectory good(tmp / "t"); }), "no error");
    broken.how(tmp / "t");
    EXPECT_THAT(error_of(ErrorCode::data, [&] { TokenDirectory bad(tmp / "t"); }),
                HasSubstr(broken.message));
  }
}

TEST(TokenFile, FindsOneBadIdAnywhere) {
  const TemporaryDirectory tmp;
  const auto error = [&]<typename T>(T bad, std::int64_t vocab, std::size_t at) {
    std::vector<T> ids(700'001, 3);
    ids[at] = bad;
    write_ids(tmp / "x", ids);
    return error_of(ErrorCode::data, [&] {
      TokenFile(tmp / "x",
                {.dtype = static_cast<IdType>(sizeof(T)), .vocab_size = vocab, .tokens = 700'001});
    });
  };
  for (const std::size_t at : {0u, 131'071u, 131'072u, 699'999u, 700'000u}) {
    const std::string where = " at position " + std::to_string(at) + " is outside";
    EXPECT_THAT(error(std::uint8_t{200}, 200, at), HasSubstr("id 200" + where));
    EXPECT_THAT(error(std::uint16_t{50257}, 50257, at), HasSubstr("id 50257" + where));
    EXPECT_THAT(error(std::uint32_t{4'294'967'295}, 2'147'483'647, at),
                HasSubstr("id 4294967295" + where));
    EXPECT_EQ(error(std::uint8_t{255}, 256, at), "no error");
    EXPECT_EQ(error(std::uint16_t{65535}, 65536, at), "no error");
  }
}

std::int64_t resident_bytes() {
  const std::string statm = read_text("/proc/self/statm");
  return std::stoll(statm.substr(statm.find(' '))) * ::sysconf(_SC_PAGESIZE);
}

// A sparse file of 5 GiB: more ids than 2^32, mapped but hardly read, and checked window by window.
TEST(TokenFile, IsLazyAndHas64BitOffsets) {
  const TemporaryDirectory tmp;
  const std::int64_t size = std::int64_t{5} << 30;
  const std::int64_t marks[] = {(std::int64_t{1} << 31) - 1, std::int64_t{1} << 32, size - 1};
  write_text(tmp / "x", "");
  ASSERT_EQ(::truncate((tmp / "x").c_str(), size), 0);
  const int fd = ::open((tmp / "x").c_str(), O_WRONLY);
  const char good = 7, bad = 120;
  for (const std::int64_t mark : marks) ASSERT_EQ(::pwrite(fd, &good, 1, mark), 1);
  ASSERT_EQ(::pwrite(fd, &bad, 1, size / 2 + 11), 1);

  const std::int64_t before = resident_bytes();
  const TokenFileSpec spec{.vocab_size = 100, .tokens = size};
  const TokenFile file(tmp / "x", spec);
  std::vector<std::int32_t> ids(3);
  for (const std::int64_t mark : marks) {
    file.read(mark - 2, ids);
    EXPECT_THAT(ids, ElementsAre(0, 0, 7));
  }
  EXPECT_THAT(error_of(ErrorCode::data, [&] { file.read(size / 2 + 10, ids); }),
              HasSubstr("id 120 at position 2684354571 is outside the vocabulary of 100"));
  EXPECT_LT(resident_bytes() - before, std::int64_t{128} << 20);

  // The sampled fingerprint sees the last byte.
  ASSERT_EQ(::pwrite(fd, &bad, 1, size - 1), 1);
  EXPECT_NE(TokenFile(tmp / "x", spec).fingerprint(), file.fingerprint());
  ::close(fd);
}

}  // namespace
}  // namespace dew
