#include "dew/runtime/cpu/kernels/head_loss.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "dew/runtime/cpu/kernels/head_loss_rows.h"
#include "dew/runtime/cpu/kernels/kernels_onednn.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kLogitBytes = std::int64_t{52} << 20;  // of a chunk
constexpr std::int64_t kPartBytes = std::int64_t{12} << 20;   // of a chunk's parts of d_h
constexpr std::int64_t kPackBytes = std::int64_t{2} << 20;    // of a range's copy
constexpr std::int64_t kManyRanges = 16;  // enough pieces without cutting rows too

enum Input : std::size_t { kH, kTable, kLabels, kWeights, kAddend };
enum Output : std::size_t { kLossOut, kNllOut, kCorrectOut, kLseOut, kDhOut, kDtableOut };

void cut(HeadTask& task) {
  const std::int64_t of_memory = kLogitBytes / std::max<std::int64_t>(task.vocab * 4, 1) / 64 * 64;
  const std::int64_t most = std::clamp<std::int64_t>(of_memory, 128, 1024);
  task.chunks = Blocks(task.tokens(), most, task.tokens() > 64 ? 64 : 1);
  std::int64_t range = std::clamp<std::int64_t>((task.vocab + 15) / 16, 64, 512);
  if (task.pack_table)
    range = std::min(
        range, std::max<std::int64_t>(kPackBytes / std::max<std::int64_t>(task.width * 4, 1), 64));
  task.ranges = Blocks(task.vocab, range, task.vocab >= 64 ? 64 : 16);
  const std::int64_t part = std::max<std::int64_t>(task.chunks.size * task.width * 4, 1);
  const std::int64_t segments = std::clamp<std::int64_t>(kPartBytes / part, 4, 16);
  task.segments =
      Blocks(task.ranges.count,
             (task.ranges.count + segments - 1) / std::max<std::int64_t>(segments, 1), 1);
  task.strips =
      Blocks(task.chunks.size, std::max<std::int64_t>((task.chunks.size + 7) / 8, 16), 16);
}

}  // namespace

std::string head_task(const Step& step, HeadTask& task) {
  task.attrs = std::get<HeadAttrs>(step.attrs);
  const std::size_t outputs = task.attrs.gradients ? 6 : 4;
  if (step.inputs.size() < 4 || step.inputs.size() > 5 || step.outputs.size() != outputs)
    return "head_loss: operands";
  task.accumulate = step.inputs.size() == 5;
  if (task.accumulate && !task.attrs.gradients) return "head_loss: an addend, but no gradient";
  const Type& h = step.inputs[kH].type;
  task.rows = h.shape[0];
  task.columns = h.shape[1];
  task.width = h.shape[2];
  task.vocab = step.inputs[kTable].type.shape[0];
  if (task.width == 0 || task.vocab == 0) return "head_loss: no vocabulary, or states of no width";
  task.dtype = h.dtype;
  task.product = h.dtype == DType::bf16 && !onednn_has_fast_bf16() ? DType::f32 : h.dtype;
  task.outputs = step.inputs.size();
  task.views = step.inputs;
  task.views.insert(task.views.end(), step.outputs.begin(), step.outputs.end());
  const Dims& table = step.inputs[kTable].strides;
  const bool in_place = (table[1] == 1 || task.width == 1) && table[0] >= task.width;
  task.pack_table = task.product != task.dtype || !in_place;
  if (task.attrs.gradients) {
    const Dims& d_table = step.outputs[kDtableOut].strides;
    if (task.width > 1 && (d_table[1] != 1 || d_table[0] < task.width))
      return "head_loss: rows of d_table must be dense";
  }
  cut(task);
  return {};
}

std::size_t HeadProducts::scratch_bytes() const {
  std::size_t most = 0;
  for (const auto& p : products_) most = p ? std::max(most, p->scratch_bytes()) : most;
  return most;
}

namespace {

class HeadLossKernel : public Kernel {
 public:
  explicit HeadLossKernel(const HeadTask& task);
  void run(const KernelArgs& args, int phase, int piece) const noexcept override;

 private:
  enum class Work { index, logits, merge, gradients, turn, finish };
  struct Phase {
    Work work;
    std::int64_t chunk;
  };

  void add_phase(Work work, std::int64_t chunk, std::int64_t pieces);
  void plan_phases();
  void make_products();
  void lay_out_scratch();

  void index_tokens(const KernelArgs& args) const;
  void make_logits(const KernelArgs& args, std::int64_t chunk, std::int64_t piece) const;
  void merge(const KernelArgs& args, std::int64_t chunk, std::int64_t strip) const;
  void make_gradients(const KernelArgs& args, std::int64_t chunk, std::int64_t segment) const;
  void multiply_gradients(const KernelArgs& args, std::int64_t chunk, std::int64_t segment,
                          std::int64_t range) const;
  void gather_h(const KernelArgs& args, std::int64_t chunk, std::int64_t strip) const;
  void scatter_dh(const KernelArgs& args, std::int64_t chunk, std::int64_t strip) const;
  void finish(const KernelArgs& args, std::int64_t piece) const;
  void add_up(const KernelArgs& args) const;

  template <class T>
  T* shared(const KernelArgs& args, std::size_t region, std::int64_t index = 0) const {
    return reinterpret_cast<T*>(args.shared + region) + index;
  }
  // One number of an operand [rows, columns] of 32 bits.
  template <class T>
  T* number(const KernelArgs& args, std::size_t operand, std::int64_t token) const {
    const Dims& s = task_.views[operand].strides;
    return reinterpret_cast<T*>(args.operands[operand]) + token / task_.columns * s[0] +
           token % task_.columns * s[1];
  }
  Matrix state(const KernelArgs& args, std::size_t operand, std::int64_t token) const;
  // Tokens of a chunk that exist, and the tokens' numbers.
  std::int64_t real(const KernelArgs& args, std::int64_t chunk) const {
    return std::clamp<std::int64_t>(*shared<std::int64_t>(args, count_) - task_.chunks.begin(chunk),
                                    0, task_.chunks.size);
  }
  const std::int32_t* tokens(const KernelArgs& args, std::int64_t chunk) const {
    return shared<std::int32_t>(args, index_, task_.chunks.begin(chunk));
  }
  bool in_quarters(std::int64_t real_rows) const { return real_rows * 2 <= task_.chunks.size; }
  bool is_last(std::int64_t range) const { return task_.ranges.length(range) != task_.ranges.size; }
  float* logits(const KernelArgs& args, std::int64_t range) const {
    return shared<float>(args, z_, task_.ranges.begin(range) * task_.chunks.size);
  }
  const void* table(const KernelArgs& args, std::int64_t range) const;
  Matrix d_table(const KernelArgs& args, std::int64_t id) const {
    const std::int64_t row = task_.views[output(kDtableOut)].strides[0];
    return {reinterpret_cast<float*>(args.operands[output(kDtableOut)]) + id * row, DType::f32, row,
            1};
  }
  std::size_t output(Output o) const { return task_.outputs + o; }

  HeadTask task_;
  std::vector<Phase> plan_;
  bool cut_rows_ = false;  // logits are made in pieces of a quarter of the chunk
  HeadProducts logits_, table_first_, table_next_, dh_first_, dh_next_;
  // Regions of shared scratch: numbers of each token of the batch, then of each row of a chunk.
  std::size_t count_ = 0, index_ = 0, label_z_ = 0, winners_ = 0;
  std::size_t h_ = 0, z_ = 0, most_ = 0, sum_ = 0, winner_ = 0, lse_ = 0, factor_ = 0, weight_ = 0,
              label_ = 0, parts_ = 0;
  std::size_t range_ = 0, dz_ = 0, product_ = 0;  // of the worker's
};

HeadLossKernel::HeadLossKernel(const HeadTask& task) : task_(task) {
  cut_rows_ = task_.ranges.count < kManyRanges && task_.quarter() < task_.chunks.size;
  plan_phases();
  if (task_.tokens() > 0) make_products();
  lay_out_scratch();
  implementation_ = "onednn " + logits_.implementation() + " ranges, highway softmax";
}

void HeadLossKernel::add_phase(Work work, std::int64_t chunk, std::int64_t pieces) {
  plan_.push_back({work, chunk});
  phases_.push_back(static_cast<int>(pieces));
}

void HeadLossKernel::plan_phases() {
  phases_.clear();
  const std::int64_t strips = task_.strips.count;
  add_phase(Work::index, 0, 1);
  if (task_.tokens() > 0) add_phase(Work::turn, -1, strips);
  for (std::int64_t c = 0; c < task_.chunks.count; ++c) {
    add_phase(Work::logits, c, task_.ranges.count * (cut_rows_ ? 4 : 1));
    add_phase(Work::merge, c, strips);
    if (task_.attrs.gradients) add_phase(Work::gradients, c, task_.segments.count);
    const bool last = c + 1 == task_.chunks.count;
    if (task_.attrs.gradients || !last) add_phase(Work::turn, c, 2 * strips);
  }
  add_phase(Work::finish, 0, task_.attrs.gradients ? 9 : 1);
}

void HeadLossKernel::run(const KernelArgs& args, int phase, int piece) const noexcept {
  const Phase p = plan_[static_cast<std::size_t>(phase)];
  switch (p.work) {
    case Work::index:
      return index_tokens(args);
    case Work::logits:
      return make_logits(args, p.chunk, piece);
    case Work::merge:
      return merge(args, p.chunk, piece);
    case Work::gradients:
      return make_gradients(args, p.chunk, piece);
    case Work::turn:
      if (piece < task_.strips.count) return gather_h(args, p.chunk + 1, piece);
      return scatter_dh(args, p.chunk, piece - task_.strips.count);
    case Work::finish:
      return finish(args, piece);
  }
}

void HeadLossKernel::make_products() {
  const std::int64_t e = task_.width;
  const std::int64_t table_row = task_.pack_table ? e : task_.views[kTable].strides[0];
  const DType in = task_.product;
  logits_ = HeadProducts(task_, [&](std::int64_t tokens, std::int64_t n) {
    return ProductShape{.m = tokens,
                        .n = n,
                        .k = e,
                        .a_row = e,
                        .b_row = 1,
                        .b_col = table_row,
                        .c_row = n,
                        .in = in};
  });
  if (!task_.attrs.gradients) return;
  const std::int64_t d_table_row = task_.views[output(kDtableOut)].strides[0];
  const auto of_table = [&](bool add) {
    return HeadProducts(task_, [&](std::int64_t tokens, std::int64_t n) {
      return ProductShape{.m = n,
                          .n = e,
                          .k = tokens,
                          .a_row = 1,
                          .a_col = n,
                          .b_row = e,
                          .c_row = d_table_row,
                          .in = in,
                          .accumulate = add};
    });
  };
  const auto of_dh = [&](bool add) {
    return HeadProducts(task_, [&](std::int64_t tokens, std::int64_t n) {
      return ProductShape{.m = tokens,
                          .n = e,
                          .k = n,
                          .a_row = n,
                          .b_row = table_row,
                          .c_row = e,
                          .in = in,
                          .accumulate = add};
    });
  };
  if (!task_.accumulate) table_first_ = of_table(false);
  table_next_ = of_table(true);
  dh_first_ = of_dh(false);
  dh_next_ = of_dh(true);
}

void HeadLossKernel::lay_out_scratch() {
  const std::int64_t rows = task_.chunks.size, e = task_.width, bytes = byte_size(task_.product);
  const bool gradients = task_.attrs.gradients;
  Regions s;
  count_ = s.add(8);
  for (auto* region : {&index_, &label_z_, &winners_}) *region = s.add(task_.chunks.padded() * 4);
  h_ = s.add(rows * e * bytes);
  z_ = s.add(rows * task_.vocab * 4);
  for (auto* region : {&most_, &sum_, &winner_}) *region = s.add(rows * task_.ranges.count * 4);
  for (auto* region : {&lse_, &factor_, &weight_, &label_}) *region = s.add(rows * 4);
  if (gradients) parts_ = s.add(task_.segments.count * rows * e * 4);
  shared_scratch_ = s.total();

  Regions w;
  if (task_.pack_table) range_ = w.add(task_.ranges.size * e * bytes);
  if (gradients && task_.product == DType::bf16) dz_ = w.add(rows * task_.ranges.size * 2);
  std::size_t most = 0;
  for (const auto* p : {&logits_, &table_first_, &table_next_, &dh_first_, &dh_next_}) {
    most = std::max(most, p->scratch_bytes());
  }
  product_ = w.add(static_cast<std::int64_t>(most));
  worker_scratch_ = w.total();
}

Matrix HeadLossKernel::state(const KernelArgs& args, std::size_t operand,
                             std::int64_t token) const {
  const Dims& s = task_.views[operand].strides;
  const std::int64_t offset = token / task_.columns * s[0] + token % task_.columns * s[1];
  return {args.operands[operand] + offset * byte_size(task_.dtype), task_.dtype, s[1], s[2]};
}

// Rows of the table as products read them.
const void* HeadLossKernel::table(const KernelArgs& args, std::int64_t range) const {
  const Dims& s = task_.views[kTable].strides;
  const Matrix whole{args.operands[kTable], task_.dtype, s[0], s[1]};
  const Matrix rows{whole.at(task_.ranges.begin(range), 0), task_.dtype, s[0], s[1]};
  if (!task_.pack_table) return rows.data;
  copy_matrix(rows, {args.worker + range_, task_.product, task_.width, 1},
              task_.ranges.length(range), task_.width);
  return args.worker + range_;
}

// Lists the tokens that count. The others have lse 0.
void HeadLossKernel::index_tokens(const KernelArgs& args) const {
  auto* index = shared<std::int32_t>(args, index_);
  std::int64_t count = 0;
  for (std::int64_t t = 0; t < task_.tokens(); ++t) {
    *number<float>(args, output(kLseOut), t) = 0;
    if (*number<float>(args, kWeights, t) != 0) index[count++] = static_cast<std::int32_t>(t);
  }
  *shared<std::int64_t>(args, count_) = count;
}

// Copies rows of the chunk's h side by side; rows without a token are 0.
void HeadLossKernel::gather_h(const KernelArgs& args, std::int64_t chunk,
                              std::int64_t strip) const {
  if (chunk == task_.chunks.count) return;
  const std::int64_t begin = task_.strips.begin(strip), n = real(args, chunk);
  const Matrix h{args.shared + h_, task_.product, task_.width, 1};
  for (std::int64_t r = begin; r < begin + task_.strips.length(strip); ++r) {
    const Matrix row{h.at(r, 0), h.dtype, h.row, 1};
    if (r < n) {
      copy_matrix(state(args, kH, tokens(args, chunk)[r]), row, 1, task_.width);
    } else {
      fill_zero(row, 1, task_.width);
    }
  }
}

void HeadLossKernel::make_logits(const KernelArgs& args, std::int64_t chunk,
                                 std::int64_t piece) const {
  const std::int64_t range = piece % task_.ranges.count, quarter = task_.quarter();
  const std::int64_t rows = real(args, chunk), n = task_.ranges.length(range);
  std::int64_t begin = 0, end = rows;
  if (cut_rows_) {
    begin = piece / task_.ranges.count * quarter;
    end = std::min(rows, begin + quarter);
  }
  if (begin >= end) return;
  const bool quarters = cut_rows_ || in_quarters(rows);
  const void* weights = table(args, range);
  const Matrix h{args.shared + h_, task_.product, task_.width, 1};
  float* const z = logits(args, range);
  for (std::int64_t r = begin; r < end; r += quarters ? quarter : task_.chunks.size) {
    logits_.of(quarters, is_last(range))
        .execute(h.at(r, 0), weights, z + r * n, args.worker + product_);
  }
  const std::int64_t at = range * task_.chunks.size + begin;
  measure_logits({z + begin * n, end - begin, n, task_.ranges.begin(range),
                  static_cast<float>(task_.attrs.softcap)},
                 {shared<float>(args, most_, at), shared<float>(args, sum_, at),
                  shared<std::int32_t>(args, winner_, at)});
}

void HeadLossKernel::merge(const KernelArgs& args, std::int64_t chunk, std::int64_t strip) const {
  const std::int64_t begin = task_.strips.begin(strip);
  const std::int64_t rows = std::min(task_.strips.length(strip), real(args, chunk) - begin);
  if (rows <= 0) return;
  auto* lse = shared<float>(args, lse_, begin);
  const std::int64_t first = task_.chunks.begin(chunk) + begin;  // in the list
  merge_stats({shared<float>(args, most_, begin), shared<float>(args, sum_, begin),
               shared<std::int32_t>(args, winner_, begin)},
              task_.ranges.count, task_.chunks.size, rows, lse,
              shared<std::int32_t>(args, winners_, first));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t token = tokens(args, chunk)[begin + r];
    const std::int32_t label = *number<std::int32_t>(args, kLabels, token);
    const float weight = *number<float>(args, kWeights, token);
    const bool known = label >= 0 && label < task_.vocab;
    const std::int64_t range = known ? label / task_.ranges.size : 0;
    const std::int64_t column = label - task_.ranges.begin(range);
    *shared<float>(args, label_z_, first + r) =
        known ? logits(args, range)[(begin + r) * task_.ranges.length(range) + column] : 0.0f;
    *shared<std::int32_t>(args, label_, begin + r) = label;
    *shared<float>(args, weight_, begin + r) = weight;
    *shared<float>(args, factor_, begin + r) =
        weight * (1 + 2 * static_cast<float>(task_.attrs.z_loss) * lse[r]);
    *number<float>(args, output(kLseOut), token) = lse[r];
  }
}

void HeadLossKernel::make_gradients(const KernelArgs& args, std::int64_t chunk,
                                    std::int64_t segment) const {
  const std::int64_t begin = task_.segments.begin(segment);
  for (std::int64_t range = begin; range < begin + task_.segments.length(segment); ++range) {
    multiply_gradients(args, chunk, segment, range);
  }
}

void HeadLossKernel::multiply_gradients(const KernelArgs& args, std::int64_t chunk,
                                        std::int64_t segment, std::int64_t range) const {
  const std::int64_t rows = real(args, chunk), n = task_.ranges.length(range), e = task_.width;
  const Matrix target = d_table(args, task_.ranges.begin(range));
  if (rows == 0) {
    if (chunk == 0 && !task_.accumulate) fill_zero(target, n, e);
    return;
  }
  const bool quarters = in_quarters(rows);
  const std::int64_t step = quarters ? task_.quarter() : task_.chunks.size,
                     covered = (rows + step - 1) / step * step;
  const bool bf16 = task_.product == DType::bf16;
  void* const rounded = bf16 ? args.worker + dz_ : nullptr;
  float* const z = logits(args, range);
  logit_gradients(
      {z, covered, n, task_.ranges.begin(range), static_cast<float>(task_.attrs.softcap)},
      {shared<float>(args, lse_), shared<float>(args, factor_), shared<float>(args, weight_),
       shared<std::int32_t>(args, label_)},
      rows, rounded);

  const void* weights = table(args, range);
  const Matrix dz{bf16 ? rounded : z, task_.product, n, 1},
      h{args.shared + h_, task_.product, e, 1};
  const Matrix part{shared<float>(args, parts_, segment * task_.chunks.size * e), DType::f32, e, 1};
  const bool last = is_last(range);
  for (std::int64_t r = 0; r < covered; r += step) {
    const auto& of_table = chunk == 0 && r == 0 && !task_.accumulate ? table_first_ : table_next_;
    of_table.of(quarters, last)
        .execute(dz.at(r, 0), h.at(r, 0), target.data, args.worker + product_);
    const auto& of_dh = range == task_.segments.begin(segment) ? dh_first_ : dh_next_;
    of_dh.of(quarters, last).execute(dz.at(r, 0), weights, part.at(r, 0), args.worker + product_);
  }
}

// Adds the parts of d_h in the order of segments.
void HeadLossKernel::scatter_dh(const KernelArgs& args, std::int64_t chunk,
                                std::int64_t strip) const {
  const std::int64_t begin = task_.strips.begin(strip), e = task_.width;
  const std::int64_t end = std::min(begin + task_.strips.length(strip), real(args, chunk));
  if (!task_.attrs.gradients) return;
  for (std::int64_t r = begin; r < end; ++r) {
    float* const sum = shared<float>(args, parts_, r * e);
    for (std::int64_t s = 1; s < task_.segments.count; ++s) {
      add_row(sum, sum + s * task_.chunks.size * e, e);
    }
    copy_matrix({sum, DType::f32, e, 1}, state(args, output(kDhOut), tokens(args, chunk)[r]), 1, e);
  }
}

// Piece 0: the sums. The others: d_h of tokens that do not count is 0.
void HeadLossKernel::finish(const KernelArgs& args, std::int64_t piece) const {
  if (piece == 0) {
    if (task_.tokens() == 0 && task_.attrs.gradients && !task_.accumulate) {
      fill_zero(d_table(args, 0), task_.vocab, task_.width);
    }
    return add_up(args);
  }
  const std::int64_t begin = task_.tokens() * (piece - 1) / 8, end = task_.tokens() * piece / 8;
  for (std::int64_t t = begin; t < end; ++t) {
    if (*number<float>(args, kWeights, t) == 0)
      fill_zero(state(args, output(kDhOut), t), 1, task_.width);
  }
}

void HeadLossKernel::add_up(const KernelArgs& args) const {
  const std::int64_t count = *shared<std::int64_t>(args, count_);
  double loss = 0, nll = 0, correct = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = *shared<std::int32_t>(args, index_, i);
    const double weight = *number<float>(args, kWeights, token),
                 lse = *number<float>(args, output(kLseOut), token);
    const double of_token = lse - *shared<float>(args, label_z_, i);
    nll += weight * of_token;
    loss += weight * (of_token + task_.attrs.z_loss * lse * lse);
    const std::int32_t label = *number<std::int32_t>(args, kLabels, token);
    if (label >= 0 && label == *shared<std::int32_t>(args, winners_, i)) correct += weight;
  }
  const std::pair<Output, double> sums[] = {
      {kLossOut, loss}, {kNllOut, nll}, {kCorrectOut, correct}};
  for (const auto& [out, value] : sums)
    *reinterpret_cast<float*>(args.operands[output(out)]) = static_cast<float>(value);
}

}  // namespace

std::unique_ptr<Kernel> make_head_loss(const Step& step, std::string& why_not) {
  HeadTask task;
  why_not = head_task(step, task);
  if (!why_not.empty()) return nullptr;
  return std::make_unique<HeadLossKernel>(task);
}

}  // namespace dew::cpu
