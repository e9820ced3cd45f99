// Gradient of attention: scores are made again from q and k, p from the final lse; then five
// products for each pair of blocks. A piece is one kv head of one row, with all its query heads, so
// that the sums dk and dv have one owner. If there are few of those, keys are cut into segments;
// each segment leaves a part of dq, and a second phase adds the parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dew/runtime/cpu/kernels/attention.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kEnoughPieces = 8;  // more pieces are not worth adding parts of dq
constexpr std::int64_t kPartBytes = std::int64_t{64} << 20;  // of all parts of dq

class AttentionGrad : public Kernel {
 public:
  explicit AttentionGrad(const AttentionTask& task);

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return mask_.prepare(args, args.shared, piece);
    if (phase == 2) return add_parts(args, piece);
    const std::int64_t segment = piece % segments_.count, head = piece / segments_.count;
    run_piece(args, head / task_.kv_heads, head % task_.kv_heads, segment);
  }

 private:
  enum Output { kDq = kDo + 1, kDk, kDv };

  // One query block of one head, in scratch.
  struct Queries {
    std::int64_t row, head, block, first, count;
  };

  void choose_segments();
  void make_products();
  void lay_out_scratch();
  void run_piece(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                 std::int64_t segment) const noexcept;
  void load_keys(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                 std::int64_t segment) const;
  void load_queries(const KernelArgs& args, const Queries& q) const;
  void meet(std::byte* scratch, const RowMask& mask, const Queries& q, const Run& run,
            std::int64_t segment) const;
  void store_dq(const KernelArgs& args, const Queries& q, std::int64_t segment, bool seen) const;
  void store_keys(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                  std::int64_t segment) const;
  void add_parts(const KernelArgs& args, int piece) const noexcept;
  Matrix part(const KernelArgs& args, std::int64_t segment, std::int64_t row, std::int64_t head,
              std::int64_t first) const;

  AttentionTask task_;
  AttentionMask mask_;
  Blocks segments_;                      // of key blocks
  RunProducts scores_, keys_, queries_;  // q.k and do.v; p^T do and ds^T q; ds k
  std::size_t parts_ = 0;                // in shared scratch
  // Regions of the worker's scratch.
  std::size_t q_ = 0, do_ = 0, k_ = 0, v_ = 0, score_ = 0, dp_ = 0, p_ = 0, ds_ = 0, dq_ = 0,
              dk_ = 0, dv_ = 0, lse_ = 0, delta_ = 0, product_ = 0;
};

AttentionGrad::AttentionGrad(const AttentionTask& task) : task_(task), mask_(task) {
  choose_segments();
  parts_ = mask_.bytes();
  shared_scratch_ = parts_;
  phases_ = {static_cast<int>(task.rows),
             static_cast<int>(task.rows * task.kv_heads * segments_.count)};
  if (segments_.count > 1) {
    const std::int64_t elements = task.rows * task.heads * task.q.total * task.width;
    shared_scratch_ += static_cast<std::size_t>(segments_.count * elements * 4);
    phases_.push_back(static_cast<int>(task.rows * task.heads));
  }
  make_products();
  lay_out_scratch();
  implementation_ = scores_.implementation() + " tiles, highway softmax";
}

void AttentionGrad::choose_segments() {
  const std::int64_t heads = task_.rows * task_.kv_heads;
  std::int64_t count = 1;
  if (heads > 0 && heads < kEnoughPieces) {
    const std::int64_t bytes = task_.rows * task_.heads * task_.q.total * task_.width * 4;
    const std::int64_t affordable =
        std::max<std::int64_t>(kPartBytes / std::max<std::int64_t>(bytes, 1), 1);
    count = std::min(
        {(2 * kEnoughPieces + heads - 1) / heads, (task_.k.count + kRun - 1) / kRun, affordable});
  }
  count = std::max<std::int64_t>(count, 1);
  const std::int64_t blocks = std::max<std::int64_t>(task_.k.count, 1);
  segments_ = Blocks(blocks, (blocks + count - 1) / count, 1);
}

void AttentionGrad::make_products() {
  const std::int64_t q = task_.q.size, d = task_.width;
  if (task_.rows * task_.heads * task_.q.total == 0) return;
  scores_ = RunProducts(task_, [&](std::int64_t n) {
    return ProductShape{.m = q,
                        .n = n,
                        .k = d,
                        .a_row = d,
                        .b_row = 1,
                        .b_col = d,
                        .c_row = n,
                        .in = task_.product};
  });
  keys_ = RunProducts(task_, [&](std::int64_t n) {
    return ProductShape{.m = n,
                        .n = d,
                        .k = q,
                        .a_row = 1,
                        .a_col = n,
                        .b_row = d,
                        .c_row = d,
                        .in = task_.product,
                        .accumulate = true};
  });
  queries_ = RunProducts(task_, [&](std::int64_t n) {
    return ProductShape{.m = q,
                        .n = d,
                        .k = n,
                        .a_row = n,
                        .b_row = d,
                        .c_row = d,
                        .in = task_.product,
                        .accumulate = true};
  });
}

void AttentionGrad::lay_out_scratch() {
  Regions r;
  const std::int64_t bytes = byte_size(task_.product), q = task_.q.size, d = task_.width;
  const std::int64_t keys = segments_.size * task_.k.size, run = task_.run_keys();
  const bool f32 = task_.product == DType::f32;
  q_ = r.add(q * d * bytes);
  do_ = r.add(q * d * bytes);
  k_ = r.add(keys * d * bytes);
  v_ = r.add(keys * d * bytes);
  score_ = r.add(q * run * 4);
  dp_ = r.add(q * run * 4);
  p_ = f32 ? score_ : r.add(q * run * bytes);
  ds_ = f32 ? dp_ : r.add(q * run * bytes);
  dq_ = r.add(q * d * 4);
  dk_ = r.add(keys * d * 4);
  dv_ = r.add(keys * d * 4);
  lse_ = r.add(q * 4);
  delta_ = r.add(q * 4);
  product_ = r.add(static_cast<std::int64_t>(
      std::max({scores_.scratch_bytes(), keys_.scratch_bytes(), queries_.scratch_bytes()})));
  worker_scratch_ = r.total();
}

void AttentionGrad::run_piece(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                              std::int64_t segment) const noexcept {
  const std::int64_t first = segments_.begin(segment);
  const std::int64_t last = std::min(first + segments_.size, task_.k.count);
  load_keys(args, row, kv_head, segment);
  const RowMask mask = mask_.row(args.shared, row);
  for (std::int64_t g = 0; g < task_.group; ++g) {
    for (std::int64_t i = 0; i < task_.q.count; ++i) {
      const Queries q{row, kv_head * task_.group + g, i, task_.q.begin(i), task_.q.length(i)};
      bool seen = false;
      for (std::int64_t k = first; k < last; k += kRun) {
        const Run run = visible_run(mask, i, k, std::min(k + kRun, last));
        if (run.count() == 0) continue;
        if (!seen) load_queries(args, q);
        seen = true;
        meet(args.worker, mask, q, run, first);
      }
      store_dq(args, q, segment, seen);
    }
  }
  store_keys(args, row, kv_head, segment);
}

void AttentionGrad::load_keys(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                              std::int64_t segment) const {
  const std::int64_t key = task_.k.begin(segments_.begin(segment)), d = task_.width;
  const std::int64_t padded = segments_.length(segment) * task_.k.size;
  const std::int64_t real = std::clamp<std::int64_t>(task_.k.total - key, 0, padded);
  pack_rows(task_.head(args, kK, row, key, kv_head), {args.worker + k_, task_.product, d, 1}, real,
            padded, d);
  pack_rows(task_.head(args, kV, row, key, kv_head), {args.worker + v_, task_.product, d, 1}, real,
            padded, d);
  for (const std::size_t sums : {dk_, dv_}) {
    std::fill_n(reinterpret_cast<float*>(args.worker + sums), padded * d, 0.0f);
  }
}

void AttentionGrad::load_queries(const KernelArgs& args, const Queries& q) const {
  const std::int64_t d = task_.width, padded = task_.q.size;
  pack_rows(task_.head(args, kQ, q.row, q.first, q.head), {args.worker + q_, task_.product, d, 1},
            q.count, padded, d);
  pack_rows(task_.head(args, kDo, q.row, q.first, q.head), {args.worker + do_, task_.product, d, 1},
            q.count, padded, d);
  std::fill_n(reinterpret_cast<float*>(args.worker + dq_), padded * d, 0.0f);
  auto* lse = reinterpret_cast<float*>(args.worker + lse_);
  auto* delta = reinterpret_cast<float*>(args.worker + delta_);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < padded; ++i) {
    const bool real = i < q.count;
    lse[i] = real ? *task_.number(args, kLse, q.row, q.first + i, q.head) : kInf;
    delta[i] = real ? *task_.number(args, kDelta, q.row, q.first + i, q.head) : 0.0f;
    if (lse[i] == -kInf) lse[i] = kInf;  // sees nothing: p = 0
  }
}

// `first` is the block that scratch holds keys from.
void AttentionGrad::meet(std::byte* scratch, const RowMask& mask, const Queries& q, const Run& run,
                         std::int64_t first) const {
  const std::int64_t key = task_.k.begin(run.begin),
                     offset = (key - task_.k.begin(first)) * task_.width;
  const std::int64_t bytes = byte_size(task_.product);
  std::byte *const k = scratch + k_ + offset * bytes, *const v = scratch + v_ + offset * bytes;
  scores_.of(run).execute(scratch + q_, k, scratch + score_, scratch + product_);
  scores_.of(run).execute(scratch + do_, v, scratch + dp_, scratch + product_);

  const ScoreBlock b = score_block(task_, mask, q.first, run, scratch + score_, scratch + p_);
  const GradBlock g{reinterpret_cast<float*>(scratch + lse_),
                    reinterpret_cast<float*>(scratch + delta_),
                    reinterpret_cast<float*>(scratch + dp_), scratch + ds_};
  grad_rows(b, g, task_.probability());

  keys_.of(run).execute(scratch + p_, scratch + do_, scratch + dv_ + offset * 4,
                        scratch + product_);
  keys_.of(run).execute(scratch + ds_, scratch + q_, scratch + dk_ + offset * 4,
                        scratch + product_);
  queries_.of(run).execute(scratch + ds_, k, scratch + dq_, scratch + product_);
}

// A segment's part of dq: [segment, row, head, query, width].
Matrix AttentionGrad::part(const KernelArgs& args, std::int64_t segment, std::int64_t row,
                           std::int64_t head, std::int64_t first) const {
  const std::int64_t index =
      ((segment * task_.rows + row) * task_.heads + head) * task_.q.total + first;
  return {args.shared + parts_ + static_cast<std::size_t>(index * task_.width * 4), DType::f32,
          task_.width, 1};
}

void AttentionGrad::store_dq(const KernelArgs& args, const Queries& q, std::int64_t segment,
                             bool seen) const {
  const Matrix target = segments_.count > 1 ? part(args, segment, q.row, q.head, q.first)
                                            : task_.head(args, kDq, q.row, q.first, q.head);
  if (!seen) return fill_zero(target, q.count, task_.width);
  copy_matrix({args.worker + dq_, DType::f32, task_.width, 1}, target, q.count, task_.width);
}

void AttentionGrad::store_keys(const KernelArgs& args, std::int64_t row, std::int64_t kv_head,
                               std::int64_t segment) const {
  const std::int64_t key = task_.k.begin(segments_.begin(segment));
  const std::int64_t n =
      std::clamp<std::int64_t>(task_.k.total - key, 0, segments_.length(segment) * task_.k.size);
  const Matrix dk{args.worker + dk_, DType::f32, task_.width, 1},
      dv{args.worker + dv_, DType::f32, task_.width, 1};
  copy_matrix(dk, task_.head(args, kDk, row, key, kv_head), n, task_.width);
  copy_matrix(dv, task_.head(args, kDv, row, key, kv_head), n, task_.width);
}

// Adds the parts of one head, in the order of segments, to the first.
void AttentionGrad::add_parts(const KernelArgs& args, int piece) const noexcept {
  const std::int64_t row = piece / task_.heads, head = piece % task_.heads;
  const Matrix sum = part(args, 0, row, head, 0);
  auto* const to = static_cast<float*>(sum.data);
  for (std::int64_t s = 1; s < segments_.count; ++s) {
    add_row(to, static_cast<const float*>(part(args, s, row, head, 0).data),
            task_.q.total * task_.width);
  }
  copy_matrix(sum, task_.head(args, kDq, row, 0, head), task_.q.total, task_.width);
}

}  // namespace

std::unique_ptr<Kernel> make_attention_grad(const Step& step, std::string& why_not) {
  AttentionTask task;
  why_not = attention_task(step, 11, 3, task);
  if (!why_not.empty()) return nullptr;
  if (auto together = make_attention_grad_together(task)) return together;
  return std::make_unique<AttentionGrad>(task);
}

}  // namespace dew::cpu
