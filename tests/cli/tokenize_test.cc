// dew tokenize, from outside.
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>

#include "dew/data/token_directory.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

const std::string kText = "In the beginning God created the heaven and the earth.\n";

class Tokenize : public testing::Test {
 protected:
  Outcome tokenize(const Words& words) {
    Words all = {"tokenize"};
    all.insert(all.end(), words.begin(), words.end());
    return dew(all, {.directory = directory_.path()});
  }
  Path file(const std::string& name, const std::string& text = kText) {
    write_text(directory_ / name, text);
    return directory_ / name;
  }

  TemporaryDirectory directory_;
};

TEST_F(Tokenize, FirstPartIsValidation) {
  file("a.txt");
  const Outcome outcome = tokenize({"a.txt", "--out", "tokens", "--val-fraction", "0.1"});
  expect_done(outcome);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(read_text(directory_ / "tokens/val.bin"), kText.substr(0, 5));
  EXPECT_EQ(read_text(directory_ / "tokens/train.bin"), kText.substr(5));
  EXPECT_EQ(TokenDirectory(directory_ / "tokens").meta().documents, 1);
}

TEST_F(Tokenize, DirectoriesAndSeveralFiles) {
  create_directories(directory_ / "books/b", ErrorCode::internal);
  file("books/2.txt", std::string(60, '2'));
  file("books/b/1.txt", std::string(60, '1'));
  file("z.txt", std::string(60, '0'));
  expect_done(tokenize({"z.txt", "books", "--out", "tokens"}));
  const std::string all =
      read_text(directory_ / "tokens/val.bin") + read_text(directory_ / "tokens/train.bin");
  EXPECT_EQ(all, std::string(60, '0') + std::string(60, '2') + std::string(60, '1'));
}

TEST_F(Tokenize, JsonIsAllOfStandardOutput) {
  file("a.txt");
  const Outcome outcome = tokenize({"a.txt", "--out=tokens", "--json"});
  expect_done(outcome);
  const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
  EXPECT_EQ(json["train_tokens"].get<int>() + json["val_tokens"].get<int>(), 55);
  EXPECT_EQ(json["documents"], 1);
}

TEST_F(Tokenize, QuietSaysNothing) {
  file("a.txt");
  const Outcome outcome = tokenize({"a.txt", "--out", "tokens", "--quiet"});
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST_F(Tokenize, AnyBytesAreText) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  file("bytes", bytes);
  expect_done(tokenize({"bytes", "--out", "tokens"}));
  EXPECT_EQ(read_text(directory_ / "tokens/val.bin") + read_text(directory_ / "tokens/train.bin"),
            bytes);
}

// A file may have the name of a command.
TEST_F(Tokenize, FileCalledTrain) {
  file("train");
  expect_done(tokenize({"train", "--out", "tokens"}));
}

TEST_F(Tokenize, InterruptedLeavesNothing) {
  const Path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);
  Running running({"tokenize", pipe.string(), "--out", (directory_ / "tokens").string()});
  std::ofstream writer(pipe, std::ios::binary);  // opens when the program reads
  writer << std::string(std::size_t{3} << 20, 'x') << std::flush;
  EXPECT_EQ(list_directory(directory_.path(), ErrorCode::internal).size(), 2u);
  running.signal(SIGINT);
  writer << std::string(std::size_t{3} << 20, 'x') << std::flush;
  EXPECT_EQ(running.finish().status, 128 + SIGINT);
  EXPECT_EQ(list_directory(directory_.path(), ErrorCode::internal).size(), 1u);
}

// Killed, it cannot clean up; the next one to the same place does.
TEST_F(Tokenize, KilledIsCleanedUpBehind) {
  const Path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);
  {
    Running running({"tokenize", pipe.string(), "--out", (directory_ / "tokens").string()});
    std::ofstream writer(pipe, std::ios::binary);
    writer << std::string(std::size_t{3} << 20, 'x') << std::flush;
    running.signal(SIGKILL);
    EXPECT_EQ(running.finish().status, 128 + SIGKILL);
  }
  EXPECT_EQ(list_directory(directory_.path(), ErrorCode::internal).size(), 2u);
  file("a.txt");
  expect_done(tokenize({"a.txt", "--out", "tokens"}));
  EXPECT_EQ(list_directory(directory_.path(), ErrorCode::internal),
            (std::vector<std::string>{"a.txt", "pipe", "tokens"}));
}

// More than `ulimit -f` allows is an error like a full disk, not a death.
TEST_F(Tokenize, FileSizeLimit) {
  write_text(directory_ / "text", std::string(1 << 20, 'x'));
  const std::string program = std::filesystem::absolute(std::getenv("DEW_PROGRAM")).string();
  const Outcome outcome =
      shell("ulimit -f 100; exec '" + program + "' tokenize text --out tokens", directory_.path());
  EXPECT_EQ(outcome.status, 4) << outcome.out;
  EXPECT_NE(outcome.out.find("File too large"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tokens"));
}

// It has nothing to say there. What it was asked to say and cannot does not undo what it made.
TEST_F(Tokenize, StandardOutputIsClosedOrBroken) {
  const std::string a = file("a.txt").string(), out = (directory_ / "tokens").string();
  expect_done(dew({"tokenize", a, "--out", out}, {.close_stdout = true}));
  expect_error(dew({"tokenize", a, "--out", out + "2", "--json", "-q"}, {.broken_stdout = true}), 2,
               "cannot write to standard output (Broken pipe)");
  EXPECT_EQ(TokenDirectory(out + "2").meta().documents, 1);
}

}  // namespace
}  // namespace dew
