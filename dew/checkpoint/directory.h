// The checkpoints of a run: finding the newest one that is complete, and keeping the last few.
//
// One directory a step, "step_00000400". With the suffix .partial it is what a writer has not
// finished or a retention is removing, and anybody may remove it; with .broken it was found damaged
// and set aside when its step was saved again. Steps are compared as numbers, nothing looks at
// times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"

namespace dew {

inline constexpr const char* kPartialSuffix = ".partial";
inline constexpr const char* kBrokenSuffix = ".broken";

std::string step_name(std::int64_t step);  // "step_00000400"

struct CheckpointEntry {
  std::int64_t step = 0;
  Path path;
  std::string problem;  // why it is not complete; empty: it is
  std::string run;      // that wrote it, where complete

  bool complete() const { return problem.empty(); }
};

// How much of a checkpoint is read before it counts as complete: manifest and file sizes, or every
// byte.
enum class Verify { structure, everything };

// All of them, ascending. A missing directory has none.
std::vector<CheckpointEntry> list_checkpoints(const Path& directory,
                                              Verify verify = Verify::structure);

struct NewestCheckpoint {
  std::optional<CheckpointEntry> found;
  std::vector<CheckpointEntry> skipped;  // newer ones that are not complete, newest first
};
NewestCheckpoint newest_checkpoint(const Path& directory, Verify verify = Verify::structure);

// The checkpoint that a path given by a user means: itself, or the newest complete one of a run
// directory. Throws ErrorCode::checkpoint, naming what was found instead.
Path resolve_checkpoint(const Path& model);
// The directory of the checkpoints of a run.
Path checkpoints_of_run(const Path& run_directory);

// Removes all but the newest `keep` complete checkpoints of the run `run` (all complete ones if
// empty); 0 keeps all. Never touches what it cannot read as complete, what another run wrote, or
// the newest complete one. Call it after a commit. Returns what it removed.
std::vector<Path> apply_retention(const Path& directory, std::int64_t keep,
                                  const std::string& run = {});

// Removes what killed writers left. REQUIRES: no other writer is at work in the directory.
void clean_leftovers(const Path& directory);

}  // namespace dew
