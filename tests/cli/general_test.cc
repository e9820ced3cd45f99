// What all of the program has: help, version, commands that are to come, exit statuses.
#include "dew/base/file_test_support.h"
#include "tests/cli/error_case.h"

namespace dew {
namespace {

TEST(General, VersionIsThatOfTheBuild) {
  const Outcome outcome = dew({"--version"});
  expect_done(outcome);
  const std::string version = outcome.out.substr(4, outcome.out.size() - 5);
  EXPECT_NE(read_text("CMakeLists.txt").find("project(dew VERSION " + version + " "),
            std::string::npos);
}

TEST(General, HelpEverywhereWithAnExample) {
  for (const Words& words :
       {Words{"--help"}, Words{"tokenize", "--help"}, Words{"train", "-h"}, Words{"eval", "--help"},
        Words{"probe", "--help"}, Words{"inspect", "--help"}, Words{"dispatch", "--help"},
        Words{"generate", "-h"}, Words{"bench", "--help"}, Words{"tokenizer", "--help"},
        Words{"tokenizer", "train", "-h"}, Words{"tokenizer", "encode", "--help"},
        Words{"tokenizer", "decode", "--help"}}) {
    const Outcome outcome = dew(words);
    expect_done(outcome);
    EXPECT_EQ(outcome.err, "");
    const std::size_t example = outcome.out.find("Example:\n  ");
    ASSERT_NE(example, std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("dew ", example), std::string::npos) << outcome.out;
  }
}

TEST(General, CommandsToCome) {
  expect_error(dew({"plan"}), 2, "dew plan is not built yet");
  expect_error(dew({"plan", "--help"}), 2, "dew plan is not built yet");
}

class GeneralErrors : public testing::TestWithParam<ErrorCase> {
 protected:
  TemporaryDirectory directory_;
};

// The first of a row's words stands where a command would.
TEST_P(GeneralErrors, Refused) {
  ErrorCase row = GetParam();
  const std::string command = row.words[0];
  row.words.erase(row.words.begin());
  refuse(command.c_str(), row, directory_.path());
}

const std::string kList = "dew --help lists the commands";

std::vector<ErrorCase> general_errors() {
  std::vector<ErrorCase> rows = {
      {"EmptyCommand", {""}, 2, {"there is no command ''"}, {}, {}, kList},
      {"Misspelt", {"trian"}, 2, {"no command 'trian'", "the nearest is train"}, {}, {}, kList},
      {"OptionFirst", {"--quiet"}, 2, {"there is no command '--quiet'"}, {}, {}, kList},
      {"Capitals", {"TRAIN"}, 2, {"there is no command 'TRAIN'"}},
      {"NoText", {"\xff\x1b[31m"}, 2, {"no command '\\xff\\x1b[31m'"}},
      {"Long", {std::string(100000, 'x')}, 2, {"there is no command 'xxx"}},
  };
  // Whatever else is missing, what nobody understands is said first.
  for (const char* name : {"tokenize", "train", "eval", "generate", "probe", "inspect", "dispatch",
                           "import", "export"}) {
    for (ErrorCase row : common_errors(std::string("dew ") + name, {})) {
      if (row.name == std::string("QuietAndVerbose")) continue;  // it lacks its arguments
      row.words.insert(row.words.begin(), name);
      rows.push_back(row);
    }
  }
  const Start outputs[] = {{.close_stdout = true}, {.full_stdout = true}, {.broken_stdout = true}};
  for (const Words& words :
       {Words{"--version"}, Words{"--help"}, Words{"train", "--help"}, Words{"eval", "-h"}}) {
    for (const Start& start : outputs) {
      rows.push_back({"Output", words, 2, {"cannot write to standard output ("}, {}, start});
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, GeneralErrors, testing::ValuesIn(general_errors()),
                         [](const auto& p) { return p.param.name + std::to_string(p.index); });

TEST(General, NoCommand) { expect_error(dew({}), 2, "no command was given"); }

}  // namespace
}  // namespace dew
