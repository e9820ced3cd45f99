#include "dew/runtime/cpu/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {

Blocks::Blocks(std::int64_t n, std::int64_t most, std::int64_t unit) : total(n) {
  if (n == 0) return;
  const std::int64_t fewest = (n + most - 1) / most;
  size = ((n + fewest - 1) / fewest + unit - 1) / unit * unit;
  count = (n + size - 1) / size;
}

std::string attention_task(const Step& step, std::size_t inputs, std::size_t outputs,
                           AttentionTask& task) {
  if (step.inputs.size() != inputs || step.outputs.size() != outputs) return "attention: operands";
  const Type &q = step.inputs[kQ].type, &k = step.inputs[kK].type;
  if (q.dtype != DType::f32 && q.dtype != DType::bf16) return "attention: q must be f32 or bf16";
  if (q.shape[3] == 0) return "attention: heads have no width";
  task.rows = q.shape[0];
  task.heads = q.shape[2];
  task.kv_heads = k.shape[2];
  task.group = task.kv_heads > 0 ? task.heads / task.kv_heads : 1;
  task.width = q.shape[3];
  // Padding is computed too: blocks of few queries or keys fit exactly, or to the vector.
  task.q = Blocks(q.shape[1], 64, q.shape[1] > 64 ? 4 : 1);
  task.k = Blocks(k.shape[1], 64, 16);
  task.attrs = std::get<AttentionAttrs>(step.attrs);
  task.dtype = q.dtype;
  task.product = q.dtype == DType::bf16 && !onednn_has_fast_bf16() ? DType::f32 : q.dtype;
  task.views = step.inputs;
  task.views.insert(task.views.end(), step.outputs.begin(), step.outputs.end());
  return {};
}

Probability AttentionTask::probability() const {
  if (product == DType::bf16) return Probability::bf16;
  return dtype == DType::bf16 ? Probability::rounded : Probability::f32;
}

Matrix AttentionTask::head(const KernelArgs& args, std::size_t operand, std::int64_t row,
                           std::int64_t first, std::int64_t head) const {
  const Dims& s = views[operand].strides;
  const std::int64_t offset = row * s[0] + first * s[1] + head * s[2];
  return {args.operands[operand] + offset * byte_size(dtype), dtype, s[1], s[3]};
}

float* AttentionTask::number(const KernelArgs& args, std::size_t operand, std::int64_t row,
                             std::int64_t query, std::int64_t head) const {
  const Dims& s = views[operand].strides;
  return reinterpret_cast<float*>(args.operands[operand]) + row * s[0] + query * s[1] + head * s[2];
}

void pack_rows(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t padded,
               std::int64_t width) {
  copy_matrix(from, to, rows, width);
  if (padded > rows) fill_zero({to.at(rows, 0), to.dtype, to.row, to.col}, padded - rows, width);
}

ScoreBlock score_block(const AttentionTask& task, const RowMask& mask, std::int64_t query,
                       const Run& run, void* scores, void* p) {
  const std::int64_t key = task.k.begin(run.begin);
  ScoreBlock b;
  b.scores = static_cast<float*>(scores);
  b.rows = task.q.size;
  b.part = task.k.size;
  b.columns = run.count() * b.part;
  b.keys = std::min(b.columns, task.k.total - key);
  b.masked = run.masked;
  if (b.keys < b.columns) b.masked |= 1u << (run.count() - 1);
  b.mask = {mask.low + query, mask.high + query, mask.q_segment + query, mask.position + key,
            mask.k_segment + key};
  b.scale = {static_cast<float>(task.attrs.scale), static_cast<float>(task.attrs.softcap)};
  b.p = p;
  return b;
}

const TileProduct& RunProducts::of(const Run& run) const {
  return products_[static_cast<std::size_t>(run.count() - 1)];
}

std::size_t RunProducts::scratch_bytes() const {
  std::size_t most = 0;
  for (const auto& p : products_) most = std::max(most, p.scratch_bytes());
  return most;
}

namespace {

// A piece is up to 512 queries of one head: their state waits in scratch while runs of keys come
// by, each copied once.
class AttentionForward : public Kernel {
 public:
  explicit AttentionForward(const AttentionTask& task);

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return mask_.prepare(args, args.shared, piece);
    const std::int64_t heads = task_.rows * task_.heads, head = piece % heads;
    // The last queries see most: they come first.
    run_piece(args, head / task_.heads, head % task_.heads, pieces_.count - 1 - piece / heads);
  }

 private:
  enum Output { kO = kWindow + 1, kLseOut };

  void run_piece(const KernelArgs& args, std::int64_t row, std::int64_t head,
                 std::int64_t piece) const noexcept;
  void load_keys(const KernelArgs& args, std::int64_t row, std::int64_t head, std::int64_t begin,
                 std::int64_t end) const;
  void attend(std::byte* scratch, const RowMask& mask, std::int64_t first, std::int64_t block,
              const Run& run, std::int64_t loaded) const noexcept;
  void store(const KernelArgs& args, std::int64_t row, std::int64_t head, std::int64_t first,
             std::int64_t blocks) const;

  SoftmaxState state(std::byte* scratch, std::int64_t block) const {
    const std::int64_t at = block * task_.q.size;
    return {reinterpret_cast<float*>(scratch + most_) + at,
            reinterpret_cast<float*>(scratch + sum_) + at,
            reinterpret_cast<float*>(scratch + output_) + at * task_.width, task_.width,
            task_.width};
  }

  AttentionTask task_;
  AttentionMask mask_;
  Blocks pieces_;  // of query blocks
  RunProducts scores_, values_;
  std::size_t q_ = 0, k_ = 0, v_ = 0, score_ = 0, p_ = 0, output_ = 0, most_ = 0, sum_ = 0,
              lse_ = 0, product_ = 0;
};

AttentionForward::AttentionForward(const AttentionTask& task) : task_(task), mask_(task) {
  const std::int64_t heads = task.rows * task.heads, q = task.q.size, d = task.width;
  if (heads * task.q.total == 0) {
    phases_ = {0};
    return;
  }
  const std::int64_t fewest = std::max((16 + heads - 1) / heads, (task.q.padded() + 511) / 512);
  pieces_ = Blocks(task.q.count, (task.q.count + fewest - 1) / fewest, 1);
  phases_ = {static_cast<int>(task.rows), static_cast<int>(heads * pieces_.count)};
  shared_scratch_ = mask_.bytes();
  scores_ = RunProducts(task, [&](std::int64_t n) {
    return ProductShape{
        .m = q, .n = n, .k = d, .a_row = d, .b_row = 1, .b_col = d, .c_row = n, .in = task.product};
  });
  values_ = RunProducts(task, [&](std::int64_t n) {
    return ProductShape{.m = q,
                        .n = d,
                        .k = n,
                        .a_row = n,
                        .b_row = d,
                        .c_row = d,
                        .in = task.product,
                        .accumulate = true};
  });
  Regions r;
  const std::int64_t bytes = byte_size(task.product), queries = pieces_.size * q,
                     keys = task.run_keys();
  q_ = r.add(queries * d * bytes);
  k_ = r.add(keys * d * bytes);
  v_ = r.add(keys * d * bytes);
  score_ = r.add(q * keys * 4);
  p_ = task.product == DType::f32 ? score_ : r.add(q * keys * bytes);
  output_ = r.add(queries * d * 4);
  most_ = r.add(queries * 4);
  sum_ = r.add(queries * 4);
  lse_ = r.add(q * 4);
  product_ =
      r.add(static_cast<std::int64_t>(std::max(scores_.scratch_bytes(), values_.scratch_bytes())));
  worker_scratch_ = r.total();
  implementation_ = scores_.implementation() + " tiles, highway softmax";
}

void AttentionForward::run_piece(const KernelArgs& args, std::int64_t row, std::int64_t head,
                                 std::int64_t piece) const noexcept {
  const std::int64_t first = pieces_.begin(piece), blocks = pieces_.length(piece);
  const std::int64_t begin = task_.q.begin(first), queries = blocks * task_.q.size;
  pack_rows(task_.head(args, kQ, row, begin, head),
            {args.worker + q_, task_.product, task_.width, 1},
            std::min(queries, task_.q.total - begin), queries, task_.width);
  const SoftmaxState all = state(args.worker, 0);
  std::fill_n(all.most, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(all.sum, queries, 0.0f);
  std::fill_n(all.output, queries * task_.width, 0.0f);

  const RowMask mask = mask_.row(args.shared, row);
  for (std::int64_t k = 0; k < task_.k.count; k += kRun) {
    const std::int64_t end = std::min(k + kRun, task_.k.count);
    std::int64_t seen_begin = end, seen_end = k;  // by any query of the piece
    for (std::int64_t i = 0; i < blocks; ++i) {
      const Run run = visible_run(mask, first + i, k, end);
      if (run.count() == 0) continue;
      seen_begin = std::min(seen_begin, run.begin);
      seen_end = std::max(seen_end, run.end);
    }
    if (seen_begin >= seen_end) continue;
    load_keys(args, row, head, seen_begin, seen_end);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const Run run = visible_run(mask, first + i, k, end);
      if (run.count() > 0) attend(args.worker, mask, first, i, run, seen_begin);
    }
  }
  store(args, row, head, first, blocks);
}

// Copies key blocks [begin, end) to scratch.
void AttentionForward::load_keys(const KernelArgs& args, std::int64_t row, std::int64_t head,
                                 std::int64_t begin, std::int64_t end) const {
  const std::int64_t key = task_.k.begin(begin), padded = task_.k.begin(end) - key;
  const std::int64_t real = std::min(padded, task_.k.total - key), kv_head = head / task_.group;
  const Matrix k{args.worker + k_, task_.product, task_.width, 1},
      v{args.worker + v_, task_.product, task_.width, 1};
  pack_rows(task_.head(args, kK, row, key, kv_head), k, real, padded, task_.width);
  pack_rows(task_.head(args, kV, row, key, kv_head), v, real, padded, task_.width);
}

// Query block `block` of the piece meets a run of keys; scratch holds keys from block `loaded` on.
void AttentionForward::attend(std::byte* scratch, const RowMask& mask, std::int64_t first,
                              std::int64_t block, const Run& run,
                              std::int64_t loaded) const noexcept {
  const std::int64_t bytes = byte_size(task_.product), key = task_.k.begin(run.begin);
  const std::int64_t k_offset = (key - task_.k.begin(loaded)) * task_.width * bytes;
  const SoftmaxState now = state(scratch, block);
  auto* s = reinterpret_cast<float*>(scratch + score_);
  std::byte* const q = scratch + q_ + block * task_.q.size * task_.width * bytes;
  scores_.of(run).execute(q, scratch + k_ + k_offset, s, scratch + product_);

  const ScoreBlock b = score_block(task_, mask, task_.q.begin(first + block), run, s, scratch + p_);
  softmax_rows(b, now, task_.probability());
  values_.of(run).execute(b.p, scratch + v_ + k_offset, now.output, scratch + product_);
}

void AttentionForward::store(const KernelArgs& args, std::int64_t row, std::int64_t head,
                             std::int64_t first, std::int64_t blocks) const {
  auto* lse = reinterpret_cast<float*>(args.worker + lse_);
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t query = task_.q.begin(first + i), n = task_.q.length(first + i);
    const SoftmaxState now = state(args.worker, i);
    const Matrix o = task_.head(args, kO, row, query, head);
    const bool in_place = o.col == 1 || task_.width == 1;
    const Matrix sums{now.output, DType::f32, task_.width, 1};
    const Matrix& to = in_place ? o : sums;
    finish_rows(now, n, {to.data, to.row, to.dtype == DType::bf16, lse});
    if (!in_place) copy_matrix(sums, o, n, task_.width);
    for (std::int64_t j = 0; j < n; ++j)
      *task_.number(args, kLseOut, row, query + j, head) = lse[j];
  }
}

}  // namespace

std::unique_ptr<Kernel> make_attention(const Step& step, std::string& why_not) {
  AttentionTask task;
  why_not = attention_task(step, 8, 2, task);
  if (!why_not.empty()) return nullptr;
  if (auto few = make_attention_few(task)) return few;
  if (auto together = make_attention_together(task)) return together;
  return std::make_unique<AttentionForward>(task);
}

}  // namespace dew::cpu
