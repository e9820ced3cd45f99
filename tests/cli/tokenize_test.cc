// dew tokenize, from outside.
#include <sys/stat.h>

#include <csignal>

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
  // Refused, and `out` is not there nor anything beside it.
  void expect_refused(const Words& words, int status, const std::string& text) {
    const auto before = snapshot(directory_.path());
    expect_error(tokenize(words), status, text);
    EXPECT_EQ(snapshot(directory_.path()), before);
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

struct BadTokenize {
  const char* name;
  Words words;
  int status;
  const char* text;
};

class TokenizeErrors : public Tokenize, public testing::WithParamInterface<BadTokenize> {};

TEST_P(TokenizeErrors, Refused) {
  file("a.txt");
  file("empty.txt", "");
  file("short.txt", "x");
  file("rows.jsonl", "{\"text\": \"x\"}\n");
  create_directories(directory_ / "full", ErrorCode::internal);
  create_directories(directory_ / "nothing", ErrorCode::internal);
  file("full/x", "x");
  expect_refused(GetParam().words, GetParam().status, GetParam().text);
}

const BadTokenize kBadTokenize[] = {
    {"NoArguments", {}, 2, "required"},
    {"NoOut", {"a.txt"}, 2, "--out is required"},
    {"NoText", {"--out", "tokens"}, 2, "TEXT is required"},
    {"MissingFile", {"none.txt", "--out", "tokens"}, 4, "none.txt"},
    {"MissingFileAfterAGoodOne", {"a.txt", "none.txt", "--out", "tokens"}, 4, "none.txt"},
    {"EmptyFile", {"empty.txt", "--out", "tokens"}, 4, "no text"},
    {"EmptyDirectory", {"nothing", "--out", "tokens"}, 4, "no text"},
    {"TooShort", {"short.txt", "--out", "tokens"}, 4, "too little text"},
    {"OutIsAFile", {"a.txt", "--out", "short.txt"}, 2, "not a directory"},
    {"OutIsNotEmpty", {"a.txt", "--out", "full"}, 2, "not empty"},
    {"OutBelowAFile", {"a.txt", "--out", "short.txt/tokens"}, 4, "short.txt"},
    {"OutCannotBeMade", {"a.txt", "--out", "/proc/tokens"}, 4, "/proc"},
    {"OutIsEmptyText", {"a.txt", "--out", ""}, 2, "output"},
    {"FractionZero", {"a.txt", "--out", "tokens", "--val-fraction", "0"}, 2, "fraction is 0"},
    {"FractionOne", {"a.txt", "--out", "tokens", "--val-fraction", "1"}, 2, "fraction is 1"},
    {"FractionNegative", {"a.txt", "--out", "tokens", "--val-fraction=-0.5"}, 2, "-0.5"},
    {"FractionNan", {"a.txt", "--out", "tokens", "--val-fraction", "nan"}, 2, "nan"},
    {"FractionWithUnit", {"a.txt", "--out", "tokens", "--val-fraction", "2%"}, 2, "2%"},
    {"FractionIsText", {"a.txt", "--out", "tokens", "--val-fraction", "some"}, 2, "some"},
    {"FractionHuge", {"a.txt", "--out", "tokens", "--val-fraction", "1e999"}, 2, "inf"},
    {"JsonLines", {"rows.jsonl", "--out", "tokens"}, 2, ".jsonl"},
    {"TokenizerFile", {"a.txt", "--out", "tokens", "--tokenizer", "bpe.json"}, 2, "bpe.json"},
    {"TextField",
     {"a.txt", "--out", "tokens", "--text-field", "text"},
     2,
     "--text-field is not built yet"},
    {"AddBos", {"a.txt", "--out", "tokens", "--add-bos"}, 2, "--add-bos is not built yet"},
    {"UnknownOption", {"a.txt", "--out", "tokens", "--fast"}, 2, "--fast"},
    {"OptionWithoutValue", {"a.txt", "--out"}, 2, "--out"},
    {"OptionTwice", {"a.txt", "--out", "tokens", "--out", "others"}, 2, "--out"},
    {"QuietAndVerbose", {"a.txt", "--out", "tokens", "--quiet", "--verbose"}, 2, "--verbose"},
};

INSTANTIATE_TEST_SUITE_P(All, TokenizeErrors, testing::ValuesIn(kBadTokenize),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_F(Tokenize, UnreadableFile) {
  make_unreadable(file("secret.txt"));
  const Outcome outcome = dew({"tokenize", "secret.txt", "--out", "tokens"},
                              {.directory = directory_.path(), .as_nobody = true});
  if (outcome.status == 127) GTEST_SKIP() << "nobody may not run the program";
  expect_error(outcome, 4, "Permission denied");
  EXPECT_EQ(list_directory(directory_.path(), ErrorCode::internal).size(), 1u);
}

TEST_F(Tokenize, NameThatIsNoUtf8) {
  expect_refused({"a\xff\n\x1b.txt", "--out", "tokens"}, 4, "a\\xff \\x1b.txt");
}

TEST_F(Tokenize, StandardOutputIsClosed) {
  const std::string a = file("a.txt").string(), out = (directory_ / "tokens").string();
  const auto before = snapshot(directory_.path());
  expect_error(dew({"tokenize", a, "--out", out, "--json"}, {.close_stdout = true}), 2,
               "standard output");
  EXPECT_EQ(snapshot(directory_.path()), before);
  expect_done(
      dew({"tokenize", a, "--out", out}, {.close_stdout = true}));  // it has nothing to say there
}

}  // namespace
}  // namespace dew
