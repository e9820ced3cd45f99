// The checkpoints of a run: finding the newest one that is complete, and keeping the last few.
//
// One directory a step, "step_00000400". With the suffix .partial it is what a writer has not
// finished or a retention is removing, and anybody may remove it; with .broken it was found damaged
// and set aside when its step was saved again. Steps are compared as numbers, nothing looks at
// times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/manifest.h"
#include "dew/checkpoint/reader.h"

namespace dew {

inline constexpr const char* kPartialSuffix = ".partial";
inline constexpr const char* kBrokenSuffix = ".broken";

std::string step_name(std::int64_t step);  // "step_00000400"

struct CheckpointEntry {
  std::int64_t step = 0;
  Path path;
  std::string problem;              // why it is not complete; empty: it is
  std::string run;                  // that wrote it, where complete
  std::optional<double> eval_loss;  // of its state, where complete and evaluated

  bool complete() const { return problem.empty(); }
};

// How much of a checkpoint is read before it counts as complete: manifest and file sizes, or every
// byte.
enum class Verify { structure, everything };

// All of them, ascending. A missing directory has none.
std::vector<CheckpointEntry> list_checkpoints(const Path& directory,
                                              Verify verify = Verify::structure);

// What directories of checkpoints are called there, ascending: names only, nothing is opened.
std::vector<std::string> checkpoint_names(const Path& directory);
CheckpointEntry named_checkpoint(const Path& directory, const std::string& name);
// Opens it; `verify` says what else is wrong with it, a line each. Null where it is not complete,
// and the entry says why.
using VerifyBy = std::function<std::vector<std::string>(const CheckpointReader&)>;
std::unique_ptr<CheckpointReader> open_checkpoint(CheckpointEntry& entry, const VerifyBy& verify);

struct NewestCheckpoint {
  std::optional<CheckpointEntry> found;
  std::unique_ptr<CheckpointReader> reader;  // of `found`, nullptr without it; as far verified
  std::vector<CheckpointEntry> skipped;      // newer ones that are not complete, newest first
};
NewestCheckpoint newest_checkpoint(const Path& directory, Verify verify = Verify::structure);

// The checkpoint that a path given by a user means: itself, or the newest complete one of a run
// directory; `warn` gets a line for each newer one that is not. Throws ErrorCode::checkpoint,
// naming what was found instead.
Path resolve_checkpoint(const Path& model,
                        const std::function<void(const std::string&)>& warn = {});
// Such a line: "step 400 is passed over: ...".
std::string passed_over(const CheckpointEntry& entry);
// The directory of the checkpoints of a run.
Path checkpoints_of_run(const Path& run_directory);

// Which checkpoints stay: those that any of the rules wants.
struct Retention {
  std::int64_t newest = 3;  // so many of the newest; 0: all
  std::int64_t best = 0;    // so many with the lowest eval_loss, of equal ones the newer
  std::int64_t every = 0;   // those whose step is a multiple of it; 0: none
};

// Removes the other complete checkpoints of the run `run`. Call it after the commit of `step`. It
// never touches `step` itself, later ones (left from before the run was resumed from an earlier
// state; they do not count either), what it cannot read as complete, or what another run wrote.
// Returns what it removed.
std::vector<Path> apply_retention(const Path& directory, const Retention& retention,
                                  const std::string& run, std::int64_t step);

// Removes what killed writers left. REQUIRES: no other writer is at work in the directory.
void clean_leftovers(const Path& directory);

}  // namespace dew
