// Sums and maxima over any dimensions. Kept and reduced dimensions are walked apart; the innermost
// run is either kept (rows are joined column by column, four at a time) or reduced (runs are joined
// to one number). Where too few elements are kept to share the work, the reduced space is cut into
// chunks of fixed size and a second phase joins the chunks in order.
#include <algorithm>
#include <cstring>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/copy_range.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"
#include "dew/runtime/cpu/kernels/reduce_rows.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPieceElements = 16 * 1024;
constexpr std::int64_t kMaxPieces = 64;
constexpr std::int64_t kColumns = 1024;  // joined at once
constexpr std::int64_t kGroupRows = 64;  // rows after which column sums are put aside
constexpr std::int64_t kResults = 256;   // numbers made before they are stored
constexpr std::int64_t kTile = 1024;     // elements of a run that must be copied

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Layout {
  Strided kept,
      reduced;  // of the input: dimensions that stay (without the columns), dimensions that go
  std::int64_t columns = 1,
               step = 1;  // innermost kept dimension, if it is the innermost of all; else 1
  Strided out;
};

class Reduce final : public Kernel {
 public:
  Reduce(const Layout& layout, DType dtype, bool maximum)
      : l_(layout), reducer_(&reducer(dtype, maximum)) {
    const bool narrow = byte_size(dtype) < 4;
    tile_reducer_ = narrow ? &reducer(DType::f32, maximum) : reducer_;
    size_ = byte_size(dtype);
    by_columns_ = l_.columns > 1;
    const std::int64_t elements = l_.kept.elements * l_.columns * l_.reduced.elements;
    const std::int64_t wanted = std::clamp<std::int64_t>(elements / kPieceElements, 1, kMaxPieces);
    blocks_ = ceil_div(l_.columns, kColumns);
    width_ = ceil_div(l_.columns, std::max<std::int64_t>(1, blocks_));
    const std::int64_t units = l_.kept.elements * blocks_;
    if (units > 0 && units < wanted)
      chunks_ = std::min(ceil_div(wanted, units), std::max<std::int64_t>(1, l_.reduced.elements));
    chunk_ = std::max<std::int64_t>(1, ceil_div(l_.reduced.elements, chunks_));
    units_ = cut_pieces(units, ceil_div(units, wanted), 1);
    finals_ = cut_pieces(kept_elements(), kColumns, 16);
    phases_ = {static_cast<int>(chunks_) * units_.count};
    if (chunks_ > 1) {
      phases_.push_back(finals_.count);
      shared_scratch_ = static_cast<std::size_t>(chunks_ * kept_elements()) * sizeof(float);
    }
    const std::int64_t floats = by_columns_ ? 2 * width() + 4 * width() : kResults + kTile;
    worker_scratch_ = static_cast<std::size_t>(std::max(floats, 2 * finals_.size)) * sizeof(float);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 1) return finish(args, piece);
    const std::int64_t chunk = piece / units_.count, first = piece % units_.count * units_.size;
    const std::int64_t last = std::min(first + units_.size, l_.kept.elements * blocks_);
    if (by_columns_) {
      for (std::int64_t unit = first; unit < last; ++unit)
        columns(args, unit / blocks_, unit % blocks_, chunk);
    } else {
      numbers(args, first, last, chunk);
    }
  }

 private:
  std::int64_t kept_elements() const { return l_.kept.elements * l_.columns; }
  std::int64_t width() const { return (width_ + 15) / 16 * 16; }

  // Results [first, first + n) of a chunk.
  void put(const KernelArgs& args, std::int64_t chunk, std::int64_t first, std::int64_t n,
           const float* from) const {
    if (n <= 0) return;
    const auto count = static_cast<std::size_t>(n);
    if (chunks_ == 1) return range_io().store(l_.out, args.operands[1], first, count, from);
    std::memcpy(reinterpret_cast<float*>(args.shared) + chunk * kept_elements() + first, from,
                count * sizeof(float));
  }

  // ---- innermost run kept ----
  void columns(const KernelArgs& args, std::int64_t kept, std::int64_t block,
               std::int64_t chunk) const {
    const std::int64_t first = block * width_, n = std::min(width_, l_.columns - first);
    auto* const total = reinterpret_cast<float*>(args.worker);
    float* const group = total + width();
    const std::byte* const base =
        args.operands[0] + (Runs(l_.kept, kept).offset() + first * l_.step) * size_;
    std::int64_t row = chunk * chunk_;
    const std::int64_t end = std::min(row + chunk_, l_.reduced.elements);
    const auto count = static_cast<std::size_t>(n);
    reducer_->clear(total, count);
    if (row >= end) return put(args, chunk, kept * l_.columns + first, n, total);
    Runs runs(l_.reduced, row);
    while (row < end) {
      const std::int64_t group_end = std::min(row + kGroupRows, end);
      bool fresh = true;
      while (row < group_end) {
        const int rows = static_cast<int>(std::min<std::int64_t>(4, group_end - row));
        join_rows(base, runs, rows, count, fresh, group);
        fresh = false;
        row += rows;
      }
      reducer_->join(group, total, count);
    }
    put(args, chunk, kept * l_.columns + first, n, total);
  }

  void join_rows(const std::byte* base, Runs& runs, int rows, std::size_t n, bool fresh,
                 float* acc) const {
    const std::byte* from[4] = {};
    for (int k = 0; k < rows; ++k) {
      from[k] = base + runs.offset() * size_;
      runs.advance(1);
    }
    if (l_.step == 1) return reducer_->columns(from, rows, n, fresh, acc);
    Strided row;
    row.dtype = l_.reduced.dtype;
    row.elements = row.sizes[0] = static_cast<std::int64_t>(n);
    row.strides[0] = l_.step;
    float* tile = acc + width();
    for (int k = 0; k < rows; ++k, tile += width()) {
      range_io().load(row, from[k], 0, n, tile);
      from[k] = reinterpret_cast<const std::byte*>(tile);
    }
    tile_reducer_->columns(from, rows, n, fresh, acc);
  }

  // ---- innermost run reduced ----
  void numbers(const KernelArgs& args, std::int64_t first, std::int64_t last,
               std::int64_t chunk) const {
    auto* const results = reinterpret_cast<float*>(args.worker);
    for (std::int64_t at = first; at < last; at += kResults) {
      const std::int64_t n = std::min(kResults, last - at);
      const bool plain = chunks_ == 1 && l_.reduced.dense() && l_.kept.rank == 1;
      if (plain) {
        const std::int64_t stride = l_.kept.step() * size_;
        reducer_->rows(args.operands[0] + at * stride, stride, static_cast<std::size_t>(n),
                       static_cast<std::size_t>(l_.reduced.elements), results);
      } else {
        Runs kept(l_.kept, at);
        for (std::int64_t i = 0; i < n; ++i) {
          results[i] = number(args.operands[0] + kept.offset() * size_, chunk, results + kResults);
          kept.advance(1);
        }
      }
      put(args, chunk, at, n, results);
    }
  }

  float number(const std::byte* base, std::int64_t chunk, float* tile) const {
    float lanes[kReduceLanes];
    reducer_->clear(lanes, kReduceLanes);
    std::int64_t at = chunk * chunk_;
    const std::int64_t end = std::min(at + chunk_, l_.reduced.elements);
    if (at >= end) return reducer_->finish(lanes);
    if (l_.reduced.step() == 1) {
      Runs runs(l_.reduced, at);
      while (at < end) {
        const std::int64_t n = std::min(runs.left(), end - at);
        reducer_->run(base + runs.offset() * size_, static_cast<std::size_t>(n), lanes);
        runs.advance(n);
        at += n;
      }
    } else {
      for (; at < end; at += kTile) {
        const auto n = static_cast<std::size_t>(std::min(kTile, end - at));
        range_io().load(l_.reduced, base, at, n, tile);
        tile_reducer_->run(reinterpret_cast<const std::byte*>(tile), n, lanes);
      }
    }
    return reducer_->finish(lanes);
  }

  void finish(const KernelArgs& args, int piece) const {
    const std::int64_t first = piece * finals_.size,
                       n = std::min(finals_.size, kept_elements() - first);
    if (n <= 0) return;
    auto* const total = reinterpret_cast<float*>(args.worker);
    const auto* const parts = reinterpret_cast<const float*>(args.shared) + first;
    std::memcpy(total, parts, static_cast<std::size_t>(n) * sizeof(float));
    for (std::int64_t c = 1; c < chunks_; ++c)
      reducer_->join(parts + c * kept_elements(), total, static_cast<std::size_t>(n));
    range_io().store(l_.out, args.operands[1], first, static_cast<std::size_t>(n), total);
  }

  Layout l_;
  const Reducer* reducer_;
  const Reducer* tile_reducer_;  // for elements in tiles, which have 32 bits
  std::int64_t size_ = 4;
  bool by_columns_ = false;
  std::int64_t blocks_ = 1, width_ = 1;  // of columns
  std::int64_t chunks_ = 1, chunk_ = 1;  // of the reduced space
  Pieces units_, finals_;
};

// Kept dimensions keep their order, that of the result; reduced ones come in any order, so the one
// of stride 1 last.
std::optional<Layout> layout_of(const View& in, const View& out, const Dims& reduced_dims) {
  Dims kept_sizes, kept_strides, sizes, strides;
  const auto rank = static_cast<std::int64_t>(in.type.shape.size());
  std::int64_t last = -1;  // innermost dimension that is not 1
  for (std::int64_t d = 0; d < rank; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (in.type.shape[i] != 1) last = d;
    const bool goes = contains(reduced_dims, d);
    (goes ? sizes : kept_sizes).push_back(in.type.shape[i]);
    (goes ? strides : kept_strides).push_back(in.strides[i]);
  }
  Layout l;
  if (last >= 0 && !contains(reduced_dims, last)) {
    while (kept_sizes.back() == 1) {
      kept_sizes.pop_back();
      kept_strides.pop_back();
    }
    l.columns = kept_sizes.back();
    l.step = kept_strides.back();
    kept_sizes.pop_back();
    kept_strides.pop_back();
    // More columns, if the dimension outside goes on with the same step.
    while (!kept_sizes.empty() && kept_strides.back() == l.step * l.columns) {
      l.columns *= kept_sizes.back();
      kept_sizes.pop_back();
      kept_strides.pop_back();
    }
  } else {
    for (std::size_t d = 0; d + 1 < sizes.size(); ++d) {
      if (strides[d] == 1 && sizes[d] > 1) {
        std::rotate(sizes.begin() + static_cast<std::ptrdiff_t>(d),
                    sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, sizes.end());
        std::rotate(strides.begin() + static_cast<std::ptrdiff_t>(d),
                    strides.begin() + static_cast<std::ptrdiff_t>(d) + 1, strides.end());
        break;
      }
    }
  }
  const auto kept = strided(kept_sizes, kept_strides, in.type.dtype),
             reduced = strided(sizes, strides, in.type.dtype);
  const auto result = strided(out);
  if (!kept || !reduced || !result) return std::nullopt;
  l.kept = *kept;
  l.reduced = *reduced;
  l.out = *result;
  return l;
}

// ---- sum of squares ----
class SumOfSquares final : public Kernel {
 public:
  explicit SumOfSquares(const Strided& x)
      : x_(x), squares_(sum_squares_of(x.dense() ? x.dtype : DType::f32)) {
    pieces_ = cut_pieces(x.elements, kPieceElements, kTile);
    phases_ = {pieces_.count, 1};
    shared_scratch_ = static_cast<std::size_t>(pieces_.count) * sizeof(double);
    if (!x.dense()) worker_scratch_ = kTile * sizeof(float);
    implementation_ = "highway";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    auto* const parts = reinterpret_cast<double*>(args.shared);
    if (phase == 0) {
      parts[piece] =
          part(args, piece * pieces_.size, std::min((piece + 1) * pieces_.size, x_.elements));
      return;
    }
    double sum = 0;
    for (int k = 0; k < pieces_.count; ++k) sum += parts[k];
    *reinterpret_cast<float*>(args.operands[1]) = static_cast<float>(sum);
  }

 private:
  double part(const KernelArgs& args, std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return 0;
    if (x_.dense())
      return squares_(args.operands[0] + begin * byte_size(x_.dtype),
                      static_cast<std::size_t>(end - begin));
    double sum = 0;
    for (; begin < end; begin += kTile) {
      const auto n = static_cast<std::size_t>(std::min(kTile, end - begin));
      range_io().load(x_, args.operands[0], begin, n, reinterpret_cast<float*>(args.worker));
      sum += squares_(args.worker, n);
    }
    return sum;
  }

  Strided x_;
  SumSquares squares_;
  Pieces pieces_;
};

}  // namespace

std::unique_ptr<Kernel> make_reduce(const Step& step, std::string& why_not) {
  if (step.op != &reduce_sum_op && step.op != &reduce_max_op) {
    why_not = "another op";
    return nullptr;
  }
  const DType dtype = step.inputs[0].type.dtype;
  const auto layout = layout_of(step.inputs[0], step.outputs[0], std::get<Axes>(step.attrs).dims);
  if (!layout || dtype == DType::pred || dtype == DType::f64) {
    why_not = layout ? format("no reduction of {}", name(dtype)) : "too many dimensions";
    return nullptr;
  }
  return std::make_unique<Reduce>(*layout, dtype, step.op == &reduce_max_op);
}

std::unique_ptr<Kernel> make_sum_squares(const Step& step, std::string& why_not) {
  const auto x = step.op == &sum_squares_op ? strided(step.inputs[0]) : std::nullopt;
  if (!x || !is_float(x->dtype)) {
    why_not = "another op, or too many dimensions";
    return nullptr;
  }
  return std::make_unique<SumOfSquares>(*x);
}

}  // namespace dew::cpu
