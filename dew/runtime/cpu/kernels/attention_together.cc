// Attention with few keys, as in small models: all heads of a row are one product, [head, query,
// key], and operands are read where they lie ([token, head, width] is a layout that oneDNN's best
// kernels take). A call for each head would cost as much as its product, and copying heads apart as
// much again.
#include <algorithm>
#include <limits>

#include "dew/runtime/cpu/kernels/attention.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kCacheBytes = std::int64_t{512}
                                     << 10;  // of a row's keys, values and one block of scores

// Tokens follow each other, heads lie side by side.
bool dense_heads(const View& v, std::int64_t heads, std::int64_t width) {
  const Dims& s = v.strides;
  return (width == 1 || s[3] == 1) && (heads == 1 || s[2] == width) && s[1] == heads * width;
}

bool fits(const AttentionTask& t, std::initializer_list<std::size_t> operands) {
  if (t.rows * t.heads * t.q.total * t.k.total == 0) return false;
  const bool whole_blocks = t.k.total == t.k.padded() && t.q.total == t.q.padded();
  const std::int64_t bytes =
      t.heads * t.k.total * (2 * t.width * byte_size(t.dtype) + t.q.size * 4);
  const bool small = t.k.count <= kRun && bytes <= kCacheBytes;
  return t.heads > 1 && t.group == 1 && t.product == t.dtype && whole_blocks && small &&
         std::all_of(operands.begin(), operands.end(),
                     [&](std::size_t o) { return dense_heads(t.views[o], t.heads, t.width); });
}

// Products of all heads, with the layouts that they have here.
ProductShape scores_shape(const AttentionTask& t, std::int64_t keys) {
  const std::int64_t d = t.width, token = t.heads * d;
  return {.m = t.q.size,
          .n = keys,
          .k = d,
          .a_row = token,
          .b_row = 1,
          .b_col = token,
          .c_row = keys,
          .in = t.product,
          .batch = t.heads,
          .a_batch = d,
          .b_batch = d,
          .c_batch = t.q.size * keys};
}

// [query, key] times [key, width].
ProductShape queries_shape(const AttentionTask& t, std::int64_t keys, bool accumulate) {
  const std::int64_t d = t.width, token = t.heads * d;
  return {.m = t.q.size,
          .n = d,
          .k = keys,
          .a_row = keys,
          .b_row = token,
          .c_row = token,
          .in = t.product,
          .accumulate = accumulate,
          .batch = t.heads,
          .a_batch = t.q.size * keys,
          .b_batch = d,
          .c_batch = d};
}

// [query, key] transposed times [query, width].
ProductShape keys_shape(const AttentionTask& t, std::int64_t keys) {
  const std::int64_t d = t.width, token = t.heads * d;
  return {.m = keys,
          .n = d,
          .k = t.q.size,
          .a_row = 1,
          .a_col = keys,
          .b_row = token,
          .c_row = token,
          .in = t.product,
          .accumulate = true,
          .batch = t.heads,
          .a_batch = t.q.size * keys,
          .b_batch = d,
          .c_batch = d};
}

// Copies tokens [first, first + n) of sums, dense in f32, to an operand.
void store_tokens(const AttentionTask& t, const KernelArgs& args, std::size_t operand,
                  std::int64_t row, std::int64_t first, std::int64_t n, void* sums) {
  const std::int64_t token = t.heads * t.width;
  const Matrix to = t.head(args, operand, row, first, 0);
  copy_matrix({sums, DType::f32, token, 1}, {to.data, to.dtype, token, 1}, n, token);
}

// The block of one head.
ScoreBlock head_block(const AttentionTask& t, const RowMask& mask, std::int64_t query,
                      const Run& run, std::int64_t head, std::byte* scores, std::byte* p) {
  const std::int64_t elements = head * t.q.size * run.count() * t.k.size;
  return score_block(t, mask, query, run, scores + elements * 4,
                     p + elements * byte_size(t.product));
}

class TogetherForward : public Kernel {
 public:
  explicit TogetherForward(const AttentionTask& task) : task_(task), mask_(task) {
    scores_ = RunProducts(task, [&](std::int64_t keys) { return scores_shape(task, keys); });
    values_ =
        RunProducts(task, [&](std::int64_t keys) { return queries_shape(task, keys, false); });
    const std::int64_t numbers = task.heads * task.q.size, tile = numbers * task.run_keys();
    Regions r;
    score_ = r.add(tile * 4);
    p_ = task.product == DType::f32 ? score_ : r.add(tile * byte_size(task.product));
    output_ = r.add(numbers * task.width * 4);
    for (auto* region : {&most_, &sum_, &lse_}) *region = r.add(numbers * 4);
    product_ = r.add(
        static_cast<std::int64_t>(std::max(scores_.scratch_bytes(), values_.scratch_bytes())));
    worker_scratch_ = r.total();
    shared_scratch_ = mask_.bytes();
    phases_ = {static_cast<int>(task.rows), static_cast<int>(task.rows * task.q.count)};
    implementation_ = scores_.implementation() + " rows, highway softmax";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return mask_.prepare(args, args.shared, piece);
    // The last queries see most: they come first.
    run_block(args, piece % task_.rows, task_.q.count - 1 - piece / task_.rows);
  }

 private:
  enum Output { kO = kWindow + 1, kLseOut };

  SoftmaxState state(const KernelArgs& args, std::int64_t head) const {
    const std::int64_t at = head * task_.q.size;
    return {reinterpret_cast<float*>(args.worker + most_) + at,
            reinterpret_cast<float*>(args.worker + sum_) + at,
            reinterpret_cast<float*>(args.worker + output_) + head * task_.width, task_.width,
            task_.heads * task_.width};
  }

  void run_block(const KernelArgs& args, std::int64_t row, std::int64_t block) const noexcept {
    const std::int64_t query = task_.q.begin(block), numbers = task_.heads * task_.q.size;
    const RowMask mask = mask_.row(args.shared, row);
    const Run run = visible_run(mask, block, 0, task_.k.count);
    std::fill_n(state(args, 0).most, numbers, -std::numeric_limits<float>::infinity());
    std::fill_n(state(args, 0).sum, numbers, 0.0f);
    if (run.count() > 0) {
      attend(args, row, query, mask, run);
    } else {
      std::fill_n(state(args, 0).output, numbers * task_.width, 0.0f);
    }
    auto* const lse = reinterpret_cast<float*>(args.worker + lse_);
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      const Matrix o = task_.head(args, kO, row, query, h);
      finish_rows(state(args, h), task_.q.size, {o.data, o.row, o.dtype == DType::bf16, lse});
      for (std::int64_t i = 0; i < task_.q.size; ++i)
        *task_.number(args, kLseOut, row, query + i, h) = lse[i];
    }
  }

  void attend(const KernelArgs& args, std::int64_t row, std::int64_t query, const RowMask& mask,
              const Run& run) const {
    const std::int64_t key = task_.k.begin(run.begin);
    const auto at = [&](std::size_t operand, std::int64_t token) {
      return task_.head(args, operand, row, token, 0).data;
    };
    std::byte *const s = args.worker + score_, *const p = args.worker + p_,
                     *const scratch = args.worker + product_;
    scores_.of(run).execute(at(kQ, query), at(kK, key), s, scratch);
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      softmax_rows(head_block(task_, mask, query, run, h, s, p), state(args, h),
                   task_.probability());
    }
    values_.of(run).execute(p, at(kV, key), args.worker + output_, scratch);
  }

  AttentionTask task_;
  AttentionMask mask_;
  RunProducts scores_, values_;
  std::size_t score_ = 0, p_ = 0, output_ = 0, most_ = 0, sum_ = 0, lse_ = 0, product_ = 0;
};

// A piece is a row: dk and dv are summed over its query blocks.
class TogetherGrad : public Kernel {
 public:
  explicit TogetherGrad(const AttentionTask& task) : task_(task), mask_(task) {
    scores_ = RunProducts(task, [&](std::int64_t keys) { return scores_shape(task, keys); });
    queries_ =
        RunProducts(task, [&](std::int64_t keys) { return queries_shape(task, keys, false); });
    keys_ = RunProducts(task, [&](std::int64_t keys) { return keys_shape(task, keys); });
    const std::int64_t numbers = task.heads * task.q.size, tile = numbers * task.run_keys();
    const bool f32 = task.product == DType::f32;
    Regions r;
    score_ = r.add(tile * 4);
    dp_ = r.add(tile * 4);
    p_ = f32 ? score_ : r.add(tile * byte_size(task.product));
    ds_ = f32 ? dp_ : r.add(tile * byte_size(task.product));
    dq_ = r.add(numbers * task.width * 4);
    for (auto* region : {&dk_, &dv_}) *region = r.add(task.k.total * task.heads * task.width * 4);
    for (auto* region : {&lse_, &delta_}) *region = r.add(numbers * 4);
    product_ = r.add(static_cast<std::int64_t>(
        std::max({scores_.scratch_bytes(), queries_.scratch_bytes(), keys_.scratch_bytes()})));
    worker_scratch_ = r.total();
    shared_scratch_ = mask_.bytes();
    phases_ = {static_cast<int>(task.rows), static_cast<int>(task.rows)};
    implementation_ = scores_.implementation() + " rows, highway softmax";
  }

  void run(const KernelArgs& args, int phase, int row) const noexcept override {
    if (phase == 0) return mask_.prepare(args, args.shared, row);
    const std::int64_t elements = task_.k.total * task_.heads * task_.width;
    for (const std::size_t sums : {dk_, dv_})
      std::fill_n(reinterpret_cast<float*>(args.worker + sums), elements, 0.0f);
    for (std::int64_t i = 0; i < task_.q.count; ++i) run_block(args, row, i);
    store_tokens(task_, args, kDk, row, 0, task_.k.total, args.worker + dk_);
    store_tokens(task_, args, kDv, row, 0, task_.k.total, args.worker + dv_);
  }

 private:
  enum Output { kDq = kDo + 1, kDk, kDv };

  void run_block(const KernelArgs& args, std::int64_t row, std::int64_t block) const {
    const RowMask mask = mask_.row(args.shared, row);
    const Run run = visible_run(mask, block, 0, task_.k.count);
    const std::int64_t query = task_.q.begin(block);
    if (run.count() > 0) {
      load_numbers(args, row, query);
      meet(args, row, query, mask, run);
    } else {
      std::fill_n(reinterpret_cast<float*>(args.worker + dq_),
                  task_.q.size * task_.heads * task_.width, 0.0f);
    }
    store_tokens(task_, args, kDq, row, query, task_.q.size, args.worker + dq_);
  }

  // lse and delta, [head, query].
  void load_numbers(const KernelArgs& args, std::int64_t row, std::int64_t query) const {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    auto *lse = reinterpret_cast<float*>(args.worker + lse_),
         *delta = reinterpret_cast<float*>(args.worker + delta_);
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      for (std::int64_t i = query; i < query + task_.q.size; ++i, ++lse, ++delta) {
        *lse = *task_.number(args, kLse, row, i, h);
        if (*lse == -kInf) *lse = kInf;  // sees nothing: p = 0
        *delta = *task_.number(args, kDelta, row, i, h);
      }
    }
  }

  void meet(const KernelArgs& args, std::int64_t row, std::int64_t query, const RowMask& mask,
            const Run& run) const {
    const std::int64_t key = task_.k.begin(run.begin);
    const auto at = [&](std::size_t operand, std::int64_t token) {
      return task_.head(args, operand, row, token, 0).data;
    };
    std::byte* const w = args.worker;
    std::byte* const scratch = w + product_;
    scores_.of(run).execute(at(kQ, query), at(kK, key), w + score_, scratch);
    scores_.of(run).execute(at(kDo, query), at(kV, key), w + dp_, scratch);
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      const std::int64_t numbers = h * task_.q.size,
                         elements = numbers * run.count() * task_.k.size;
      const GradBlock g{reinterpret_cast<float*>(w + lse_) + numbers,
                        reinterpret_cast<float*>(w + delta_) + numbers,
                        reinterpret_cast<float*>(w + dp_) + elements,
                        w + ds_ + elements * byte_size(task_.product)};
      grad_rows(head_block(task_, mask, query, run, h, w + score_, w + p_), g, task_.probability());
    }
    const std::int64_t offset = key * task_.heads * task_.width * 4;
    keys_.of(run).execute(w + p_, at(kDo, query), w + dv_ + offset, scratch);
    keys_.of(run).execute(w + ds_, at(kQ, query), w + dk_ + offset, scratch);
    queries_.of(run).execute(w + ds_, at(kK, key), w + dq_, scratch);
  }

  AttentionTask task_;
  AttentionMask mask_;
  RunProducts scores_, queries_, keys_;
  std::size_t score_ = 0, dp_ = 0, p_ = 0, ds_ = 0, dq_ = 0, dk_ = 0, dv_ = 0, lse_ = 0, delta_ = 0,
              product_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_attention_together(const AttentionTask& task) {
  if (!fits(task, {kQ, kK, kV, 8})) return nullptr;
  return std::make_unique<TogetherForward>(task);
}

std::unique_ptr<Kernel> make_attention_grad_together(const AttentionTask& task) {
  constexpr std::int64_t kFewRows = 8;  // too few pieces
  if (task.rows < kFewRows || !fits(task, {kQ, kK, kV, kDo, 11, 12, 13})) return nullptr;
  return std::make_unique<TogetherGrad>(task);
}

}  // namespace dew::cpu
