// Every number of a config as large and as small as its type allows: a run, or one line, at once.
#include <csignal>
#include <variant>

#include "dew/train/config_fields.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

struct Extreme {
  std::string key, value;
};
void PrintTo(const Extreme& e, std::ostream* out) { *out << e.key << "=" << e.value; }

std::vector<Extreme> extremes() {
  const std::vector<std::string> integers = {"0", "2147483647", "9223372036854775807"};
  const std::vector<std::string> reals = {"0.0", "1e-320", "3e38", "1.7e308"};
  std::vector<Extreme> all;
  TrainConfig config;
  for (const ConfigSection& section : config_sections()) {
    for (const ConfigField& field : section.fields) {
      const std::string key = full_key(section, field);
      if (key == "run.steps") continue;  // as many as somebody wants to wait for: below
      const ConfigSlot slot = field.slot(config);
      const bool real = std::holds_alternative<double*>(slot);
      const bool whole = std::holds_alternative<std::int64_t*>(slot) ||
                         std::holds_alternative<std::optional<std::int64_t>*>(slot);
      const bool list = std::holds_alternative<std::vector<std::int64_t>*>(slot);
      if (!real && !whole && !list) continue;
      for (const std::string& value : real ? reals : integers)
        all.push_back({key, list ? "[" + value + "]" : value});
    }
  }
  return all;
}

class TrainSizes : public testing::TestWithParam<Extreme> {};

INSTANTIATE_TEST_SUITE_P(All, TrainSizes, testing::ValuesIn(extremes()), [](const auto& p) {
  std::string name = p.param.key + "_" + p.param.value;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST_P(TrainSizes, RunsOrIsRefusedAtOnce) {
  const TemporaryDirectory directory;
  const Extreme& e = GetParam();
  Words overrides = {e.key + "=" + e.value, "run.steps=1", "--quiet"};
  // What makes the key mean something.
  if (e.key.starts_with("model.rope_scaling."))
    overrides.push_back("model.rope_scaling.type=llama3");
  if (e.key == "optimizer.momentum") overrides.push_back("optimizer.name=sgd");
  if (e.key.starts_with("schedule.")) overrides.push_back("schedule.name=warmup_stable_decay");
  Running running(train_notebook(directory / "run", overrides));
  ASSERT_TRUE(running.ends_within(30)) << "it hangs";
  const Outcome outcome = running.finish();
  if (outcome.status == 0) return;
  if (outcome.status == 6) {  // numbers that a run may have come to, and which it tells
    EXPECT_NE(outcome.err.find("not finite"), std::string::npos) << outcome.err;
    return;
  }
  EXPECT_TRUE(outcome.status >= 2 && outcome.status <= 4) << outcome.status << " " << outcome.err;
  expect_error(outcome, outcome.status, "");
  EXPECT_FALSE(std::filesystem::exists(directory / "run"));
}

class TrainSteps : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Schedules, TrainSteps,
                         testing::Values("constant", "warmup_cosine", "warmup_stable_decay",
                                         "linear"),
                         [](const auto& p) { return std::string(p.param); });

// As many steps as there are numbers, and as long a warm-up: the rate is a rate, and whoever has
// waited enough stops the run and goes on with fewer.
TEST_P(TrainSteps, AnyTargetIsOneToGoFor) {
  const TemporaryDirectory directory;
  const Words overrides = {"run.steps=9223372036854775807", "run.log_every=1",
                           std::string("schedule.name=") + GetParam(),
                           "schedule.warmup_steps=9223372036854775806"};
  Running running(train_notebook(directory / "run", overrides));
  ASSERT_TRUE(running.wait_for("step 3:"));
  running.signal(SIGTERM);
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
  const Json last = metrics_of(directory / "run").back();
  EXPECT_GT(last["lr"], 0);
  EXPECT_LT(last["lr"], 1e-15);
  const std::string next = std::to_string(last["step"].get<std::int64_t>() + 1);
  expect_done(dew(train_notebook(directory / "run", {"run.steps=" + next})));
}

TEST(TrainNoSteps, NoneSavesTheFirstState) {
  const TemporaryDirectory directory;
  const Words words = train_notebook(directory / "run", {"run.steps=0"});
  expect_done(dew(words));
  const auto first = digests_of(directory / "run");
  EXPECT_GT(first.size(), 0u);
  EXPECT_TRUE(std::filesystem::exists(directory / "run/config.toml"));
  expect_done(dew(words));
  EXPECT_EQ(digests_of(directory / "run"), first);
  const Path once = directory / "once", then = directory / "run";
  expect_done(dew(train_notebook(once, {"run.steps=2"})));
  expect_done(dew(train_notebook(then, {"run.steps=2"})));
  EXPECT_EQ(digests_of(then), digests_of(once));
}

}  // namespace
}  // namespace dew
