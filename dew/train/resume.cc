#include "dew/train/resume.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "dew/base/digest.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/train/config.h"

namespace dew {
namespace {

void check_trustworthy(const NewestCheckpoint& newest, const Path& directory, Resume resume) {
  const bool must = resume == Resume::must;
  std::vector<std::string> problems;
  for (const CheckpointEntry& e : newest.skipped) problems.push_back(e.problem);
  if (newest.found && must && !problems.empty()) {
    fail(ErrorCode::checkpoint,
         format("the newest checkpoint is damaged: {}", fmt::join(problems, "; ")),
         format("resume \"auto\" goes on from step {}", newest.found->step));
  }
  if (newest.found || (problems.empty() && !must)) return;
  const std::string what = format("no complete checkpoint in {}", directory.string());
  fail(ErrorCode::checkpoint,
       problems.empty() ? what : format("{}: {}", what, fmt::join(problems, "; ")),
       problems.empty() ? "" : "move them away to begin anew");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Every process reads a part of the bytes, and all come to the same answer.
std::unique_ptr<CheckpointReader> verify_together(Processes& processes, CheckpointEntry& entry) {
  std::vector<std::string> found;
  std::unique_ptr<CheckpointReader> reader =
      open_checkpoint(entry, [&](const CheckpointReader& opened) {
        return found = opened.problems_of_share(processes.rank(), processes.count());
      });
  if (found.empty() && !entry.problem.empty()) found.push_back(entry.problem);
  std::vector<std::string> all;
  for (const std::string& text :
       processes.exchange(format("{}", fmt::join(found, "\n")), "the verifying of a checkpoint")) {
    for (std::string& line : lines_of(text)) {
      if (std::ranges::find(all, line) == all.end()) all.push_back(std::move(line));
    }
  }
  entry.problem = format("{}", fmt::join(all, "; "));
  if (!all.empty()) reader.reset();
  return reader;
}

}  // namespace

DataState data_state(const WindowData& data, std::int64_t position) {
  const DataIdentity id = data.identity();
  return {.position = position,
          .corpus = id.corpus,
          .records = id.records,
          .seq_len = id.seq_len,
          .stride = id.stride,
          .shuffle = id.shuffle,
          .seed = id.seed};
}

std::unique_ptr<CheckpointReader> find_checkpoint(
    Processes& processes, const Path& directory, Resume resume,
    const std::function<void(const std::string&)>& warn) {
  const std::string names = first_says(processes, "the checkpoints that there are", [&] {
    return format("{}", fmt::join(checkpoint_names(directory), "\n"));
  });
  const std::vector<std::string> ascending = lines_of(names);
  NewestCheckpoint newest;
  for (auto name = ascending.rbegin(); name != ascending.rend() && !newest.found; ++name) {
    CheckpointEntry entry = named_checkpoint(directory, *name);
    newest.reader = verify_together(processes, entry);
    if (newest.reader != nullptr) {
      newest.found = std::move(entry);
    } else {
      newest.skipped.push_back(std::move(entry));
    }
  }
  check_trustworthy(newest, directory, resume);
  if (newest.found && processes.first()) {
    for (const CheckpointEntry& e : newest.skipped) warn(passed_over(e));
  }
  return std::move(newest.reader);
}

void expect_same_run(const CheckpointReader& reader, std::uint64_t seed,
                     const models::TransformerConfig& model, const WindowData& data) {
  const CheckpointInfo& info = reader.info();
  std::vector<std::string> changes;
  const auto compare = [&](const char* what, const auto& before, const auto& now) {
    if (before != now) changes.push_back(format("{} was {}, is {}", what, before, now));
  };
  compare("run.seed", info.seed, seed);
  // What the backward pass makes again is no part of the model.
  TrainConfig before, now;
  before.model = models::resolved(parse_model(info.model, "the checkpoint's model"));
  now.model = model;
  before.model.remat = now.model.remat;
  for (const ConfigChange& change : config_changes(before, now)) {
    compare(change.key.c_str(), change.before, change.now);
  }
  const DataState here = data_state(data, info.data.position);
  compare("the training data's fingerprint", digest_text(info.data.corpus),
          digest_text(here.corpus));
  compare("its number of records", info.data.records, here.records);
  compare("data.seq_len", info.data.seq_len, here.seq_len);
  compare("data.stride", info.data.stride, here.stride);
  compare("data.shuffle", info.data.shuffle, here.shuffle);
  compare("the seed of its order", info.data.seed, here.seed);
  if (changes.empty()) return;
  fail(ErrorCode::checkpoint,
       format("cannot resume from {}: {}", reader.path().parent_path().string(),
              fmt::join(changes, "; ")),
       "set them back, or train in another run.dir");
}

}  // namespace dew
