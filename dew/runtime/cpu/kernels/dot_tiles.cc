// dot as oneDNN products of pieces of the result. Operands are read in place where oneDNN can (one
// stride is 1) and it has products of their dtype; else tiles of them are copied to the worker's
// scratch. Likewise the result: a tile is summed in scratch if it has several terms that would be
// rounded to bf16 in between, or if its rows are not contiguous.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "dew/runtime/cpu/kernels/dot.h"
#include "dew/runtime/cpu/kernels/dot_pack.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kPackedK = 512;  // contracted elements of a copied tile
constexpr std::int64_t kStagedElements =
    1 << 17;  // of a tile of the result that is summed in scratch by choice

// ---- which pieces ----

struct Cut {
  Chunks m, n, batch;
};

std::int64_t power_of_two_near(double x) {
  std::int64_t p = 1;
  while (static_cast<double>(p) * 1.5 < x) p *= 2;
  return p;
}

// A piece of less takes less than 9 us: not worth handing to another worker.
double piece_flops(DType in) { return in == DType::bf16 ? 2e6 : 1e6; }

// Pieces in all: powers of two, so that 2, 4, 8 and 16 workers have equal shares; more for long
// products, so that a disturbed worker delays the rest by little.
std::int64_t wanted_pieces(double flops, DType in) {
  std::int64_t want = 1;
  while (want < 16 && flops / static_cast<double>(want) >= 2 * piece_flops(in)) want *= 2;
  while (want < 64 && flops / static_cast<double>(want) >= 100 * piece_flops(in)) want *= 2;
  return want;
}

// How wide a piece should be. Measured on Zen 4 (bench/kernels_matmul.cc): square pieces read
// least, and 64 rows of 192 columns are as fast as the whole, but with a transposed, 96 rows of 256
// (f32) or 384 (bf16). Narrow pieces of bf16 lose oneDNN's best kernel, so results of bf16 up to
// 1024 wide are cut into rows.
double wanted_width(const DotLoops& l, DType in, double area) {
  const bool bf16 = in == DType::bf16;
  if (bf16 && !l.a_transposed() && l.n.size <= 1024) return static_cast<double>(l.n.size);
  return std::max(std::sqrt(area), l.a_transposed() ? (bf16 ? 384.0 : 256.0) : 192.0);
}

Cut cut_result(const DotLoops& l, DType in, bool packed) {
  const std::int64_t batches = l.batches();
  const auto m = static_cast<double>(l.m.size), n = static_cast<double>(l.n.size);
  const double flops = 2.0 * m * n * static_cast<double>(l.k.size * l.terms());
  const std::int64_t want = wanted_pieces(flops * static_cast<double>(batches), in);
  const std::int64_t want_of_one = (want + batches - 1) / batches;

  const double width = wanted_width(l, in, m * n / static_cast<double>(want_of_one));
  std::int64_t cols = std::min(want_of_one, power_of_two_near(n / width));
  const std::int64_t low = l.a_transposed() ? 96 : 64;
  std::int64_t rows =
      std::clamp<std::int64_t>(want_of_one / cols, 1, std::max<std::int64_t>(l.m.size / low, 1));
  // Too few: lower pieces while they stay worth it, then narrower ones.
  const auto too_few = [&] { return rows * cols < std::min<std::int64_t>(want_of_one, 16); };
  const std::int64_t lowest = l.b_transposed() ? 64 : 32, narrowest = l.a_transposed() ? 128 : 64;
  const auto worth_it = [&] {
    return flops / static_cast<double>(rows * cols) >= 2 * piece_flops(in);
  };
  while (too_few() && l.m.size / rows >= 2 * lowest && worth_it()) rows *= 2;
  while (too_few() && l.n.size / cols >= 2 * narrowest) cols *= 2;
  if (packed) {  // bounds the scratch
    rows = std::max(rows, (l.m.size + 127) / 128);
    cols = std::max(cols, (l.n.size + 383) / 384);
  }
  return {Chunks(l.m.size, rows, 16), Chunks(l.n.size, cols, l.n.size / cols >= 64 ? 64 : 16),
          Chunks(batches, want, 1)};
}

// ---- what is read and written in place ----

// Whether a product can read a [rows, cols] matrix with these strides.
bool in_place(std::int64_t rows, std::int64_t cols, std::int64_t row, std::int64_t col) {
  if (rows == 1) return cols == 1 || col >= 1;
  if (cols == 1) return row >= 1;
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

// Scratch of a worker is a sequence of regions.
std::size_t region(std::size_t& total, std::int64_t bytes) {
  const std::size_t offset = total;
  total += (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
  return offset;
}

class TileDot : public Kernel {
 public:
  explicit TileDot(const DotTask& task);
  void run(const KernelArgs& args, int phase, int piece) const noexcept override;

 private:
  // A tile of the result.
  struct Tile {
    std::int64_t m, n;  // its first element
    std::int64_t rows, cols, batch;
    unsigned variant;  // which sizes it has
  };
  // Bits of a product's number.
  enum : unsigned { kLastM = 1, kLastN = 2, kLastBatch = 4, kLastK = 8, kAdd = 16, kVariants = 32 };

  void lay_out_scratch();
  void make_products();
  ProductShape shape_of(unsigned variant) const;
  Matrix a_tile(const DotAddresses& at, const Tile& t, std::int64_t k, std::int64_t length,
                std::byte* scratch) const;
  Matrix b_tile(const DotAddresses& at, const Tile& t, std::int64_t k, std::int64_t length,
                std::byte* scratch) const;
  void run_tile(const DotAddresses& at, const Tile& t, std::byte* scratch) const noexcept;
  void add_terms(const DotAddresses& at, const Tile& t, void* c, bool add,
                 std::byte* scratch) const noexcept;

  DotTask task_;
  DType dtype_;           // of the products' operands
  bool pack_a_, pack_b_;  // tiles are copied
  bool stage_c_;          // tiles are summed in scratch
  bool batched_ = false;  // a piece's batches are one product
  Cut cut_;
  Chunks k_;
  std::size_t a_at_ = 0, b_at_ = 0, c_at_ = 0, product_at_ = 0;  // regions of the scratch
  std::optional<Product> products_[kVariants];
};

TileDot::TileDot(const DotTask& task) : task_(task) {
  // Rows of the result must be contiguous: if its columns are, compute its transpose.
  if (task_.loops.n.c != 1 && task_.loops.m.c == 1) {
    task_.loops = transposed(std::move(task_.loops));
    std::swap(task_.a, task_.b);
  }
  const DotLoops& l = task_.loops;
  dtype_ = task_.in == DType::bf16 && !onednn_has_fast_bf16() ? DType::f32 : task_.in;
  pack_a_ = dtype_ != task_.in || !in_place(l.m.size, l.k.size, l.m.a, l.k.a);
  pack_b_ = dtype_ != task_.in || !in_place(l.k.size, l.n.size, l.k.b, l.n.b);
  const bool many_terms = l.terms() > 1 || ((pack_a_ || pack_b_) && l.k.size > kPackedK);
  const bool rows_contiguous =
      l.n.size == 1 || (l.n.c == 1 && (l.m.size == 1 || l.m.c >= l.n.size));
  // A product of f32 operands cannot write bf16.
  stage_c_ = !rows_contiguous || (task_.out == DType::bf16 && (many_terms || dtype_ == DType::f32));
  cut_ = cut_result(l, dtype_, pack_a_ || pack_b_ || stage_c_);
  // Where b is transposed, oneDNN's kernel for dense results is faster by more than a copy takes.
  const bool dense_pays = l.b_transposed() && cut_.n.count() > 1 && l.k.size >= 192;
  stage_c_ = stage_c_ || (dense_pays && cut_.m.chunk * cut_.n.chunk <= kStagedElements);
  k_ = Chunks(l.k.size, pack_a_ || pack_b_ ? (l.k.size + kPackedK - 1) / kPackedK : 1, 16);
  const bool one_tile = cut_.m.count() == 1 && cut_.n.count() == 1;
  batched_ = !pack_a_ && !pack_b_ && !stage_c_ && one_tile && l.sums.empty() &&
             l.batch.size() == 1 && l.batch[0].a > 0 &&
             l.batch[0].b > 0;  // a batch stride of 0 would give the reference implementation
  phases_ = {static_cast<int>(cut_.batch.count() * cut_.m.count() * cut_.n.count())};
  make_products();
  lay_out_scratch();
}

void TileDot::lay_out_scratch() {
  const std::int64_t bytes = byte_size(dtype_);
  if (pack_a_) a_at_ = region(worker_scratch_, cut_.m.chunk * k_.chunk * bytes);
  if (pack_b_) b_at_ = region(worker_scratch_, cut_.n.chunk * k_.chunk * bytes);
  if (stage_c_) c_at_ = region(worker_scratch_, cut_.m.chunk * cut_.n.chunk * 4);
  std::size_t most = 0;
  for (const auto& product : products_)
    most = product ? std::max(most, product->scratch_bytes()) : most;
  product_at_ = region(worker_scratch_, static_cast<std::int64_t>(most));
}

ProductShape TileDot::shape_of(unsigned variant) const {
  const DotLoops& l = task_.loops;
  ProductShape s;
  s.m = (variant & kLastM) != 0 ? cut_.m.last_length() : cut_.m.chunk;
  s.n = (variant & kLastN) != 0 ? cut_.n.last_length() : cut_.n.chunk;
  s.k = (variant & kLastK) != 0 ? k_.last_length() : k_.chunk;
  s.in = dtype_;
  s.out = stage_c_ ? DType::f32 : task_.out;
  s.accumulate = (variant & kAdd) != 0;
  s.a_row = l.m.a, s.a_col = l.k.a, s.b_row = l.k.b, s.b_col = l.n.b, s.c_row = l.m.c;
  // Copies keep the contiguous dimension, so that copying reads and writes runs.
  if (pack_a_) s.a_row = l.m.a == 1 ? 1 : s.k, s.a_col = l.m.a == 1 ? s.m : 1;
  if (pack_b_) s.b_row = l.k.b == 1 ? 1 : s.n, s.b_col = l.k.b == 1 ? s.k : 1;
  if (stage_c_) s.c_row = s.n;
  if (batched_) {
    s.batch = (variant & kLastBatch) != 0 ? cut_.batch.last_length() : cut_.batch.chunk;
    s.a_batch = l.batch[0].a, s.b_batch = l.batch[0].b, s.c_batch = l.batch[0].c;
  }
  return s;
}

void TileDot::make_products() {
  const auto has_last = [](const Chunks& c) { return c.last_length() != c.chunk; };
  const bool many_terms = k_.count() * task_.loops.terms() > 1;
  for (unsigned v = 0; v < kVariants; ++v) {
    if ((v & kLastM) != 0 && !has_last(cut_.m)) continue;
    if ((v & kLastN) != 0 && !has_last(cut_.n)) continue;
    if ((v & kLastK) != 0 && !has_last(k_)) continue;
    if ((v & kLastBatch) != 0 && !(batched_ && has_last(cut_.batch))) continue;
    if ((v & kAdd) != 0 ? !task_.accumulate && !many_terms : task_.accumulate) continue;
    products_[v].emplace(shape_of(v));
    if (implementation_.empty()) implementation_ = "onednn " + products_[v]->implementation();
  }
}

void TileDot::run(const KernelArgs& args, int, int piece) const noexcept {
  const std::int64_t ni = piece % cut_.n.count(), rest = piece / cut_.n.count();
  const std::int64_t mi = rest % cut_.m.count(), bi = rest / cut_.m.count();
  Tile t{cut_.m.begin(mi), cut_.n.begin(ni), cut_.m.length(mi), cut_.n.length(ni), 0, 0};
  t.variant = (cut_.m.is_last(mi) ? kLastM : 0u) | (cut_.n.is_last(ni) ? kLastN : 0u);
  if (batched_ && cut_.batch.is_last(bi)) t.variant |= kLastBatch;
  const DotAddresses base{args.operands[task_.a], args.operands[task_.b], args.operands[task_.c]};
  const std::int64_t count = batched_ ? 1 : cut_.batch.length(bi);
  for (std::int64_t i = 0; i < count; ++i) {
    const DotAddresses at =
        move_by(base, task_.loops.batch, cut_.batch.begin(bi) + i, task_.in, task_.out);
    run_tile(at, t, args.worker);
  }
}

void TileDot::run_tile(const DotAddresses& at, const Tile& t, std::byte* scratch) const noexcept {
  const DotLoops& l = task_.loops;
  const Matrix c{at.c, task_.out, l.m.c, l.n.c};
  const Matrix target{c.at(t.m, t.n), task_.out, l.m.c, l.n.c};
  if (!stage_c_) return add_terms(at, t, target.data, task_.accumulate, scratch);
  const Matrix sum{scratch + c_at_, DType::f32, t.cols, 1};
  if (task_.accumulate) copy_matrix(target, sum, t.rows, t.cols);
  add_terms(at, t, sum.data, task_.accumulate, scratch);
  copy_matrix(sum, target, t.rows, t.cols);
}

// c (+)= the sum over all terms, in a fixed order.
void TileDot::add_terms(const DotAddresses& at, const Tile& t, void* c, bool add,
                        std::byte* scratch) const noexcept {
  for (std::int64_t s = 0; s < task_.loops.terms(); ++s) {
    const DotAddresses term = move_by(at, task_.loops.sums, s, task_.in, task_.out);
    for (std::int64_t i = 0; i < k_.count(); ++i) {
      const Matrix a = a_tile(term, t, k_.begin(i), k_.length(i), scratch);
      const Matrix b = b_tile(term, t, k_.begin(i), k_.length(i), scratch);
      const unsigned variant = t.variant | (k_.is_last(i) ? kLastK : 0u) | (add ? kAdd : 0u);
      products_[variant]->execute(a.data, b.data, c, scratch + product_at_);
      add = true;
    }
  }
}

Matrix TileDot::a_tile(const DotAddresses& at, const Tile& t, std::int64_t k, std::int64_t length,
                       std::byte* scratch) const {
  const DotLoops& l = task_.loops;
  const Matrix whole{at.a, task_.in, l.m.a, l.k.a};
  Matrix tile{whole.at(t.m, k), task_.in, l.m.a, l.k.a};
  if (!pack_a_) return tile;
  const bool turned = l.m.a == 1;
  if (turned) std::swap(tile.row, tile.col);
  const Matrix copy{scratch + a_at_, dtype_, turned ? t.rows : length, 1};
  copy_matrix(tile, copy, turned ? length : t.rows, turned ? t.rows : length);
  return copy;
}

Matrix TileDot::b_tile(const DotAddresses& at, const Tile& t, std::int64_t k, std::int64_t length,
                       std::byte* scratch) const {
  const DotLoops& l = task_.loops;
  const Matrix whole{at.b, task_.in, l.k.b, l.n.b};
  Matrix tile{whole.at(k, t.n), task_.in, l.k.b, l.n.b};
  if (!pack_b_) return tile;
  const bool turned = l.k.b == 1;
  if (turned) std::swap(tile.row, tile.col);
  const Matrix copy{scratch + b_at_, dtype_, turned ? length : t.cols, 1};
  copy_matrix(tile, copy, turned ? t.cols : length, turned ? length : t.cols);
  return copy;
}

}  // namespace

std::unique_ptr<Kernel> make_dot_tiles(const DotTask& task) {
  return std::make_unique<TileDot>(task);
}

}  // namespace dew::cpu
