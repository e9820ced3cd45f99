// What attention and its gradient share: the step's sizes and views, how scores are cut into
// blocks, and which blocks the mask leaves.
//
// Queries and keys are cut into blocks of at most 64. Scores of one query block and a run of up to
// four key blocks are made at a time, in the worker's scratch; blocks outside the mask are left out
// of the run, blocks inside it are not masked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dew/ir/attrs.h"
#include "dew/runtime/cpu/kernel.h"
#include "dew/runtime/cpu/kernels/attention_rows.h"
#include "dew/runtime/cpu/kernels/dot_pack.h"
#include "dew/runtime/cpu/kernels/small_product.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew::cpu {

inline constexpr std::int64_t kRun = 4;  // key blocks that scores are made of at a time

// `total` cut into `count` blocks of equal `size`, at most `most`, rounded up to `unit`; the last
// one may be shorter.
struct Blocks {
  std::int64_t total = 0, size = 1, count = 0;

  Blocks() = default;
  Blocks(std::int64_t total, std::int64_t most, std::int64_t unit);
  std::int64_t begin(std::int64_t i) const { return i * size; }
  std::int64_t length(std::int64_t i) const { return i + 1 < count ? size : total - i * size; }
  std::int64_t padded() const { return count * size; }
};

struct AttentionTask {
  std::int64_t rows = 0, heads = 0, kv_heads = 0, group = 1, width = 0;
  Blocks q, k;
  AttentionAttrs attrs;
  DType dtype = DType::f32;  // of operands and results
  DType product =
      DType::f32;  // of what is multiplied: f32 where the machine has no fast products of bf16
  std::vector<View> views;  // inputs, then outputs

  std::int64_t run_keys() const { return k.size * (k.count < kRun ? k.count : kRun); }
  Probability probability() const;
  // The [.., width] matrix of a head's queries or keys, from the `first` one on.
  Matrix head(const KernelArgs& args, std::size_t operand, std::int64_t row, std::int64_t first,
              std::int64_t head) const;
  // One element of f32 operand [rows, queries, heads].
  float* number(const KernelArgs& args, std::size_t operand, std::int64_t row, std::int64_t query,
                std::int64_t head) const;
};

// Inputs of the forward op, which the gradient has too, in front of three more.
enum AttentionInput {
  kQ,
  kK,
  kV,
  kQPositions,
  kKPositions,
  kQSegments,
  kKSegments,
  kWindow,
  kLse,
  kDelta,
  kDo
};

// Empty, or why the step is not taken.
std::string attention_task(const Step& step, std::size_t inputs, std::size_t outputs,
                           AttentionTask& task);

// Copies `rows` rows of a head to a dense matrix; rows up to `padded` become 0.
void pack_rows(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t padded,
               std::int64_t width);

// Products whose size is a run of 1 to kRun key blocks.
class RunProducts {
 public:
  RunProducts() = default;
  // `shape` of a run of so many keys.
  template <class Shape>
  RunProducts(const AttentionTask& task, Shape shape) {
    for (std::int64_t n = 1; n <= task.run_keys() / task.k.size; ++n)
      products_.emplace_back(shape(n * task.k.size));
  }
  const TileProduct& of(const struct Run& run) const;
  std::size_t scratch_bytes() const;
  std::string implementation() const {
    return products_.empty() ? "" : products_.back().implementation();
  }

 private:
  std::vector<TileProduct> products_;
};

// Scratch memory as a sequence of regions, each aligned to 64 bytes.
class Regions {
 public:
  std::size_t add(std::int64_t bytes) {
    const std::size_t offset = total_;
    total_ += (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
    return offset;
  }
  std::size_t total() const { return total_; }

 private:
  std::size_t total_ = 0;
};

// ---- mask ----

// What a row's queries and keys have in common, block by block; in shared scratch, made anew in
// each run (phase 0).
struct QueryBlock {
  std::int32_t low_min, low_max, high_min, high_max, segment_min, segment_max;
};
struct KeyBlock {
  std::int32_t position_min, position_max, segment_min, segment_max;
};

QueryBlock query_block(const std::int32_t* low, const std::int32_t* high,
                       const std::int32_t* segment, std::int64_t n);
KeyBlock key_block(const std::int32_t* position, const std::int32_t* segment, std::int64_t n);

// The positions of keys that a query at `position` sees.
struct SeenPositions {
  std::int32_t low, high;
};
SeenPositions seen_positions(const AttentionAttrs& attrs, std::int32_t position,
                             std::int32_t window);

// Query i of the row sees key j if low[i] <= position[j] <= high[i] and their segments are equal.
struct RowMask {
  std::int32_t *low, *high, *q_segment;  // one for each query; those behind the last see nothing
  std::int32_t *position, *k_segment;    // one for each key; those behind the last are garbage
  QueryBlock* q_blocks;
  KeyBlock* k_blocks;
};

enum class Sight { none, some, all };

class AttentionMask {
 public:
  AttentionMask() = default;
  explicit AttentionMask(const AttentionTask& task);

  std::size_t bytes() const { return static_cast<std::size_t>(task_.rows) * row_bytes_; }
  RowMask row(std::byte* shared, std::int64_t row) const;
  void prepare(const KernelArgs& args, std::byte* shared, std::int64_t row) const noexcept;

 private:
  AttentionTask task_;
  std::size_t row_bytes_ = 0;
};

// Whether the queries of a block see keys of another: none, or perhaps some, or surely all.
Sight sight(const QueryBlock& q, const KeyBlock& k);

// The blocks from the first to the last that are seen, of those in [begin, end). Bit i of `masked`:
// not all of block begin + i is seen.
struct Run {
  std::int64_t begin = 0, end = 0;
  unsigned masked = 0;
  std::int64_t count() const { return end - begin; }
};
Run visible_run(const RowMask& mask, std::int64_t q_block, std::int64_t begin, std::int64_t end);

// A query block (from `query` on) and a run of keys, for the functions of attention_rows.h.
ScoreBlock score_block(const AttentionTask& task, const RowMask& mask, std::int64_t query,
                       const Run& run, void* scores, void* p);

// ---- few queries (attention_few.cc); null if the task has more ----

std::unique_ptr<Kernel> make_attention_few(const AttentionTask& task);

// ---- all heads of a row at once (attention_together.cc): for few keys; null if the task is not
// for it ----

std::unique_ptr<Kernel> make_attention_together(const AttentionTask& task);
std::unique_ptr<Kernel> make_attention_grad_together(const AttentionTask& task);

}  // namespace dew::cpu
