#include "dew/data/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dew/base/digest.h"
#include "dew/data/batch_encoder.h"
#include "dew/data/data_test_support.h"
#include "dew/data/tokenizers/load.h"

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
  std::unique_ptr<TokenEncoder> encoder(const EncodeOptions&) const override {
    return std::make_unique<Encoder>(vocab_size_);
  }
  std::unique_ptr<TokenDecoder> decoder(const DecodeOptions&) const override { return nullptr; }

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
  write_text(tmp / "x.zip", "z");
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
  EXPECT_THAT(usage({tmp / "x.zip"}, out, 0.5), HasSubstr(".zip input is not supported"));
  EXPECT_THAT(usage({"-", "-"}, out, 0.5), HasSubstr("standard input (-) is named more than once"));
  EXPECT_THAT(data({tmp / "x.jsonl"}, out),
              HasSubstr("x.jsonl': line 1: the object has no member 'text'"));
  EXPECT_THAT(data({tmp / "x.gz"}, out), HasSubstr("does not begin as .gz does"));
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
    EXPECT_LE(p.tokens, p.bytes);  // the last part waits for what follows
    EXPECT_LE(p.bytes, p.total_bytes);
    seen.push_back(p.bytes);
    if (seen.size() == 2) fail(ErrorCode::usage, "stop");
  };
  EXPECT_EQ(error_of(ErrorCode::usage, [&] { tokenize(ByteTokenizer(), options); }), "stop");
  EXPECT_LT(seen[0], seen[1]);
  EXPECT_EQ(list_directory(tmp.path(), ErrorCode::internal), std::vector<std::string>{"a"});
}

// In a process of its own, whose peak memory the system reports.
TEST(Tokenize, MemoryDoesNotGrowWithTheText) {
#ifdef DEW_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while";
#endif
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
      tokenize(ByteTokenizer(), {.inputs = {tmp / "a"}, .out = tmp / "out", .threads = 2});
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

// ---- several threads

// All ids of a directory, as text.
std::string all_ids(const Path& directory) {
  return read_text(directory / "val.bin") + read_text(directory / "train.bin");
}

// Words, numbers, runs of letters and of blanks, of several scripts; by chance, from a seed.
std::string random_text(std::size_t bytes, unsigned seed) {
  const std::vector<std::string> parts = {"the ",
                                          "word",
                                          " and",
                                          "\n",
                                          "\n\n  ",
                                          "\r\n",
                                          "12345 ",
                                          "caf\u00e9 ",
                                          "\u4eba\u4eba",
                                          "!?",
                                          "  ",
                                          "'s ",
                                          "aaaaaaaaaaaaaaaaaaaaaaaa",
                                          "<|endoftext|>",
                                          "\U0001f600",
                                          "Hello",
                                          "e\u0301",
                                          "\t"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) text += parts[random() % parts.size()];
  return text;
}

class TokenizeThreads : public testing::TestWithParam<const char*> {
 protected:
  // With every file in pieces of work of its own.
  void expect_same(const std::string& text, bool special) {
    const OpenedTokenizer opened =
        open_tokenizer(std::string("tests/data/tokenizers/") + GetParam());
    const TemporaryDirectory tmp;
    write_text(tmp / "a", text);
    const TokenizeOptions options{.inputs = {tmp / "a"},
                                  .out = tmp / "out",
                                  .val_fraction = 0.5,
                                  .special_in_text = special,
                                  .threads = 3};
    const TokenizeResult result = tokenize(*opened.tokenizer, options);
    std::vector<std::int32_t> ids = opened.tokenizer->encode(text, {.special_in_text = special});
    if (const auto eos = opened.tokenizer->eos_id(); eos && ids.back() != *eos) ids.push_back(*eos);
    std::vector<std::byte> stored;
    append_stored(ids, result.meta.dtype, result.meta.vocab_size, stored);
    const std::string wanted(reinterpret_cast<const char*>(stored.data()), stored.size());
    EXPECT_TRUE(all_ids(tmp / "out") == wanted);
    EXPECT_EQ(result.meta.documents, 1);
  }
};

TEST_P(TokenizeThreads, PartsOfALongDocumentAreTheDocument) {
  for (const bool special : {false, true}) expect_same(random_text(2'500'000, 7), special);
}

// One word over several parts, and text that normalizing changes: no boundaries are known.
TEST_P(TokenizeThreads, LongWordsAndChangedText) {
  expect_same(random_text(700'000, 1) + std::string(1'500'000, 'x') + random_text(700'000, 2),
              false);
  std::string accents;
  while (accents.size() < 1'500'000) accents += "e\u0301 \u1112\u1161\u11ab text\n";
  expect_same(accents, false);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizeThreads, testing::Values("gpt2", "llama2", "llama3", "qwen2"),
                         [](const auto& tested) { return std::string(tested.param); });

// ---- kinds of input

std::string gzip(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

TEST(TokenizeInputs, CompressedFilesAreTheirText) {
  const TemporaryDirectory tmp;
  const std::string text = random_text(700'000, 3);
  write_text(tmp / "a.gz", gzip(text) + gzip("second"));
  write_text(tmp / "b.zst", zstd(text) + zstd("second"));
  write_text(tmp / "no_name", zstd(text));
  for (const char* name : {"a.gz", "b.zst", "no_name"}) {
    run({tmp / name}, tmp / (std::string("out.") + name));
    const std::string wanted = text + (std::string(name) == "no_name" ? "" : "second");
    EXPECT_TRUE(all_ids(tmp / (std::string("out.") + name)) == wanted) << name;
  }
}

TEST(TokenizeInputs, DamagedCompression) {
  const TemporaryDirectory tmp;
  const std::string text = random_text(700'000, 3);
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    write_text(tmp / name, bytes);
    return error_of(ErrorCode::data, [&] { run({tmp / name}, tmp / "out"); });
  };
  for (const std::string& whole : {gzip(text), zstd(text)}) {
    EXPECT_THAT(refused("cut", whole.substr(0, whole.size() / 2)), HasSubstr("cut' is cut off"));
    std::string changed = whole;
    changed[changed.size() / 2] = static_cast<char>(~changed[changed.size() / 2]);
    EXPECT_THAT(refused("damaged", changed), HasSubstr("damaged"));
  }
  EXPECT_THAT(refused("x.zst", text), HasSubstr("x.zst' is not what its name says"));
}

TEST(TokenizeInputs, JsonLines) {
  const TemporaryDirectory tmp;
  write_text(
      tmp / "a.jsonl",
      "{\"text\": \"one\", \"meta\": {\"text\": 5}}\n\n{\"id\": [1], \"text\": \"tw\\u006f\"}\r\n"
      "{\"text\": \"\"}\n{\"text\": \"three\"}");
  const TokenizeResult result = run({tmp / "a.jsonl"}, tmp / "out", 0.25, true);
  EXPECT_EQ(all_ids(tmp / "out"), "one\xfftwo\xffthree\xff");
  EXPECT_EQ(result.meta.documents, 3);
  EXPECT_EQ(result.empty_documents, 1);
}

TEST(TokenizeInputs, BrokenLinesAreNamedOrLeftOut) {
  const TemporaryDirectory tmp;
  const std::string good = "{\"text\": \"good\"}\n";
  for (const auto& [bad, says] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": \"x\"", "line 3, byte 13: it is not valid JSON"},
           {"{\"text\": \"\xff\"}", "line 3, byte 11: it is not valid JSON"},
           {std::string("{\"text\": \"x\"}\0{}", 16), "line 3, byte 14: it is not valid JSON"},
           {"[\"text\"]", "line 3: it is an array, not an object"},
           {"{\"txt\": \"x\"}", "line 3: the object has no member 'text'"},
           {"{\"text\": 5}", "line 3: the member 'text' is a number, not a string"},
           {"{\"text\": \"a\", \"text\": \"b\"}", "line 3: the member 'text' is there twice"}}) {
    write_text(tmp / "a.jsonl", good + "\n" + bad + "\n" + good);
    EXPECT_THAT(error_of(ErrorCode::data, [&] { run({tmp / "a.jsonl"}, tmp / "out"); }),
                HasSubstr(says));
    const TokenizeResult result = tokenize(ByteTokenizer(), {.inputs = {tmp / "a.jsonl"},
                                                             .out = tmp / "skipped",
                                                             .val_fraction = 0.5,
                                                             .skip_invalid = true});
    EXPECT_EQ(result.skipped, 1);
    EXPECT_EQ(all_ids(tmp / "skipped"), "goodgood");
    remove_quietly(tmp / "skipped");
  }
}

TEST(TokenizeInputs, TextThatIsNotUtf8IsNamedOrLeftOut) {
  const TemporaryDirectory tmp;
  const OpenedTokenizer gpt2 = open_tokenizer("tests/data/tokenizers/gpt2");
  for (const std::size_t before : {std::size_t{20}, std::size_t{3'000'000}}) {
    std::string text;
    while (text.size() < before) text += "good line\n";
    const auto lines = static_cast<std::int64_t>(text.size() / 10);
    write_text(tmp / "a", text + "ab\xe4" + "c\n" + text);
    const TokenizeOptions options{.inputs = {tmp / "a"}, .out = tmp / "out", .val_fraction = 0.5};
    EXPECT_THAT(error_of(ErrorCode::data, [&] { tokenize(*gpt2.tokenizer, options); }),
                HasSubstr("a': line " + std::to_string(lines + 1) + ", byte 3 (byte " +
                          std::to_string(text.size() + 3) + " of all): 0xe4 is not UTF-8"));
    TokenizeOptions skipping = options;
    skipping.skip_invalid = true;
    const TokenizeResult result = tokenize(*gpt2.tokenizer, skipping);
    EXPECT_EQ(result.skipped, 1);
    auto ids = gpt2.tokenizer->encode(text + text);
    EXPECT_EQ(result.meta.train_tokens + result.meta.val_tokens, std::ssize(ids) + 1);
    remove_quietly(tmp / "out");
  }
}

TEST(TokenizeInputs, OneBeginTokenWhateverTheTextSpells) {
  const OpenedTokenizer llama = open_tokenizer("tests/data/tokenizers/llama2");
  const TemporaryDirectory tmp;
  write_text(tmp / "a", "<s><s>a");
  write_text(tmp / "b", "a");
  for (const bool special : {true, false}) {
    const TokenizeResult result = tokenize(*llama.tokenizer, {.inputs = {tmp / "a", tmp / "b"},
                                                              .out = tmp / "out",
                                                              .val_fraction = 0.2,
                                                              .add_bos = true,
                                                              .special_in_text = special});
    const std::string ids = all_ids(tmp / "out");
    int begins = 0;
    for (std::size_t i = 0; i < ids.size(); i += 2) begins += ids[i] == 1 && ids[i + 1] == 0;
    EXPECT_EQ(begins, 2);
    EXPECT_EQ(result.meta.bos_id, 1);
    EXPECT_EQ(result.meta.eos_id, 2);
    remove_quietly(tmp / "out");
  }
  EXPECT_THAT(error_of(ErrorCode::usage,
                       [&] {
                         tokenize(ByteTokenizer(),
                                  {.inputs = {tmp / "b"}, .out = tmp / "out", .add_bos = true});
                       }),
              HasSubstr("the tokenizer 'byte' has no begin token to add"));
}

// GPT-2's end token is its begin token: between two documents it is both, once.
TEST(TokenizeInputs, OneTokenThatBeginsAndEnds) {
  const TemporaryDirectory tmp;
  const Path fixture = "tests/data/tokenizers/gpt2";
  write_text(tmp / "tokenizer.json", read_text(fixture / "tokenizer.json"));
  write_text(tmp / "tokenizer_config.json",
             R"({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})");
  const OpenedTokenizer gpt2 = open_tokenizer(tmp.path().string());
  std::string lines;  // more than a batch, so that each thread meets fronts of documents
  for (int i = 0; i < 20'000; ++i)
    lines += R"({"text": "<|endoftext|><|endoftext|>line )" + std::to_string(i) + "\"}\n";
  write_text(tmp / "lines.jsonl", lines + R"({"text": "<|endoftext|>"})" + "\n");
  write_text(tmp / "long", std::string(2'500'000, 'a'));
  const TokenizeResult result =
      tokenize(*gpt2.tokenizer, {.inputs = {tmp / "lines.jsonl", tmp / "long", tmp / "lines.jsonl"},
                                 .out = tmp / "out",
                                 .add_bos = true,
                                 .special_in_text = true});
  EXPECT_EQ(result.meta.bos_id, 1000);
  EXPECT_EQ(result.meta.eos_id, 1000);
  const std::string ids = all_ids(tmp / "out");
  const auto is_end = [&](std::size_t i) { return ids.compare(i, 2, "\xe8\x03") == 0; };
  int ends = 0, doubled = 0;
  for (std::size_t i = 0; i < ids.size(); i += 2) {
    ends += is_end(i);
    doubled += i > 0 && is_end(i) && is_end(i - 2);
  }
  EXPECT_EQ(doubled, 0);
  EXPECT_TRUE(is_end(0) && is_end(ids.size() - 2));
  EXPECT_EQ(ends, 1 + 40'001);  // a text of nothing else is no document between two
}

}  // namespace
}  // namespace dew
