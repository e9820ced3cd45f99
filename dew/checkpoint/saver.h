// Saves the states of a run, of all its processes, while steps go on or wait.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/snapshot.h"
#include "dew/checkpoint/writer.h"
#include "dew/runtime/processes.h"

namespace dew {

// Every process writes its own parts into one directory; when all have, process 0 makes them a
// checkpoint and removes what the retention does not keep. All processes call the same in the same
// order, and each call throws the same in all of them. What goes wrong leaves older checkpoints
// alone. Belongs to one thread.
class Saver {
 public:
  // Each checkpoint carries the files as well. `processes` and `files` must outlive this.
  Saver(Processes& processes, Path directory, const Retention& retention,
        std::span<const CarriedFile> files = {});

  // Writes the state while the run waits.
  void save(const CheckpointInfo& info, std::span<const StateTensor> state);

  // Copies the state and returns while it is written, see Snapshot. REQUIRES: !begun().
  void begin(const CheckpointInfo& info, std::span<const StateTensor> state);
  // The step of the state that was begun, if it is not complete.
  std::optional<std::int64_t> begun() const { return begun_; }
  // This process has nothing to write any more.
  bool written() const { return snapshot_.ended(); }
  // Waits for what was begun, if anything was, and completes it.
  void complete();

 private:
  void open(const CheckpointInfo& info, std::span<const StateTensor> state);
  void write(std::span<const StateTensor> state);
  void commit();
  template <class F>
  void attempt(F f) const;

  Processes& processes_;
  Path directory_;
  Retention retention_;
  std::span<const CarriedFile> files_;
  std::string run_;
  std::int64_t step_ = 0;  // of what is being written
  std::optional<std::int64_t> begun_;
  std::optional<CheckpointWriter> writer_;  // of process 0
  WrittenPart part_;                        // of this process
  Snapshot snapshot_;                       // last: its thread uses the others
};

}  // namespace dew
