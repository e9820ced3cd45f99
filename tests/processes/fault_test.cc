// Every call by which a run changes the file system fails in turn: once with EIO, and for good, as
// a full disk does, with ENOSPC.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <mutex>
#include <optional>

#include "dew/cli/cli.h"
#include "tests/processes/runs.h"

namespace dew {
namespace {

constexpr std::int64_t kSteps = 6;

// A call by what it does to which file, and the how manieth of that: the same in every run, however
// the writing thread and the steps take turns.
struct Call {
  FileCall kind;
  std::string path;
  int number = 1;
  auto operator<=>(const Call&) const = default;
};

struct Faults {
  std::mutex mutex;
  std::string root;            // what is below it counts
  std::map<Call, int> counts;  // by kind and path
  std::vector<Call> calls;     // all that were seen
  std::optional<Call> at;      // fails
  int error = 0;
  bool for_good = false, failed = false;
} faults;

int fault(FileCall kind, const Path& path) {
  const std::scoped_lock lock(faults.mutex);
  const std::string text = path.string();
  if (!text.starts_with(faults.root)) return 0;
  Call call = {kind, text.substr(faults.root.size())};
  call.number = ++faults.counts[call];
  faults.calls.push_back(call);
  faults.failed = faults.failed || call == faults.at;
  return call == faults.at || (faults.for_good && faults.failed) ? faults.error : 0;
}

class Fault : public testing::Test {
 protected:
  Path run() const { return root_ / "run"; }

  Words words(std::int64_t steps = kSteps) const {
    return disturbed_run(
        run(), steps,
        {"run.keep=2", "run.checkpoint_every=2", "run.eval_every=3", "model.emb_features=16",
         "model.num_layers=1", "model.num_heads=2", "data.seq_len=8", "data.global_batch=3"});
  }

  // In this process, so that calls can fail.
  Outcome train(std::int64_t steps = kSteps) {
    faults.counts.clear();
    faults.calls.clear();
    faults.failed = false;
    faults.root = root_.path().string() + "/";
    testing::internal::CaptureStderr();
    set_file_fault(fault);
    const int status = cli::run(words(steps));
    set_file_fault(nullptr);
    return {status, "", testing::internal::GetCapturedStderr()};
  }

  void begin_from(const Path& saved) {
    remove_quietly(run());
    if (!saved.empty()) {
      std::filesystem::copy(saved, run(), std::filesystem::copy_options::recursive);
    }
  }

  void expect_one_error(const Outcome& outcome, const Call& call) {
    // Only the run's directory itself is an argument.
    const bool argument = call.kind == FileCall::make_directory && call.path == "run";
    EXPECT_EQ(outcome.status, argument ? 2 : 5) << outcome.err;
    const std::size_t at = outcome.err.find("dew: error: ");
    ASSERT_NE(at, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("dew: error: ", at + 1), std::string::npos) << outcome.err;
    const char* reason = faults.error == EIO ? "Input/output error" : "No space left on device";
    EXPECT_NE(outcome.err.find(reason, at), std::string::npos) << outcome.err;
  }

  // Makes every call of a run fail that begins with what is in `saved`. Returns how many there
  // were.
  int fail_everything(const Path& saved, std::int64_t newest_before) {
    faults.at.reset();
    begin_from(saved);
    expect_done(train());
    const std::vector<Call> calls = faults.calls;
    const auto digests = digests_of(run());
    for (const Call& call : calls) {
      for (const bool for_good : {false, true}) {
        SCOPED_TRACE("call " + std::to_string(call.number) + " of kind " +
                     std::to_string(static_cast<int>(call.kind)) + " to " + call.path +
                     (for_good ? " and all after it" : ""));
        begin_from(saved);
        faults.at = call;
        faults.error = for_good ? ENOSPC : EIO;
        faults.for_good = for_good;
        expect_one_error(train(), call);
        EXPECT_TRUE(faults.failed);
        expect_only_whole_checkpoints(run());
        const NewestCheckpoint newest = newest_checkpoint(checkpoints_of_run(run()));
        EXPECT_GE(newest.found ? newest.found->step : 0, newest_before);
        faults.at.reset();
        faults.for_good = false;
        expect_done(train());
        EXPECT_EQ(digests_of(run()), digests);
        expect_lines();
        if (HasFailure()) return 0;
      }
    }
    return static_cast<int>(calls.size());
  }

  // A run that stops in between may have a line more.
  void expect_lines() {
    for (const auto& [member, period] : {std::pair{"loss", 2}, std::pair{"eval_loss", 3}}) {
      const std::set<std::int64_t> there = steps_with(run(), member);
      for (const std::int64_t step : multiples(period, kSteps)) {
        EXPECT_TRUE(there.contains(step)) << member << " of step " << step;
      }
    }
  }

  MemoryDirectory root_;
};

TEST_F(Fault, EveryCallOfANewRun) {
  const int calls = fail_everything({}, 0);
  EXPECT_GT(calls, 40);
  std::printf("%d calls failed in turn, in two ways each\n", calls);
}

TEST_F(Fault, EveryCallOfARunThatGoesOn) {
  faults.at.reset();
  expect_done(train(2));
  rename_file(run(), root_ / "saved", ErrorCode::internal);
  const int calls = fail_everything(root_ / "saved", 2);
  EXPECT_GT(calls, 40);
  std::printf("%d calls failed in turn, in two ways each\n", calls);
}

// ---- a loss of power: what a checkpoint has seen lasts before it does

// The last step of a line that is sure to be there, and at each checkpoint's renaming the two.
struct Lasting {
  std::int64_t line = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> checkpoints;  // step, line
} lasting;

int note_what_lasts(FileCall kind, const Path& path) {
  if (kind == FileCall::sync && path.filename() == "metrics.jsonl") {
    for (const Json& line : metrics_of(path.parent_path())) lasting.line = line["step"];
  }
  const std::string name = path.filename().string();
  if (kind == FileCall::rename && name.starts_with("step_") && !name.ends_with(".partial"))
    lasting.checkpoints.emplace_back(std::stoll(name.substr(5)), lasting.line);
  return 0;
}

TEST_F(Fault, LinesLastBeforeTheirCheckpoint) {
  for (const char* snapshots : {"run.snapshots=true", "run.snapshots=false"}) {
    lasting = {};
    remove_quietly(run());
    Words arguments = words(7);
    arguments.insert(arguments.end(), {"run.log_every=1", snapshots, "--quiet"});
    std::erase(arguments, "run.log_every=2");
    set_file_fault(note_what_lasts);
    EXPECT_EQ(cli::run(arguments), 0);
    set_file_fault(nullptr);
    EXPECT_EQ(lasting.checkpoints.size(), 4u);  // 2, 4, 6 and the last
    for (const auto& [step, line] : lasting.checkpoints) EXPECT_GE(line, step);
  }
}

// ---- signals while a checkpoint is written

int signal_in_snapshot(FileCall kind, const Path& path) {
  const bool shard = path.string().find("step_00000002.partial/shard") != std::string::npos;
  if (kind == FileCall::write && shard) ::raise(SIGTERM);
  return 0;
}

TEST_F(Fault, ASignalWhileASnapshotIsWritten) {
  const pid_t child = ::fork();
  if (child == 0) {
    set_file_fault(signal_in_snapshot);
    ::_exit(cli::run(words()));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  expect_only_whole_checkpoints(run());
  EXPECT_GE(newest_checkpoint(checkpoints_of_run(run())).found->step, 2);
  expect_done(dew(words()));
  expect_lines();
  const auto digests = digests_of(run());
  remove_quietly(run());
  expect_done(dew(words()));
  EXPECT_EQ(digests_of(run()), digests);
}

}  // namespace
}  // namespace dew
