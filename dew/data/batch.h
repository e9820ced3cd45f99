// One optimizer step's input, laid out by a DispatchPlan.
#pragma once

#include <cstdint>
#include <vector>

#include "dew/data/windows.h"
#include "dew/sharding/dispatch.h"

namespace dew {

// Arrays [micro_steps, rows, width] in row-major order, as the step program takes them; of several
// processes each has the rows of its own batch shards, one shard after the other.
//
// Real tokens: weight 1, segment 0, positions 0 .. T-1, and the label is the id that follows in the
// record. All other elements (pad rows, and columns from T on) are pads: weight 0, segment -1 -
// column, id and label 0, and a position that real tokens have too. So `segment >= 0` says real,
// and `weight` says what the loss counts.
struct StepBatch {
  std::int64_t micro_steps = 0, rows = 0, width = 0;
  std::vector<std::int32_t> ids, labels;
  std::vector<float> weights;
  std::vector<std::int32_t> positions, segments;
  std::vector<std::int32_t>
      row_ids;  // [micro_steps, rows]: number of the row in the step, -1 on pads
  std::vector<std::int32_t> columns;  // [width]: global column
  // Of the whole step, whatever part of it the arrays hold.
  double weight_sum = 0;              // W
  std::int64_t real_tokens = 0;       // N
  std::vector<std::int64_t> records;  // [real rows]: the record that is row g
};

// Fills batches of one plan. Usable by one thread at a time.
class BatchMaker {
 public:
  // `shards`: the batch shards whose rows the arrays hold, in ascending order; no other row is
  // read. Empty: all. REQUIRES: the plan's seq_len is that of the windows. Throws ErrorCode::usage
  // if the batch has 2^31 rows or more.
  BatchMaker(const Windows& windows, const DispatchPlan& plan,
             std::vector<std::int64_t> shards = {});

  const DispatchPlan& plan() const { return plan_; }

  // Row g becomes record `batch.records[g]`; there are as many real rows as records, at least one
  // and at most what the plan has slots for. `batch` must be empty but for that, or come from this
  // maker: then only what differs is written and nothing is allocated. Throws as TokenFile::read,
  // leaving `batch` to be filled again.
  void fill(StepBatch& batch) const;

 private:
  // `real` columns of a row, of `width` that lie together; `at` is their place in the array.
  struct Piece {
    std::int64_t at, column, width, real;
  };

  void prepare(StepBatch& batch, const DispatchPlan& plan) const;
  // Calls visit(row of the step, row of the arrays) for the real rows that the arrays hold.
  template <class Visit>
  void for_each_row(const DispatchPlan& plan, Visit visit) const;
  std::int64_t array_rows() const { return std::ssize(shards_) * plan_.micro_batch(); }

  Windows windows_;
  DispatchPlan plan_;
  std::vector<std::int64_t> shards_;
  std::vector<Piece> pieces_;
};

}  // namespace dew
