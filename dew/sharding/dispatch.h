// Which row of a global batch sits where: any number of rows on any number of batch shards, in any
// number of micro steps.
//
// A step has G rows. Row g goes to batch shard floor(g * nB / G), where it takes the next free
// slot; every shard pads itself to the same r slots, and the slots are cut into A' micro steps of
// m. So no G is ever refused because of a number of shards. Example, G = 5 rows on nB = 4 shards
// with m = 1 (hence r = 2, A' = 2; . is a pad):
//
//   shard          0  1  2  3
//   micro step 0   0  2  3  4
//   micro step 1   1  .  .  .
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dew/base/shape.h"

namespace dew {

struct DispatchOptions {
  std::int64_t global_batch = 1;     // G, rows of one optimizer step
  std::int64_t seq_len = 1;          // T, tokens of a row
  std::int64_t batch_shards = 1;     // nB, product of the batch axes
  std::int64_t sequence_shards = 1;  // nS, product of the sequence axes
  // At most one of the two: micro steps asked for (A), or rows a shard takes in one micro step (m).
  std::optional<std::int64_t> accumulate = {};
  std::optional<std::int64_t> micro_batch = {};
  std::int64_t microbatches = 1;  // M, of a pipeline; m is a multiple of it
  // T' is a multiple of it and of nS.
  std::int64_t column_multiple = 1;
};

// The place of a row: global arrays are [A', nB * m, T'], and `shard * m + slot` is its index in
// dimension 1.
struct Place {
  std::int64_t micro = 0, shard = 0, slot = 0;
  bool operator==(const Place&) const = default;
};

// Global columns [begin, end).
struct ColumnRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const ColumnRange&) const = default;
};

// Pure arithmetic on 64-bit integers; nothing of the size of a batch is ever built. Copying is
// cheap.
class DispatchPlan {
 public:
  // Throws ErrorCode::usage if a number is below 1, both `accumulate` and `micro_batch` are given,
  // or a product of them does not fit into 63 bits. Never on how G relates to the shards.
  explicit DispatchPlan(const DispatchOptions& options);

  // The same arrays with fewer real rows, for the last batch of finite data and for growing
  // batches. REQUIRES: 1 <= rows <= rows_per_shard() * batch_shards(); usage error otherwise.
  DispatchPlan with_global_batch(std::int64_t rows) const;

  std::int64_t global_batch() const { return rows_; }                        // G
  std::int64_t seq_len() const { return options_.seq_len; }                  // T
  std::int64_t batch_shards() const { return options_.batch_shards; }        // nB
  std::int64_t sequence_shards() const { return options_.sequence_shards; }  // nS
  std::int64_t micro_batch() const { return micro_batch_; }                  // m
  std::int64_t steps() const { return steps_; }                              // A'
  std::int64_t padded_seq_len() const { return padded_seq_len_; }            // T'
  std::int64_t rows_per_shard() const { return steps_ * micro_batch_; }      // r
  std::int64_t micro_rows() const { return batch_shards() * micro_batch_; }  // nB * m
  std::int64_t physical_batch() const { return steps_ * micro_rows(); }      // Gp
  std::int64_t pads() const { return physical_batch() - rows_; }
  double pad_share() const;           // of the physical rows
  std::int64_t empty_shards() const;  // without any real row

  // Arrays of a step: [A', nB * m, T'] as a whole, and what one device holds of them.
  Dims global_shape() const { return {steps_, micro_rows(), padded_seq_len_}; }
  Dims device_shape() const { return {steps_, micro_batch_, padded_seq_len_ / sequence_shards()}; }

  // What the loss multiplies by where every real row has weighted tokens: a row's mean loss (rows
  // mode), and a token's where all T tokens of each row count (tokens mode).
  double row_weight() const;
  double token_weight() const;

  // The shard of a row, the first row of a shard (G for shard nB), the real rows of a shard.
  std::int64_t shard(std::int64_t row) const;
  std::int64_t first_row(std::int64_t shard) const;
  std::int64_t rows_of(std::int64_t shard) const;

  Place place(std::int64_t row) const;
  // The row at a place, -1 on a pad.
  std::int64_t row(const Place& place) const;

  // Steps that see each of `rows` rows once; all but the last take global_batch() rows.
  std::int64_t batches(std::int64_t rows) const;

  // What is legal and probably not meant, a line each: many pads, fewer micro steps than asked for.
  std::vector<std::string> warnings() const;
  // How to have fewer pads, where more than a quarter of the rows are pads. Neither speaks of a
  // plan that with_global_batch() made: its arrays were chosen before.
  std::optional<std::string> advice() const;

  // Global columns that sequence shard `sigma` holds, in the order in which it holds them; T'/nS in
  // all. Columns from T on are pads. Now always one range, in order; later axes deal columns
  // differently.
  std::vector<ColumnRange> columns(std::int64_t sigma) const;

 private:
  std::optional<std::string> advice_on_shards() const;

  DispatchOptions options_;
  std::int64_t rows_, micro_batch_, steps_, padded_seq_len_;
};

// The number of batch shards that the advice is: the largest divisor of `batch_shards` up to `rows`
// with at most 10 % pads. (16 rows on 256 shards: 16; 17 rows: 2; 100 rows: 8.)
std::int64_t advised_batch_shards(std::int64_t rows, std::int64_t batch_shards);

}  // namespace dew
