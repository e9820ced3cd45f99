// What all of the program has: help, version, commands that are to come, exit statuses.
#include "dew/base/file_test_support.h"
#include "tests/cli/program.h"

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
        Words{"generate", "-h"}}) {
    const Outcome outcome = dew(words);
    expect_done(outcome);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("Example:\n  dew "), std::string::npos) << outcome.out;
  }
}

TEST(General, CommandsToCome) {
  for (const char* name : {"tokenizer", "plan", "bench"}) {
    expect_error(dew({name}), 2, std::string("dew ") + name + " is not built yet");
    expect_error(dew({name, "--help"}), 2, std::string("dew ") + name + " is not built yet");
  }
}

TEST(General, WrongCommands) {
  expect_error(dew({}), 2, "no command");
  expect_error(dew({""}), 2, "no command ''");
  expect_error(dew({"trian"}), 2, "no command 'trian'");
  expect_error(dew({"--quiet"}), 2, "no command '--quiet'");
  expect_error(dew({"\xff\x1b[31m"}), 2, "no command '\\xff\\x1b[31m'");
}

TEST(General, StandardOutputThatCannotBeWritten) {
  for (const Words& words : {Words{"--version"}, Words{"--help"}, Words{"train", "--help"}}) {
    expect_error(dew(words, {.close_stdout = true}), 2, "cannot write to standard output");
    expect_error(dew(words, {.broken_stdout = true}), 2, "cannot write to standard output");
  }
}

}  // namespace
}  // namespace dew
