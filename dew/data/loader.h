// Batches for training without end, and one pass over the validation windows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dew/data/batch.h"
#include "dew/data/windows.h"
#include "dew/sharding/dispatch.h"

namespace dew {

struct LoaderOptions {
  bool shuffle = true;                    // false: every epoch in the order of the file
  std::uint64_t seed = 0;                 // of the order
  std::int64_t position = 0;              // records that earlier batches took
  int prefetch = 2;                       // batches prepared ahead by a thread; 0: none
  std::vector<std::int64_t> shards = {};  // see BatchMaker
};

// Row g of a batch at position p is record number p + g of an endless sequence, in which every
// epoch is a new permutation of all records, made from (seed, epoch) alone. Batches run across the
// end of an epoch, nothing is dropped. The position is the whole state: it does not depend on plan,
// mesh, processes or prefetching, so any of them may change at a resume, and the batch size too.
//
// Belongs to one thread; its own thread, if any, ends with it.
class Loader {
 public:
  // REQUIRES: the plan's seq_len is that of the windows. Throws ErrorCode::usage on a negative
  // position or prefetch.
  Loader(const Windows& windows, const DispatchPlan& plan, const LoaderOptions& options);
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch, valid until the next call. Throws what reading it threw, after all batches
  // before it were given out, and again at every further call.
  const StepBatch& next();

  // Records in the batches that next() returned, with those before the start: what a checkpoint
  // after the step saves.
  std::int64_t position() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Every validation window once, in order, in batches of the plan's rows; the last may have fewer
// real rows in the same arrays. Belongs to one thread.
class ValidationPass {
 public:
  // `batches` limits the pass; 0: all. `shards`: see BatchMaker. Throws ErrorCode::usage if
  // `batches` is negative.
  ValidationPass(const Windows& windows, const DispatchPlan& plan, std::int64_t batches = 0,
                 std::vector<std::int64_t> shards = {});

  // The next batch, valid until the next call; nullptr at the end.
  const StepBatch* next();
  // Back to the first batch, keeping the memory.
  void restart() { next_row_ = 0; }

  std::int64_t rows() const { return rows_; }  // windows in the whole pass
  std::int64_t batches() const;                // batches in the whole pass

 private:
  BatchMaker maker_;
  std::int64_t rows_, next_row_ = 0;
  StepBatch batch_;
};

}  // namespace dew
