#include "dew/checkpoint/directory.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "dew/base/format.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::string_view kPrefix = "step_";

// "step_9" and "step_00000009" are both step 9.
std::optional<std::int64_t> parse_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool digits = error == std::errc() && end == name.data() + name.size() && name[0] != '-';
  return digits ? std::optional(step) : std::nullopt;
}

std::vector<CheckpointEntry> candidates(const Path& directory) {
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : checkpoint_names(directory))
    entries.push_back(named_checkpoint(directory, name));
  return entries;
}

std::unique_ptr<CheckpointReader> examine(CheckpointEntry& entry, Verify verify) {
  return open_checkpoint(entry, [&](const CheckpointReader& reader) {
    return verify == Verify::everything ? reader.problems_of_share(0, 1)
                                        : std::vector<std::string>();
  });
}

Path partial_of(const Path& path) {
  Path partial = path;
  partial += kPartialSuffix;
  return partial;
}

// The first `count` of `all`, or all.
std::vector<CheckpointEntry> first_ones(std::vector<CheckpointEntry> all, std::int64_t count) {
  if (std::ssize(all) > count) all.erase(all.begin() + count, all.end());
  return all;
}

// Those that no rule keeps. `all` are complete and ascend.
std::vector<CheckpointEntry> unwanted(std::vector<CheckpointEntry> all, const Retention& retention,
                                      std::int64_t step) {
  std::set<Path> kept;
  const auto keep = [&](const std::vector<CheckpointEntry>& entries) {
    for (const CheckpointEntry& entry : entries) kept.insert(entry.path);
  };
  const std::vector<CheckpointEntry> newest(all.rbegin(), all.rend());
  keep(first_ones(newest, retention.newest));
  std::vector<CheckpointEntry> best = newest;
  std::erase_if(best, [](const CheckpointEntry& entry) { return !entry.eval_loss; });
  std::ranges::stable_sort(best, {}, [](const CheckpointEntry& entry) { return *entry.eval_loss; });
  keep(first_ones(std::move(best), retention.best));
  std::erase_if(all, [&](const CheckpointEntry& entry) {
    const bool milestone = retention.every > 0 && entry.step % retention.every == 0;
    return milestone || entry.step == step || kept.contains(entry.path);
  });
  return all;
}

}  // namespace

std::string step_name(std::int64_t step) { return format("{}{:08}", kPrefix, step); }

std::vector<std::string> checkpoint_names(const Path& directory) {
  std::vector<std::string> names;
  if (file_kind(directory, kCode) == FileKind::missing) return names;
  for (const std::string& name : list_directory(directory, kCode)) {
    if (parse_step(name) && file_kind(directory / name, kCode) == FileKind::directory)
      names.push_back(name);
  }
  std::ranges::stable_sort(names, {}, [](const std::string& name) { return parse_step(name); });
  return names;
}

CheckpointEntry named_checkpoint(const Path& directory, const std::string& name) {
  return {.step = parse_step(name).value_or(0),
          .path = directory / name,
          .problem = {},
          .run = {},
          .eval_loss = {}};
}

std::unique_ptr<CheckpointReader> open_checkpoint(CheckpointEntry& entry, const VerifyBy& verify) {
  try {
    auto reader = std::make_unique<CheckpointReader>(entry.path);
    const std::int64_t step = reader->info().clocks.step;
    if (step != entry.step) {
      fail(kCode, format("'{}' holds step {}", entry.path.string(), step));
    }
    const std::vector<std::string> problems = verify(*reader);
    if (!problems.empty()) fail(kCode, format("{}", fmt::join(problems, "; ")));
    entry.run = reader->info().run;
    entry.eval_loss = reader->info().eval_loss;
    return reader;
  } catch (const Error& error) {
    entry.problem = error.what();
    return nullptr;
  }
}

std::vector<CheckpointEntry> list_checkpoints(const Path& directory, Verify verify) {
  std::vector<CheckpointEntry> entries = candidates(directory);
  for (CheckpointEntry& entry : entries) examine(entry, verify);
  return entries;
}

NewestCheckpoint newest_checkpoint(const Path& directory, Verify verify) {
  NewestCheckpoint newest;
  std::vector<CheckpointEntry> entries = candidates(directory);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    newest.reader = examine(*entry, verify);
    if (newest.reader != nullptr) {
      newest.found = std::move(*entry);
      break;
    }
    newest.skipped.push_back(std::move(*entry));
  }
  return newest;
}

std::string passed_over(const CheckpointEntry& entry) {
  return format("step {} is passed over: {}", entry.step, entry.problem);
}

Path checkpoints_of_run(const Path& run_directory) { return run_directory / "checkpoints"; }

Path resolve_checkpoint(const Path& model, const std::function<void(const std::string&)>& warn) {
  if (file_kind(model, kCode) == FileKind::missing) {
    fail(kCode, format("'{}' does not exist", model.string()),
         "give a run directory, a checkpoint directory inside it, or a Hugging Face model "
         "directory");
  }
  if (file_kind(model / kManifestName, kCode) != FileKind::missing) return model;
  const NewestCheckpoint newest = newest_checkpoint(checkpoints_of_run(model));
  if (newest.found) {
    for (const CheckpointEntry& entry : newest.skipped) {
      if (warn) warn(passed_over(entry));
    }
    return newest.found->path;
  }
  if (!newest.skipped.empty()) {
    fail(kCode, format("'{}' has no complete checkpoint; the newest: {}", model.string(),
                       newest.skipped.front().problem));
  }
  fail(kCode, format("'{}' is no checkpoint ({} is missing) and no run directory with one",
                     model.string(), kManifestName));
}

std::vector<Path> apply_retention(const Path& directory, const Retention& retention,
                                  const std::string& run, std::int64_t step) {
  if (retention.newest <= 0) return {};
  std::vector<CheckpointEntry> mine = list_checkpoints(directory);
  std::erase_if(mine, [&](const CheckpointEntry& entry) {
    return !entry.complete() || entry.run != run || entry.step > step;
  });
  std::vector<Path> removed;
  for (const CheckpointEntry& entry : unwanted(std::move(mine), retention, step)) {
    // Renamed first, so that one half removed is never met under its name.
    remove_quietly(partial_of(entry.path));
    rename_file(entry.path, partial_of(entry.path), kCode);
    remove_quietly(partial_of(entry.path));
    removed.push_back(entry.path);
  }
  if (!removed.empty()) sync_directory(directory, kCode);
  return removed;
}

void clean_leftovers(const Path& directory) {
  for (const std::string& name : list_directory(directory, kCode)) {
    const std::string_view stem = name;
    if (!stem.ends_with(kPartialSuffix)) continue;
    if (parse_step(stem.substr(0, stem.size() - std::string_view(kPartialSuffix).size()))) {
      remove_quietly(directory / name);
    }
  }
}

}  // namespace dew
