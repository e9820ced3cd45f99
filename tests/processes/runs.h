// What the tests of runs that are disturbed share: a small run, and what must hold after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "dew/checkpoint/directory.h"
#include "tests/cli/program.h"

namespace dew {

// A number of DEW_KILLS and the like.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Every kind of state that a resume has to bring back: accumulation, an average, dropout, a
// schedule, clipping. Lines, evaluations and checkpoints are due at different steps.
// `more` takes the place of what is said here of the same keys.
inline Words disturbed_run(const Path& run, std::int64_t steps, const Words& more = {}) {
  Words overrides = more;
  for (const std::string& word :
       Words{"run.log_every=2", "run.eval_every=5", "run.checkpoint_every=3", "data.val_batches=1",
             "data.accumulate=3", "optimizer.ema_decay=0.9", "optimizer.clip_norm=0.5",
             "model.dropout=0.1", "schedule.name=warmup_cosine", "schedule.warmup_steps=9"}) {
    const std::string key = word.substr(0, word.find('=') + 1);
    const auto said = [&](const std::string& other) { return other.starts_with(key); };
    if (std::ranges::none_of(more, said)) overrides.push_back(word);
  }
  overrides.push_back("run.steps=" + std::to_string(steps));
  return train_notebook(run, overrides);
}

// A directory in memory where there is one: thousands of files are synced.
class MemoryDirectory {
 public:
  MemoryDirectory() {
    std::string name = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/dew-test-XXXXXX"
                                                                 : "/tmp/dew-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;
  ~MemoryDirectory() { remove_quietly(path_); }

  const Path& path() const { return path_; }
  Path operator/(std::string_view name) const { return path_ / name; }

 private:
  Path path_;
};

// Nothing that is found under the name of a checkpoint may be anything but whole.
inline void expect_only_whole_checkpoints(const Path& run) {
  for (const CheckpointEntry& entry :
       list_checkpoints(checkpoints_of_run(run), Verify::everything)) {
    EXPECT_EQ(entry.problem, "");
  }
}

// Steps of the lines of metrics.jsonl that have this member, each of which is there once.
inline std::set<std::int64_t> steps_with(const Path& run, const char* member) {
  std::set<std::int64_t> steps;
  for (const Json& line : metrics_of(run)) {
    if (!line.contains(member)) continue;
    const std::int64_t step = line["step"];
    EXPECT_TRUE(steps.insert(step).second) << member << " of step " << step << " is there twice";
  }
  return steps;
}

inline std::set<std::int64_t> multiples(std::int64_t period, std::int64_t last) {
  std::set<std::int64_t> steps = {last};
  for (std::int64_t step = period; step < last; step += period) steps.insert(step);
  return steps;
}

}  // namespace dew
