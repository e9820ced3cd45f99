#include "dew/data/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "dew/base/digest.h"
#include "dew/data/data_test_support.h"
#include "dew/data/tokenizer.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TokenizeResult run(std::vector<Path> inputs, const Path& out, double fraction = 0.25,
                   bool with_eos = false) {
  return tokenize(ByteTokenizer(with_eos),
                  {.inputs = std::move(inputs), .out = out, .val_fraction = fraction});
}

TEST(Tokenize, SplitsTheFirstPartOff) {
  const TemporaryDirectory tmp;
  write_text(tmp / "a.txt", "0123456789");
  const TokenizeResult result = run({tmp / "a.txt"}, tmp / "out");
  EXPECT_EQ(read_text(tmp / "out/val.bin"), "01");
  EXPECT_EQ(read_text(tmp / "out/train.bin"), "23456789");
  EXPECT_EQ(read_text(tmp / "out/meta.json"),
            "{\"tokenizer\":\"byte\",\"vocab_size\":256,\"dtype\":\"uint8\",\"train_tokens\":8,"
            "\"val_tokens\":2,"
            "\"eos_id\":null,\"documents\":1,\"digests\":{\"train.bin\":\"" +
                digest_text(*result.meta.train_digest) + "\",\"val.bin\":\"" +
                digest_text(*result.meta.val_digest) + "\"}}\n");
  EXPECT_EQ(list_directory(tmp.path(), ErrorCode::internal),
            (std::vector<std::string>{"a.txt", "out"}));
  EXPECT_EQ(list_directory(tmp / "out", ErrorCode::internal),
            (std::vector<std::string>{"meta.json", "train.bin", "val.bin"}));
  EXPECT_EQ(result.bytes, 10);
  EXPECT_EQ(TokenDirectory(tmp / "out").train()->fingerprint(), result.meta.train_digest);
}

TEST(Tokenize, TakesFilesAndDirectoriesInOrder) {
  const TemporaryDirectory tmp;
  create_directories(tmp / "d/sub", ErrorCode::internal);
  write_text(tmp / "d/b", "bb");
  write_text(tmp / "d/sub/x", "xx");
  write_text(tmp / "d/z", "zz");
  write_text(tmp / "d/empty", "");
  write_text(tmp / "d/.hidden", "hh");
  write_text(tmp / "last", "ll");
  std::filesystem::create_symlink(tmp / "last", tmp / "d/link");
  create_directory(tmp / "out", ErrorCode::internal);  // an empty one may be there
  const TokenizeResult result = run({tmp / "d", tmp / "last"}, tmp / "out/", 0.4, true);
  EXPECT_EQ(read_text(tmp / "out/val.bin") + read_text(tmp / "out/train.bin"),
            "bb\xffll\xffxx\xffzz\xffll\xff");
  EXPECT_EQ(result.meta.documents, 5);
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_EQ(result.hidden, 1);
  EXPECT_EQ(result.meta.eos_id, 255);
  EXPECT_EQ(result.meta.val_tokens, 6);
  EXPECT_EQ(TokenDirectory(tmp / "out").meta().documents, 5);
}

TEST(Tokenize, ReadsPipes) {
  const TemporaryDirectory tmp;
  const std::string text(3'000'000, 'p');
  ASSERT_EQ(::mkfifo((tmp / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { write_text(tmp / "pipe", text); });
  const TokenizeResult result = run({tmp / "pipe"}, tmp / "out");
  writer.join();
  EXPECT_EQ(result.meta.train_tokens, 2'250'000);
}

// Two ids a byte, one held back over the pieces: what is not special about bytes.
class WideTokenizer final : public Tokenizer {
 public:
  explicit WideTokenizer(std::int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::string name() const override { return "wide"; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> eos_id() const override { return 0; }
  std::unique_ptr<TokenEncoder> encoder() const override {
    return std::make_unique<Encoder>(vocab_size_);
  }
  std::unique_ptr<TokenDecoder> decoder() const override { return nullptr; }

 private:
  class Encoder final : public TokenEncoder {
   public:
    explicit Encoder(std::int64_t vocab_size) : top_(static_cast<std::int32_t>(vocab_size - 1)) {}
    void feed(std::string_view text, std::vector<std::int32_t>& ids) override {
      for (const char c : text) {
        if (held_ > 0) ids.insert(ids.end(), {top_, held_});
        held_ = c;
      }
    }
    void finish(std::vector<std::int32_t>& ids) override {
      ids.insert(ids.end(), {top_, held_});
      held_ = 0;
    }

   private:
    std::int32_t top_, held_ = 0;
  };
  std::int64_t vocab_size_;
};

TEST(Tokenize, WritesTheSmallestType) {
  for (const auto& [vocab, type] : {std::pair{256, IdType::uint8},
                                    {257, IdType::uint16},
                                    {65536, IdType::uint16},
                                    {65537, IdType::uint32}}) {
    const TemporaryDirectory tmp;
    write_text(tmp / "a", "ab");
    write_text(tmp / "b", "c");
    const WideTokenizer tokenizer(vocab);
    tokenize(tokenizer,
             {.inputs = {tmp / "a", tmp / "b"}, .out = tmp / "out", .val_fraction = 0.5});
    const TokenDirectory directory(tmp / "out");
    EXPECT_EQ(directory.meta().dtype, type);
    std::vector<std::int32_t> ids(4);
    directory.val()->read(0, ids);
    EXPECT_THAT(ids, ElementsAre(vocab - 1, 'a', vocab - 1, 'b'));
    directory.train()->read(0, ids);
    EXPECT_THAT(ids, ElementsAre(0, vocab - 1, 'c', 0));
  }
}

TEST(Tokenize, RefusesAndLeavesNothingBehind) {
  const TemporaryDirectory tmp;
  write_text(tmp / "a", "0123456789");
  write_text(tmp / "empty", "");
  write_text(tmp / "x.jsonl", "{}");
  write_text(tmp / "x.gz", "z");
  write_text(tmp / "x\xff", "a\xff");
  create_directories(tmp / "full/nested", ErrorCode::internal);
  create_directories(tmp / "loop", ErrorCode::internal);
  std::filesystem::create_directory_symlink(tmp / "loop", tmp / "loop/again");
  const auto before = list_directory(tmp.path(), ErrorCode::internal);
  const auto usage = [&](std::vector<Path> in, const Path& out, double fraction) {
    return error_of(ErrorCode::usage, [&] { run(in, out, fraction); });
  };
  const auto data = [&](std::vector<Path> in, const Path& out, double fraction = 0.25) {
    return error_of(ErrorCode::data, [&] { run(in, out, fraction, true); });
  };
  const Path a = tmp / "a", out = tmp / "out";
  EXPECT_THAT(usage({}, out, 0.5), HasSubstr("no text"));
  EXPECT_THAT(usage({a}, "", 0.5), HasSubstr("no output directory"));
  EXPECT_THAT(usage({a}, out, 0.0),
              HasSubstr("the validation fraction is 0, must lie between 0 and 1"));
  EXPECT_THAT(usage({a}, out, 1.0), HasSubstr("the validation fraction is 1"));
  EXPECT_THAT(usage({a}, out, std::stod("nan")), HasSubstr("the validation fraction is nan"));
  EXPECT_THAT(usage({a}, tmp / "full", 0.5), HasSubstr("full' exists and is not empty"));
  EXPECT_THAT(usage({a}, a, 0.5), HasSubstr("a' exists and is not a directory"));
  EXPECT_THAT(usage({tmp / "x.jsonl"}, out, 0.5),
              HasSubstr("x.jsonl': .jsonl input is not supported yet"));
  EXPECT_THAT(usage({tmp / "x.gz"}, out, 0.5), HasSubstr(".gz input is not supported yet"));
  EXPECT_THAT(data({tmp / "no"}, out), HasSubstr("there is no '"));
  EXPECT_THAT(data({tmp / "loop"}, out), HasSubstr("leads back to a directory above it"));
  EXPECT_THAT(data({tmp / "empty", tmp / "empty"}, out),
              HasSubstr("there is no text: 2 files, all of them empty"));
  EXPECT_THAT(data({tmp / "full"}, out), HasSubstr("there is no text: 0 files"));
  EXPECT_THAT(data({a}, out, 0.01),
              HasSubstr("too little text: 0.01 of 11 ids is not one validation id"));
  EXPECT_THAT(data({tmp / "x\xff"}, out), HasSubstr("byte 1 of the text is 255"));
  EXPECT_EQ(list_directory(tmp.path(), ErrorCode::internal), before);
}

int calls = 0, fail_at = 0;
int fail_one(FileCall, const Path&) { return ++calls == fail_at ? ENOSPC : 0; }

TEST(Tokenize, IsCompleteOrAbsentWhateverCallFails) {
  const TemporaryDirectory tmp;
  write_text(tmp / "a", "0123456789");
  for (fail_at = 1;; ++fail_at) {
    calls = 0;
    set_file_fault(&fail_one);
    const std::string message = error_of(ErrorCode::data, [&] { run({tmp / "a"}, tmp / "out"); });
    set_file_fault(nullptr);
    if (message == "no error") break;
    EXPECT_THAT(message, HasSubstr("No space left on device"));
    const auto names = list_directory(tmp.path(), ErrorCode::internal);
    // Only syncing the parent, the last call, comes after the directory has its name.
    if (names == std::vector<std::string>{"a", "out"}) {
      EXPECT_EQ(TokenDirectory(tmp / "out").train()->size(), 8);
      break;
    }
    EXPECT_EQ(names, std::vector<std::string>{"a"}) << fail_at;
  }
  EXPECT_GT(fail_at, 10);
}

TEST(Tokenize, ProgressMayEndIt) {
  const TemporaryDirectory tmp;
  write_text(tmp / "a", std::string(3 << 20, 'a'));
  std::vector<std::int64_t> seen;
  TokenizeOptions options{.inputs = {tmp / "a"}, .out = tmp / "out"};
  options.progress = [&](const TokenizeProgress& p) {
    EXPECT_EQ(p.total_bytes, 3 << 20);
    EXPECT_EQ(p.tokens, p.bytes);
    seen.push_back(p.bytes);
    if (seen.size() == 2) fail(ErrorCode::usage, "stop");
  };
  EXPECT_EQ(error_of(ErrorCode::usage, [&] { tokenize(ByteTokenizer(), options); }), "stop");
  EXPECT_THAT(seen, ElementsAre(1 << 20, 2 << 20));
  EXPECT_EQ(list_directory(tmp.path(), ErrorCode::internal), std::vector<std::string>{"a"});
}

// In a process of its own, whose peak memory the system reports.
TEST(Tokenize, MemoryDoesNotGrowWithTheText) {
  const TemporaryDirectory tmp;
  const std::int64_t size = std::int64_t{200} << 20;
  write_text(tmp / "a", "");
  ASSERT_EQ(::truncate((tmp / "a").c_str(), size), 0);
  rusage before{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &before), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      run({tmp / "a"}, tmp / "out", 0.02);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  rusage usage{};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(usage.ru_maxrss - before.ru_maxrss, 64 << 10);  // KiB
  EXPECT_EQ(TokenDirectory(tmp / "out").train()->size(), size - size / 50);
}

}  // namespace
}  // namespace dew
