// Runs in several processes that mpirun starts: the same losses as in one, checkpoints for any
// number, signals.
#include <csignal>

#include "tests/processes/jobs.h"

namespace dew {
namespace {

class Job : public testing::Test {
 protected:
  Outcome run(const std::string& name, int processes, const Words& overrides) {
    return dew(train_notebook(directory_ / name, overrides), {.processes = processes});
  }

  MemoryDirectory directory_;
};

TEST_F(Job, LossesAreThoseOfOneProcess) {
  const Words common = {"run.steps=6", "run.log_every=1", "run.eval_every=3", "layout.min_shard=1"};
  const std::vector<Words> meshes = {
      {"devices.spec=cpu:4", "mesh.fsdp=4"},
      {"devices.spec=cpu:4"},
      {"devices.spec=cpu:8", "mesh.fsdp=2", "mesh.tensor=4", "data.global_batch=5"},
      {"devices.spec=cpu:4", "mesh.tensor=4", "data.global_batch=3", "data.accumulate=2"},
  };
  for (std::size_t m = 0; m < meshes.size(); ++m) {
    Words overrides = common;
    overrides.insert(overrides.end(), meshes[m].begin(), meshes[m].end());
    const std::string name = "mesh" + std::to_string(m);
    expect_done(run(name, 1, overrides));
    for (const int processes : {2, 4}) {
      SCOPED_TRACE(name + " on " + std::to_string(processes));
      const std::string other = name + "on" + std::to_string(processes);
      const Outcome outcome = run(other, processes, overrides);
      expect_done(outcome);
      EXPECT_NE(outcome.err.find("(" + std::to_string(processes) + " process(es))"),
                std::string::npos);
      for (const char* member : {"loss", "eval_loss", "eval_tokens", "grad_norm", "tokens"})
        expect_near(losses_of(directory_ / other, member), losses_of(directory_ / name, member));
    }
  }
}

TEST_F(Job, DevicesComeFromTheProcesses) {
  EXPECT_NE(run("each", 2, {"run.steps=1"}).err.find("'data': 2"), std::string::npos);
  EXPECT_NE(run("three", 2, {"run.steps=1", "devices.per_process=3"}).err.find("'data': 6"),
            std::string::npos);
  expect_one_reason(run("odd", 2, {"devices.spec=cpu:3"}), 2, {"3 devices", "2 processes"});
  expect_one_reason(run("list", 2, {"devices.per_process=[1,2]"}), 2, {"[1, 2]", "not built"});
  expect_one_reason(run("short", 4, {"devices.per_process=[1,1]"}), 2, {"2 processes", "are 4"});
}

// Written by 4 processes, gone on with by 1, 2, 4 and 8, and the other way round: the same batches.
TEST_F(Job, ARunGoesOnInAnyNumberOfProcesses) {
  const Words common = {"run.log_every=1",    "devices.spec=cpu:8",      "mesh.fsdp=4",
                        "layout.min_shard=1", "optimizer.ema_decay=0.9", "model.dropout=0.1"};
  const auto steps = [&](int last) {
    Words words = common;
    words.push_back("run.steps=" + std::to_string(last));
    return words;
  };
  expect_done(run("whole", 1, steps(8)));
  for (const auto& [first, second] : {std::pair{4, 1}, {4, 2}, {4, 4}, {4, 8}, {1, 4}, {2, 4}}) {
    const std::string name = std::to_string(first) + "then" + std::to_string(second);
    SCOPED_TRACE(name);
    expect_done(run(name, first, steps(4)));
    expect_only_whole_checkpoints(directory_ / name);
    const Outcome outcome = run(name, second, steps(8));
    expect_done(outcome);
    EXPECT_NE(outcome.err.find("Resumed from step 4"), std::string::npos) << outcome.err;
    expect_near(losses_of(directory_ / name), losses_of(directory_ / "whole"));
  }
}

TEST_F(Job, TheSameBitsAgain) {
  const Words overrides = {"run.steps=6", "devices.spec=cpu:4", "mesh.fsdp=2", "mesh.tensor=2",
                           "layout.min_shard=1"};
  expect_done(run("first", 2, overrides));
  expect_done(run("second", 2, overrides));
  EXPECT_EQ(digests_of(directory_ / "first"), digests_of(directory_ / "second"));
  // Stopped in the middle, it is the same run.
  Words half = overrides;
  half[0] = "run.steps=3";
  expect_done(run("halves", 2, half));
  expect_done(run("halves", 2, overrides));
  EXPECT_EQ(digests_of(directory_ / "halves"), digests_of(directory_ / "first"));
}

TEST_F(Job, EachProcessWritesItsShards) {
  expect_done(run("run", 4, {"run.steps=1", "devices.spec=cpu:4", "mesh.fsdp=4"}));
  const Path checkpoint = resolve_checkpoint(directory_ / "run");
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(std::filesystem::exists(
        checkpoint / ("shard-0000" + std::to_string(rank) + "-00000.safetensors")));
}

TEST_F(Job, Bf16AndReplicasChecked) {
  const Words overrides = {"run.steps=3",        "run.log_every=1", "precision.compute=bf16",
                           "devices.spec=cpu:4", "mesh.fsdp=2",     "layout.min_shard=1"};
  expect_done(run("one", 1, overrides));
  Words checked = overrides;
  checked.push_back("--check-replicas");
  expect_done(run("two", 2, checked));
  expect_near(losses_of(directory_ / "two"), losses_of(directory_ / "one"), 2e-2);
}

// fsdp lies inside of processes, data across: two of them hold each part.
TEST_F(Job, ReplicasAgreeEveryOtherStep) {
  const Outcome outcome = run("run", 2,
                              {"run.steps=5", "run.agree_every=2", "devices.spec=cpu:4",
                               "mesh.fsdp=2", "layout.min_shard=1"});
  expect_done(outcome);
  for (const int step : {1, 2, 3, 4, 5}) {
    const std::string line = "step " + std::to_string(step) + ": the 2 processes agree on the ";
    EXPECT_EQ(outcome.err.find(line) != std::string::npos, step % 2 == 0) << outcome.err;
  }
}

TEST_F(Job, EvaluationsToo) {
  expect_done(run("run", 1, {"run.steps=2"}));
  const Words eval = {"eval", (directory_ / "run").string(), "--data", "tests/data/notebook-tokens",
                      "--json"};
  const Outcome one = dew(eval);
  expect_done(one);
  Words on_four = eval;
  on_four.insert(on_four.end(), {"--devices", "cpu:4", "--mesh", "fsdp=2"});
  const Outcome four = dew(on_four, {.processes = 2});
  expect_done(four);
  const Json a = parse_json(one.out, "one", ErrorCode::internal),
             b = parse_json(four.out, "four", ErrorCode::internal);
  EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), 1e-5);
  EXPECT_EQ(a["tokens"], b["tokens"]);
}

// The programs of all processes are the same, and the first one writes its plans.
TEST_F(Job, DumpsOnce) {
  const Path dump = directory_ / "dump";
  expect_done(run("run", 4, {"run.steps=1", "--dump", dump.string()}));
  EXPECT_NE(read_text(dump / "plans.txt").find("all_reduce start"), std::string::npos);
  EXPECT_TRUE(std::ranges::all_of(list_directory(dump, ErrorCode::internal),
                                  [](const std::string& name) { return name.ends_with(".txt"); }));
}

TEST_F(Job, OtherCommandsRunInOne) {
  expect_one_reason(dew({"dispatch", "--mesh", "fsdp=2", "--global-batch", "4"}, {.processes = 2}),
                    2, {"dew dispatch runs in one process", "started 2"});
}

TEST_F(Job, ASignalToOneStopsAllWithACheckpoint) {
  for (const int rank : {0, 1}) {
    const Path path = directory_ / ("run" + std::to_string(rank));
    Running running(train_notebook(path, {"run.steps=1000000", "run.log_every=1"}),
                    {.processes = 2});
    ASSERT_TRUE(running.wait_for("step 3:"));
    running.signal_rank(rank, SIGTERM);
    const Outcome outcome = running.finish();
    EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.err;
    EXPECT_NE(outcome.err.find("Stopped by SIGTERM at step"), std::string::npos) << outcome.err;
    EXPECT_EQ(list_checkpoints(checkpoints_of_run(path), Verify::everything).size(), 1u);
    expect_only_whole_checkpoints(path);
  }
}

}  // namespace
}  // namespace dew
