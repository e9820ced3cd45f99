// The notebook that dew grew out of, whole: as a program on the library, and from a config.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace dew {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What examples/scaling printed, run once in a directory of its own.
const std::vector<std::string>& example() {
  static const std::vector<std::string> lines = [] {
    const TemporaryDirectory directory;
    std::filesystem::create_symlink(std::filesystem::current_path() / "tests", directory / "tests");
    const char* examples = std::getenv("DEW_EXAMPLES");
    const Path program =
        std::filesystem::absolute(examples != nullptr ? examples : "build/release/examples");
    // The second time finds what the first one left.
    EXPECT_EQ(shell("'" + program.string() + "/scaling'", directory.path()).status, 0);
    const Outcome outcome = shell("'" + program.string() + "/scaling'", directory.path());
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    return lines_of(outcome.out);
  }();
  return lines;
}

// Numbers that depend on the machine, its clock and the order of its sums.
std::string masked(const std::string& line) {
  static const std::regex loss("loss [0-9]\\.[0-9]{4}"), time("after [0-9]+\\.[0-9]{2} s"),
      share(" [0-9]+\\.[0-9]% of");
  return std::regex_replace(
      std::regex_replace(std::regex_replace(line, loss, "loss L"), time, "after T s"), share,
      " P% of");
}

const char* const kDataParallel =
    "{'data': 8, 'expert': 1, 'fsdp': 1, 'tensor': 1, 'sequence': 1, 'stage': 1}";
const char* const kFullySharded =
    "{'data': 1, 'expert': 1, 'fsdp': 8, 'tensor': 1, 'sequence': 1, 'stage': 1}";
const std::vector<std::string> kWhole = {
    "spec: P()",
    "  cpu:0: rows slice(None, None, None), local shape (256, 64)",
    "  cpu:1: rows slice(None, None, None), local shape (256, 64)",
    "  cpu:2: rows slice(None, None, None), local shape (256, 64)",
};
const std::vector<std::string> kSplit = {
    "spec: P('fsdp',)",
    "  cpu:0: rows slice(0, 32, None), local shape (32, 64)",
    "  cpu:1: rows slice(32, 64, None), local shape (32, 64)",
    "  cpu:2: rows slice(64, 96, None), local shape (32, 64)",
};
const char* const kGoodput = "Goodput: first step after T s, P% of the wall time in steps";
const char* const kResumed = "Resumed from step 20 in runs/07-scaling/replicated";

// The notebook's lines, as it prints them.
std::vector<std::string> notebook() {
  const std::string processes = " (1 process(es))";
  std::vector<std::string> lines = {
      "[CpuDevice(id=0), CpuDevice(id=1), CpuDevice(id=2), CpuDevice(id=3), CpuDevice(id=4), "
      "CpuDevice(id=5), CpuDevice(id=6), CpuDevice(id=7)]",
      std::string("data parallel: ") + kDataParallel,
      std::string("fully sharded: ") + kFullySharded,
      "data parallel P()",
      "fully sharded P('fsdp',)",
      "training windows: 2987"};
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  for (const char* mesh : {kDataParallel, kFullySharded}) {
    add({"Training from step 0 to 20 on " + (mesh + processes), "step 10: loss L",
         "step 20: loss L", kGoodput});
    add(mesh == kDataParallel ? kWhole : kSplit);
  }
  add({kResumed});
  add(kSplit);
  add({"restored weights equal the data-parallel run's: True", kResumed,
       "Training from step 20 to 30 on " + (kFullySharded + processes), "step 30: loss L", kGoodput,
       "continued to step 30"});
  return lines;
}

TEST(Scaling, PrintsTheNotebooksLines) {
  std::vector<std::string> printed;
  for (const std::string& line : example()) {
    const bool drawing = line.empty() || line[0] == '+' || line[0] == '|';
    const bool hosts = line.find(" process ") != line.npos || line.find("processes)") != line.npos;
    if (!drawing && !hosts) printed.push_back(masked(line));
  }
  EXPECT_EQ(printed, notebook());
}

TEST(Scaling, DrawsWhichDeviceHoldsWhat) {
  std::vector<std::string> cells;
  for (const std::string& line : example()) {
    if (line.starts_with("|")) cells.push_back(line);
  }
  ASSERT_EQ(cells.size(), 9u);
  EXPECT_EQ(cells[0], "| CPU 0,1,2,3,4,5,6,7 |");
  for (std::size_t d = 0; d < 8; ++d) EXPECT_EQ(cells[d + 1], "| CPU " + std::to_string(d) + " |");
}

// Of step 10 and 20 in both layouts, and of step 30.
TEST(Scaling, LossesOfTheLayoutsAreTheSame) {
  std::vector<double> losses;
  for (const std::string& line : example()) {
    const std::size_t at = line.find(": loss ");
    if (at != line.npos) losses.push_back(std::stod(line.substr(at + 7)));
  }
  ASSERT_EQ(losses.size(), 5u);
  EXPECT_NEAR(losses[0], losses[2], 1.01e-4);  // as printed
  EXPECT_NEAR(losses[1], losses[3], 1.01e-4);
  EXPECT_GT(losses[0], 3.2);  // the notebook: 3.5792, 2.6488, 1.9283
  EXPECT_LT(losses[0], 3.9);
  EXPECT_GT(losses[1], 1.9);
  EXPECT_LT(losses[1], 2.9);
  EXPECT_GT(losses[4], 1.3);
  EXPECT_LT(losses[4], 2.2);
}

TEST(Scaling, DealsRowsToHosts) {
  const std::vector<std::string>& lines = example();
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(lines[lines.size() - 4], "  process 0: rows 0 to 3");
  EXPECT_EQ(lines.back(), "  process 3: rows 12 to 15");
}

TEST(Scaling, IsWhatTheReadmeShows) {
  std::vector<std::string> shown, printed;
  bool inside = false;
  for (const std::string& line : lines_of(read_text("README.md"))) {
    if (line.starts_with("```")) {
      inside = line == "```text";
    } else if (inside) {
      shown.push_back(masked(line));
    }
  }
  for (const std::string& line : example()) printed.push_back(masked(line));
  ASSERT_EQ(shown.size(), 8u);
  EXPECT_NE(std::search(printed.begin(), printed.end(), shown.begin(), shown.end()), printed.end());
}

// ---- the same with `dew train`

double last_loss(const Path& run) {
  double loss = 0;
  for (const Json& line : metrics_of(run)) {
    if (line.contains("loss")) loss = line["loss"];
  }
  return loss;
}

TEST(Scaling, TheSameFromAConfig) {
  const TemporaryDirectory directory;
  const auto train = [&](const char* run, const Words& keys) {
    Words words = keys;
    words.insert(words.end(), {"devices.spec=cpu:8", "layout.min_shard=1"});
    const Outcome outcome = dew(train_notebook(directory / run, words));
    expect_done(outcome);
    return outcome.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(has(train("replicated", {}), kDataParallel));
  EXPECT_TRUE(has(train("sharded", {"mesh.fsdp=8"}), kFullySharded));
  const double replicated = last_loss(directory / "replicated");
  EXPECT_NEAR(last_loss(directory / "sharded"), replicated, 1e-5 * replicated);

  // Back and forth between layouts to step 40, as one run on one mesh.
  const std::string crossed =
      train("replicated", {"mesh.fsdp=8", "run.steps=30", "--check-replicas"});
  EXPECT_TRUE(has(crossed, "Resumed from step 20 in ")) << crossed;
  EXPECT_TRUE(has(crossed, std::string("Training from step 20 to 30 on ") + kFullySharded));
  EXPECT_TRUE(has(crossed, "mesh.fsdp was 1, is 8")) << crossed;
  train("replicated", {"mesh.fsdp=2", "mesh.tensor=2", "run.steps=40"});
  train("straight", {"run.steps=40"});
  const double straight = last_loss(directory / "straight");
  EXPECT_NEAR(last_loss(directory / "replicated"), straight, 1e-5 * straight);
}

}  // namespace
}  // namespace dew
