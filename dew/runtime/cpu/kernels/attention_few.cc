// Attention with few queries, as when a model generates: the work is reading keys and values. A
// piece takes a part of a row's keys, all heads of them as they lie behind each other, and leaves
// what its softmax has come to in shared scratch; a second phase joins the parts. Blocks of keys
// that no query sees, the empty columns of a cache among them, are not read.
#include "dew/runtime/cpu/kernels/attention_few.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dew/runtime/cpu/kernels/attention.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kFewQueries = 4;
constexpr std::int64_t kBlock = 64;      // keys whose scores are made at a time
constexpr std::int64_t kMostParts = 64;  // of a row's keys
constexpr float kNothing = -std::numeric_limits<float>::infinity();

const std::int32_t* numbers_of(const KernelArgs& args, const View& view, std::size_t operand,
                               std::int64_t row) {
  return reinterpret_cast<const std::int32_t*>(args.operands[operand]) + row * view.strides[0];
}

class AttentionFew : public Kernel {
 public:
  explicit AttentionFew(const AttentionTask& task)
      : task_(task), queries_(task.q.total), query_rows_(task.heads * task.q.total) {
    parts_ = Blocks(task.k.total, std::max(kBlock, (task.k.total + kMostParts - 1) / kMostParts),
                    kBlock);
    phases_ = {static_cast<int>(task.rows * parts_.count),
               static_cast<int>(task.rows * task.heads)};
    Regions shared;
    const std::int64_t states = task.rows * parts_.count * query_rows_;
    most_ = shared.add(states * 4);
    sum_ = shared.add(states * 4);
    output_ = shared.add(states * task.width * 4);
    shared_scratch_ = shared.total();
    Regions worker;
    q_ = worker.add(query_rows_ * task.width * 4);
    score_ = worker.add(query_rows_ * kBlock * 4);
    position_ = worker.add(kBlock * 4);
    segment_ = worker.add(kBlock * 4);
    worker_scratch_ = worker.total();
    implementation_ = "highway few queries";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return attend(args, piece / parts_.count, piece % parts_.count);
    join(args, piece / task_.heads, piece % task_.heads);
  }

 private:
  enum Output { kO = kWindow + 1, kLseOut };

  // What the queries of a row see.
  struct Queries {
    std::int32_t low[kFewQueries], high[kFewQueries], segment[kFewQueries];
    QueryBlock all;
  };

  // Softmax so far of a part of a row's keys: [head, query].
  SoftmaxState state(const KernelArgs& args, std::int64_t row, std::int64_t part,
                     std::int64_t head) const {
    const std::int64_t at = (row * parts_.count + part) * query_rows_ + head * queries_;
    const auto floats = [&](std::size_t region) {
      return reinterpret_cast<float*>(args.shared + region);
    };
    return {floats(most_) + at, floats(sum_) + at, floats(output_) + at * task_.width, task_.width,
            task_.width};
  }

  Queries queries(const KernelArgs& args, std::int64_t row) const {
    Queries q;
    const View &positions = task_.views[kQPositions], &segments = task_.views[kQSegments];
    const std::int32_t* position = numbers_of(args, positions, kQPositions, row);
    const std::int32_t* segment = numbers_of(args, segments, kQSegments, row);
    std::int32_t window;
    std::memcpy(&window, args.operands[kWindow], sizeof window);
    for (std::int64_t i = 0; i < queries_; ++i) {
      const SeenPositions seen =
          seen_positions(task_.attrs, position[i * positions.strides[1]], window);
      q.low[i] = seen.low;
      q.high[i] = seen.high;
      q.segment[i] = segment[i * segments.strides[1]];
    }
    q.all = query_block(q.low, q.high, q.segment, queries_);
    return q;
  }

  void attend(const KernelArgs& args, std::int64_t row, std::int64_t part) const {
    const SoftmaxState all = state(args, row, part, 0);
    std::fill_n(all.most, query_rows_, kNothing);
    std::fill_n(all.sum, query_rows_, 0.0f);
    const Queries q = queries(args, row);
    bool begun = false;
    const std::int64_t end = parts_.begin(part) + parts_.length(part);
    for (std::int64_t key = parts_.begin(part); key < end; key += kBlock) {
      const std::int64_t count = std::min(kBlock, end - key);
      const Sight sight = load_marks(args, row, key, count, q);
      if (sight == Sight::none) continue;
      if (!begun) begin(args, row, all);
      begun = true;
      meet(args, row, key, count, q, sight, all);
    }
  }

  // Positions and segments of a block of keys; what is behind the last is garbage.
  Sight load_marks(const KernelArgs& args, std::int64_t row, std::int64_t key, std::int64_t count,
                   const Queries& q) const {
    const View &positions = task_.views[kKPositions], &segments = task_.views[kKSegments];
    const std::int32_t* position = numbers_of(args, positions, kKPositions, row);
    const std::int32_t* segment = numbers_of(args, segments, kKSegments, row);
    auto *to_position = reinterpret_cast<std::int32_t*>(args.worker + position_),
         *to_segment = reinterpret_cast<std::int32_t*>(args.worker + segment_);
    for (std::int64_t j = 0; j < count; ++j) {
      to_position[j] = position[(key + j) * positions.strides[1]];
      to_segment[j] = segment[(key + j) * segments.strides[1]];
    }
    return sight(q.all, key_block(to_position, to_segment, count));
  }

  // The queries as f32, [head, query, width], and sums of nothing.
  void begin(const KernelArgs& args, std::int64_t row, const SoftmaxState& all) const {
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      auto* to = reinterpret_cast<float*>(args.worker + q_) + h * queries_ * task_.width;
      copy_matrix(task_.head(args, kQ, row, 0, h), {to, DType::f32, task_.width, 1}, queries_,
                  task_.width);
    }
    std::fill_n(all.output, query_rows_ * task_.width, 0.0f);
  }

  void meet(const KernelArgs& args, std::int64_t row, std::int64_t key, std::int64_t count,
            const Queries& q, Sight sight, const SoftmaxState& all) const {
    auto* const scores = reinterpret_cast<float*>(args.worker + score_);
    few_scores(keys(args, kK, row, key, count), reinterpret_cast<float*>(args.worker + q_), scores);
    ScoreBlock b;
    b.rows = queries_;
    b.columns = b.part = kBlock;
    b.masked = sight == Sight::all && count == kBlock ? 0 : 1;
    b.keys = count;
    b.mask = {q.low, q.high, q.segment, reinterpret_cast<std::int32_t*>(args.worker + position_),
              reinterpret_cast<std::int32_t*>(args.worker + segment_)};
    b.scale = {static_cast<float>(task_.attrs.scale), static_cast<float>(task_.attrs.softcap)};
    const Probability kind = task_.dtype == DType::bf16 ? Probability::rounded : Probability::f32;
    for (std::int64_t h = 0; h < task_.heads; ++h) {
      const std::int64_t at = h * queries_;
      b.p = b.scores = scores + at * kBlock;
      softmax_rows(
          b, {all.most + at, all.sum + at, all.output + at * task_.width, task_.width, task_.width},
          kind);
    }
    few_values(keys(args, kV, row, key, count), scores, all.output);
  }

  KeyRun keys(const KernelArgs& args, std::size_t operand, std::int64_t row, std::int64_t key,
              std::int64_t count) const {
    const Matrix first = task_.head(args, operand, row, key, 0);
    return {.data = static_cast<const std::byte*>(first.data),
            .dtype = task_.dtype,
            .key_stride = first.row,
            .head_stride = task_.views[operand].strides[2],
            .count = count,
            .kv_heads = task_.kv_heads,
            .rows = task_.group * queries_,
            .width = task_.width,
            .columns = kBlock};
  }

  // The parts of one head, in their order, go to the first of them that has seen anything.
  void join(const KernelArgs& args, std::int64_t row, std::int64_t head) const {
    for (std::int64_t i = 0; i < queries_; ++i) {
      const auto part_state = [&](std::int64_t part) {
        const SoftmaxState s = state(args, row, part, head);
        return SoftmaxState{s.most + i, s.sum + i, s.output + i * task_.width, task_.width,
                            task_.width};
      };
      std::int64_t first = 0;
      while (first + 1 < parts_.count && *part_state(first).most == kNothing) ++first;
      const SoftmaxState whole = part_state(first);
      for (std::int64_t part = first + 1; part < parts_.count; ++part) {
        if (*part_state(part).most != kNothing) add(part_state(part), whole);
      }
      if (*whole.most == kNothing) std::fill_n(whole.output, task_.width, 0.0f);
      const Matrix o = task_.head(args, kO, row, i, head);
      finish_rows(
          whole, 1,
          {o.data, o.row, o.dtype == DType::bf16, task_.number(args, kLseOut, row, i, head)});
    }
  }

  void add(const SoftmaxState& part, const SoftmaxState& whole) const {
    const float most = std::max(*part.most, *whole.most);
    const float kept = std::exp2(*whole.most - most), factor = std::exp2(*part.most - most);
    for (std::int64_t d = 0; kept != 1.0f && d < task_.width; ++d) whole.output[d] *= kept;
    add_scaled(part.output, factor, task_.width, whole.output);
    *whole.sum = *whole.sum * kept + *part.sum * factor;
    *whole.most = most;
  }

  AttentionTask task_;
  std::int64_t queries_, query_rows_;
  Blocks parts_;  // of a row's keys
  std::size_t most_ = 0, sum_ = 0, output_ = 0, q_ = 0, score_ = 0, position_ = 0, segment_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_attention_few(const AttentionTask& task) {
  const bool some = task.rows * task.heads * task.q.total * task.k.total > 0;
  const auto rows_dense = [&](std::size_t operand) {
    return task.width == 1 || task.views[operand].strides[3] == 1;
  };
  if (!some || task.q.total > kFewQueries || !rows_dense(kK) || !rows_dense(kV) ||
      !rows_dense(kWindow + 1))
    return nullptr;
  return std::make_unique<AttentionFew>(task);
}

}  // namespace dew::cpu
