// Every command in README.md works as it stands there, on small input.
#include <cstdlib>
#include <sstream>

#include "tests/cli/program.h"

namespace dew {
namespace {

// Lines of the blocks ```sh.
std::vector<std::string> commands_of(const Path& file) {
  std::vector<std::string> commands;
  std::istringstream lines(read_text(file));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside && !line.empty()) {
      commands.push_back(line);
    }
  }
  return commands;
}

// A checkout as the README assumes it, after `make build`.
class Readme : public testing::Test {
 protected:
  Readme() {
    // mpirun asks this of root twice; CI is root.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    const Path root = std::filesystem::current_path();
    for (const char* name : {"examples", "tests", "tools", "Makefile"}) {
      std::filesystem::create_symlink(root / name, directory_ / name);
    }
    std::filesystem::create_directories(directory_ / "build/release");
    std::filesystem::create_symlink(std::filesystem::absolute(std::getenv("DEW_PROGRAM")),
                                    directory_ / "build/release/dew");
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "In the beginning was the Word. ";
    write_text(directory_ / "my_text.txt", text);
  }

  TemporaryDirectory directory_;
};

TEST_F(Readme, EveryCommandWorks) {
  const std::vector<std::string> commands = commands_of("README.md");
  EXPECT_GE(commands.size(), 8u);
  for (std::string command : commands) {
    // CI runs the targets themselves; here they must exist.
    if (command.starts_with("make ")) command += " -n";
    // What Open MPI itself leaves unfreed at its end is not ours to count.
    if (command.starts_with("mpirun")) command.insert(0, "LSAN_OPTIONS=detect_leaks=0 ");
    if (command.find(" train ") != command.npos && !command.ends_with("--help")) {
      command += " run.steps=2";
    }
    const Outcome outcome = shell(command, directory_.path());
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.out;
  }
}

TEST_F(Readme, EveryLinkIsThere) {
  const std::string text = read_text("README.md");
  int links = 0;
  for (std::size_t at = text.find("]("); at != text.npos; at = text.find("](", at + 1), ++links) {
    const std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
    EXPECT_TRUE(std::filesystem::exists(target)) << target;
  }
  EXPECT_GE(links, 8);
}

TEST_F(Readme, DemoInSmall) {
  if (std::system("command -v bible > /dev/null") != 0)
    GTEST_SKIP() << "bible-kjv is not installed";
  const std::string root = std::filesystem::current_path().string();
  const Outcome outcome = shell("DEW_DEMO_DIR='" + (directory_ / "demo").string() + "' '" + root +
                                    "/tools/demo.sh' run.steps=2 data.val_batches=1",
                                directory_.path());
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("bits per byte"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n\nIn the beginning"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace dew
