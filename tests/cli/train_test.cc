// dew train and dew eval on the notebook's corpus, from outside.
#include <csignal>
#include <set>
#include <sstream>

#include "tests/cli/program.h"

namespace dew {
namespace {

class Train : public testing::Test {
 protected:
  Path run(const std::string& name = "run") const { return directory_ / name; }
  TemporaryDirectory directory_;
};

double loss_at(const Path& run, int step) {
  for (const Json& line : metrics_of(run)) {
    if (line["step"] == step && line.contains("loss")) return line["loss"];
  }
  return -1;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_F(Train, NotebookLinesAndFiles) {
  const Outcome outcome = dew(train_notebook(run()));
  expect_done(outcome);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with(
      "Training from step 0 to 20 on {'data': 1, 'expert': 1, 'fsdp': 1, 'tensor': 1, "
      "'sequence': 1, 'stage': 1} (1 process(es))\n"))
      << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "\nstep 10: loss 3.")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "\nGoodput: first step after 0.")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "% of the wall time in steps\n")) << outcome.err;
  std::istringstream told(outcome.err);
  for (std::string line; std::getline(told, line);) {
    EXPECT_TRUE(contains(read_text(run() / "log.txt"), line + "\n")) << line;
  }
  EXPECT_TRUE(contains(read_text(run() / "config.toml"), "weight_decay"));

  const std::vector<Json> lines = metrics_of(run());
  ASSERT_EQ(lines.size(), 3u);
  const std::vector<std::string> keys = {"step",   "loss",    "loss_mean",    "grad_norm", "lr",
                                         "tokens", "skipped", "tokens_per_s", "step_ms"};
  for (const std::string& key : keys) EXPECT_TRUE(lines[0].contains(key)) << key;
  EXPECT_EQ(lines[0].size(), keys.size());
  EXPECT_EQ(lines[1]["tokens"], 20 * 16 * 32);
  EXPECT_EQ(lines[2]["step"], 20);
  for (const char* key : {"eval_loss", "eval_perplexity", "eval_accuracy", "eval_tokens"}) {
    EXPECT_TRUE(lines[2].contains(key)) << key;
  }
  EXPECT_EQ(digests_of(run()).size(), 3u * 24);  // parameters and two moments, a layer at a time
}

TEST_F(Train, AnEvaluationThatIsNotFiniteDoesNotStopTheSaving) {
  expect_done(dew(train_notebook(run(), {"optimizer.lr=1e5", "run.steps=1"})));
  expect_done(dew({"inspect", run().string()}));
}

// The originals: 3.58 and 2.65 (Dew), 3.5 and 2.3 (plain JAX).
TEST_F(Train, NotebookLearnsAsTheOriginalsDo) {
  double at_10 = 0, at_20 = 0;
  for (int seed = 0; seed < 5; ++seed) {
    const Path path = run(std::to_string(seed));
    expect_done(dew(train_notebook(path, {"run.seed=" + std::to_string(seed)})));
    at_10 += loss_at(path, 10) / 5;
    at_20 += loss_at(path, 20) / 5;
  }
  EXPECT_GT(at_10, 3.2);
  EXPECT_LT(at_10, 3.8);
  EXPECT_GT(at_20, 1.9);
  EXPECT_LT(at_20, 2.8);
}

TEST_F(Train, SameBitsTwiceAndAnotherSeedOthers) {
  for (const char* name : {"a", "b"}) expect_done(dew(train_notebook(run(name), {"run.steps=5"})));
  expect_done(dew(train_notebook(run("c"), {"run.steps=5", "run.seed=1"})));
  EXPECT_EQ(digests_of(run("a")), digests_of(run("b")));
  EXPECT_NE(digests_of(run("a")), digests_of(run("c")));
}

TEST_F(Train, SameBitsOnOneCore) {
  expect_done(dew(train_notebook(run("all"), {"run.steps=5"})));
  expect_done(dew(train_notebook(run("one"), {"run.steps=5"}), {.one_core = true}));
  EXPECT_EQ(digests_of(run("all")), digests_of(run("one")));
}

TEST_F(Train, StopsAfterFiveUpdatesThatAreNotFinite) {
  const Outcome outcome = dew(train_notebook(run(), {"optimizer.lr=1e38", "run.steps=100"}));
  EXPECT_EQ(outcome.status, 6) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "update skipped")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "dew: error: 5 updates in a row")) << outcome.err;
  EXPECT_TRUE(contains(read_text(run() / "log.txt"), "dew: error: 5 updates"));
}

struct ResumeCase {
  const char* name;
  Words overrides;
};

class Resume : public Train, public testing::WithParamInterface<ResumeCase> {};

TEST_P(Resume, EqualsTheUninterruptedRun) {
  const auto train = [&](const char* name, const char* steps) {
    Words overrides = GetParam().overrides;
    overrides.push_back(std::string("run.steps=") + steps);
    const Outcome outcome = dew(train_notebook(run(name), overrides));
    expect_done(outcome);
    return outcome.err;
  };
  train("whole", "20");
  train("parts", "7");
  EXPECT_TRUE(contains(train("parts", "20"), "Resumed from step 7 in " + run("parts").string()));
  EXPECT_EQ(digests_of(run("parts")), digests_of(run("whole")));
  EXPECT_EQ(loss_at(run("parts"), 20), loss_at(run("whole"), 20));
}

const ResumeCase kResumeCases[] = {
    {"Plain", {}},
    {"Accumulation", {"data.accumulate=3"}},
    {"MicroBatch", {"data.micro_batch=5"}},
    {"Average", {"optimizer.ema_decay=0.9"}},
    {"DropoutClippingSchedule",
     {"model.dropout=0.1", "optimizer.clip_norm=0.5", "schedule.warmup_steps=9"}},
    {"Lion", {"optimizer.name=lion", "optimizer.lr=1e-4"}},
    {"Sgd", {"optimizer.name=sgd", "optimizer.lr=0.1"}},
    {"Bf16", {"precision.compute=bf16"}},
};

INSTANTIATE_TEST_SUITE_P(All, Resume, testing::ValuesIn(kResumeCases),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_F(Train, ResumeAtTheTargetDoesNothing) {
  expect_done(dew(train_notebook(run(), {"run.steps=3"})));
  const auto checkpoints = snapshot(run() / "checkpoints");
  const std::string metrics = read_text(run() / "metrics.jsonl");
  const Outcome again = dew(train_notebook(run(), {"run.steps=3"}));
  expect_done(again);
  EXPECT_FALSE(contains(again.err, "Training from"));
  EXPECT_EQ(snapshot(run() / "checkpoints"), checkpoints);
  EXPECT_EQ(read_text(run() / "metrics.jsonl"), metrics);
}

// Lines that a killed process wrote after its last checkpoint are written again.
TEST_F(Train, MetricsHaveEachStepOnce) {
  expect_done(dew(train_notebook(run(), {"run.steps=6", "run.log_every=2"})));
  std::ofstream(run() / "metrics.jsonl", std::ios::app) << R"({"step": 8, "loss": 1.0})"
                                                        << "\n"
                                                        << R"({"step": 10, "lo)";
  expect_done(dew(train_notebook(run(), {"run.steps=12", "run.log_every=2"})));
  std::vector<int> steps;
  for (const Json& line : metrics_of(run())) {
    if (line.contains("loss")) steps.push_back(line["step"]);
  }
  EXPECT_EQ(steps, (std::vector<int>{2, 4, 6, 8, 10, 12}));
}

TEST_F(Train, KeepsTheNewestCheckpoints) {
  expect_done(dew(train_notebook(run(), {"run.checkpoint_every=4", "run.keep=2"})));
  EXPECT_EQ(list_directory(run() / "checkpoints", ErrorCode::internal),
            (std::vector<std::string>{"step_00000016", "step_00000020"}));
}

TEST_F(Train, ChangedRateIsTold) {
  expect_done(dew(train_notebook(run(), {"run.steps=2"})));
  const Outcome outcome = dew(train_notebook(run(), {"run.steps=4", "optimizer.lr=5e-4"}));
  expect_done(outcome);
  EXPECT_TRUE(contains(outcome.err, "optimizer.lr was 0.001, is 0.0005")) << outcome.err;
}

TEST_F(Train, SignalsSaveAndEnd) {
  for (const int number : {SIGINT, SIGTERM}) {
    const Path path = run(std::to_string(number));
    Running running(train_notebook(path, {"run.steps=1000000"}));
    ASSERT_TRUE(running.wait_for("step 10:"));
    running.signal(number);
    const Outcome outcome = running.finish();
    EXPECT_EQ(outcome.status, 128 + number) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "Stopped by SIG")) << outcome.err;
    EXPECT_GT(digests_of(path).size(), 0u);
    const int step = metrics_of(path).back()["step"];
    expect_done(dew(train_notebook(path, {"run.steps=" + std::to_string(step + 1)})));
  }
}

TEST_F(Train, KilledRunLeavesNoLock) {
  Running running(train_notebook(run(), {"run.steps=1000000", "run.checkpoint_every=10"}));
  ASSERT_TRUE(running.wait_for("step 10:"));
  expect_error(dew(train_notebook(run())), 2, "another process is training in");
  std::filesystem::rename(run() / "log.txt", run() / "log.old");  // as those who rotate logs do
  expect_error(dew(train_notebook(run())), 2, "another process is training in");
  ASSERT_TRUE(running.wait_for("step 30:"));
  running.signal(SIGKILL);
  EXPECT_EQ(running.finish().status, 128 + SIGKILL);
  const Outcome outcome = dew(train_notebook(run(), {"run.steps=1000"}));
  expect_done(outcome);
  EXPECT_TRUE(contains(outcome.err, "Resumed from step")) << outcome.err;
}

TEST_F(Train, StandardOutputIsNotNeeded) {
  const Words words = train_notebook(run(), {"run.steps=2"});
  expect_done(dew(words, {.close_stdout = true}));
  EXPECT_GT(digests_of(run()).size(), 0u);
}

TEST_F(Train, QuietSaysNothingButTheLogHasAll) {
  const Outcome outcome = dew(train_notebook(run(), {"run.steps=2", "--quiet"}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
  EXPECT_TRUE(contains(read_text(run() / "log.txt"), "step 2: loss"));
}

TEST_F(Train, DumpHasProgramsAndPlans) {
  const Path dump = directory_ / "dump/here";
  expect_done(dew(train_notebook(run(), {"run.steps=1", "--dump", dump.string()})));
  EXPECT_GT(list_directory(dump, ErrorCode::internal).size(), 5u);
}

// ---- eval

// Ten steps after the first one, on both threads, and what the table says adds up to all of it.
TEST_F(Train, ProfileIsATableAndATrace) {
  const Outcome outcome = dew(
      train_notebook(run(), {"--profile", "run.steps=14", "devices.spec=cpu:2", "mesh.fsdp=2"}));
  expect_done(outcome);
  EXPECT_TRUE(contains(outcome.err, "Profile of 10 step(s), ")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "threads waiting for each other\n")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "update: adamw")) << outcome.err;
  double share = 0;
  std::istringstream lines(outcome.err.substr(outcome.err.find("program: op (kernel)\n")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && contains(line, "%  "))
    share += std::stod(line.substr(0, line.find('%')));
  EXPECT_NEAR(share, 100, 5);

  const Json trace = Json::parse(read_text(run() / "profile.json"));
  std::set<std::string> programs, kinds;
  std::set<int> threads;
  double end_of_thread[64] = {};
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    programs.insert(event["args"]["program"]);
    kinds.insert(event["cat"]);
    const int thread = event["tid"];
    threads.insert(thread);
    EXPECT_GE(event["ts"].get<double>(), end_of_thread[thread] - 1e-3);  // one after another
    end_of_thread[thread] = event["ts"].get<double>() + event["dur"].get<double>();
    EXPECT_EQ(event["args"]["devices"], 2);
  }
  EXPECT_TRUE(programs.contains("update"));
  EXPECT_TRUE(kinds.contains("dot") && kinds.contains("attention") && kinds.contains("fused"));
  EXPECT_TRUE(threads.contains(0));
}

TEST_F(Train, ProfileOfOneStep) {
  const Outcome outcome = dew(train_notebook(run(), {"--profile", "run.steps=1"}));
  expect_done(outcome);
  EXPECT_TRUE(contains(outcome.err, "Profile of 1 step(s), ")) << outcome.err;
}

TEST_F(Train, EvalEqualsTheTrainersOwn) {
  expect_done(dew(train_notebook(run())));
  const Json trained = metrics_of(run()).back();
  for (const Path& model : {run(), run() / "checkpoints/step_00000020"}) {
    const Outcome outcome =
        dew({"eval", model.string(), "--data", "tests/data/notebook-tokens", "--json"});
    expect_done(outcome);
    const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
    EXPECT_EQ(json.size(), 4u);
    EXPECT_EQ(json["loss"], trained["eval_loss"]);
    EXPECT_EQ(json["perplexity"], trained["eval_perplexity"]);
    EXPECT_EQ(json["accuracy"], trained["eval_accuracy"]);
    EXPECT_EQ(json["tokens"], 1920);  // 60 windows of 1,950 ids
    EXPECT_TRUE(contains(outcome.err, "29 ids after the last whole window")) << outcome.err;
  }
}

TEST_F(Train, EvalOnMeshesIsTheSame) {
  expect_done(dew(train_notebook(run(), {"layout.min_shard=1"})));
  const Json trained = metrics_of(run()).back();
  for (const Words& mesh :
       {Words{"--devices", "cpu:3"}, Words{"--devices", "cpu:8", "--mesh", "fsdp=8"},
        Words{"--devices", "cpu:4", "--mesh", "fsdp=2,tensor=2"}}) {
    Words words = {"eval",   run().string(), "--data", "tests/data/notebook-tokens",
                   "--json", "--quiet"};
    words.insert(words.end(), mesh.begin(), mesh.end());
    const Outcome outcome = dew(words);
    expect_done(outcome);
    const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
    EXPECT_NEAR(json["loss"], trained["eval_loss"], 1e-5);
    EXPECT_EQ(json["tokens"], 1920);
  }
}

TEST_F(Train, EvalAsText) {
  expect_done(dew(train_notebook(run(), {"run.steps=2"})));
  const Words eval = {"eval", run().string(), "--data", "tests/data/notebook-tokens"};
  const Outcome outcome = dew(eval);
  expect_done(outcome);
  for (const char* word : {"loss", "perplexity", "accuracy", "bits per byte", "tokens"}) {
    EXPECT_TRUE(contains(outcome.out, word)) << outcome.out;
  }
  Words limited = eval;
  limited.insert(limited.end(), {"--batches", "1", "--quiet"});
  EXPECT_TRUE(contains(dew(limited).out, "tokens         512\n"));
  EXPECT_EQ(dew(limited).err, "");
}

}  // namespace
}  // namespace dew
