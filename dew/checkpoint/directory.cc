#include "dew/checkpoint/directory.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "dew/base/format.h"
#include "dew/checkpoint/reader.h"

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

// Names only: nothing is opened.
std::vector<CheckpointEntry> candidates(const Path& directory) {
  std::vector<CheckpointEntry> entries;
  if (file_kind(directory, kCode) == FileKind::missing) return entries;
  for (const std::string& name : list_directory(directory, kCode)) {
    const auto step = parse_step(name);
    if (step && file_kind(directory / name, kCode) == FileKind::directory) {
      entries.push_back({.step = *step, .path = directory / name, .problem = {}, .run = {}});
    }
  }
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

void examine(CheckpointEntry& entry, Verify verify) {
  try {
    const CheckpointReader reader(entry.path);
    const std::int64_t step = reader.info().clocks.step;
    if (step != entry.step) {
      entry.problem = format("'{}' holds step {}", entry.path.string(), step);
      return;
    }
    if (verify == Verify::everything) reader.verify_all();
    entry.run = reader.info().run;
  } catch (const Error& error) {
    entry.problem = error.what();
  }
}

Path partial_of(const Path& path) {
  Path partial = path;
  partial += kPartialSuffix;
  return partial;
}

}  // namespace

std::string step_name(std::int64_t step) { return format("{}{:08}", kPrefix, step); }

std::vector<CheckpointEntry> list_checkpoints(const Path& directory, Verify verify) {
  std::vector<CheckpointEntry> entries = candidates(directory);
  for (CheckpointEntry& entry : entries) examine(entry, verify);
  return entries;
}

NewestCheckpoint newest_checkpoint(const Path& directory, Verify verify) {
  NewestCheckpoint newest;
  std::vector<CheckpointEntry> entries = candidates(directory);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    examine(*entry, verify);
    if (entry->complete()) {
      newest.found = std::move(*entry);
      break;
    }
    newest.skipped.push_back(std::move(*entry));
  }
  return newest;
}

Path checkpoints_of_run(const Path& run_directory) { return run_directory / "checkpoints"; }

Path resolve_checkpoint(const Path& model) {
  if (file_kind(model, kCode) == FileKind::missing) {
    fail(kCode, format("'{}' does not exist", model.string()),
         "give a run directory, a checkpoint directory inside it, or a Hugging Face model "
         "directory");
  }
  if (file_kind(model / kManifestName, kCode) != FileKind::missing) return model;
  const NewestCheckpoint newest = newest_checkpoint(checkpoints_of_run(model));
  if (newest.found) return newest.found->path;
  if (!newest.skipped.empty()) {
    fail(kCode, format("'{}' has no complete checkpoint; the newest: {}", model.string(),
                       newest.skipped.front().problem));
  }
  fail(kCode, format("'{}' is no checkpoint ({} is missing) and no run directory with one",
                     model.string(), kManifestName));
}

std::vector<Path> apply_retention(const Path& directory, std::int64_t keep,
                                  const std::string& run) {
  std::vector<Path> removed;
  if (keep <= 0) return removed;
  std::vector<CheckpointEntry> mine = list_checkpoints(directory);
  std::erase_if(mine, [&](const CheckpointEntry& entry) {
    return !entry.complete() || (!run.empty() && entry.run != run);
  });
  const auto count = static_cast<std::int64_t>(mine.size());
  for (std::int64_t i = 0; i < count - keep; ++i) {
    const Path& path = mine[static_cast<std::size_t>(i)].path;
    // Renamed first, so that one half removed is never met under its name.
    remove_quietly(partial_of(path));
    rename_file(path, partial_of(path), kCode);
    remove_quietly(partial_of(path));
    removed.push_back(path);
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
