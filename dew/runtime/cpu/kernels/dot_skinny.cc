// dot with one side of at most kSkinny vectors, as when a model generates: every element of the
// other, wide side is used so few times that reading it is the work. oneDNN transposes or repacks
// it first; here it is read once, as it lies, in runs that are as long as memory likes. A wide side
// whose columns are contiguous is cut along k as well, into terms that are summed afterwards:
// pieces of few columns would jump from page to page.
#include <algorithm>
#include <cstring>
#include <utility>

#include "dew/runtime/cpu/kernels/dot.h"
#include "dew/runtime/cpu/kernels/dot_pack.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/dot_skinny.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"
#include "hwy/cache_control.h"

#ifndef DEW_DOT_SKINNY_PART_
#define DEW_DOT_SKINNY_PART_
namespace dew::cpu {

// out[i, n] = sum over k of x[i, k] wide[n, k]: `x` is dense f32, rows of `out` lie out_stride
// apart.
struct SkinnyPart {
  const float* x;
  std::int64_t vectors, k;
  const std::byte* wide;
  std::int64_t stride;  // elements from one row (by_rows) or one k (by_columns) of wide to the next
  std::int64_t n;
  float* out;
  std::int64_t out_stride;
};

}  // namespace dew::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE VF LoadWide(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadWide(const std::uint16_t* p) { return LoadBf16(DF(), p); }

HWY_INLINE float One(const float* p) { return *p; }
HWY_INLINE float One(const std::uint16_t* p) {
  const std::uint32_t bits = std::uint32_t{*p} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What will be read soon is asked for now: at the ends of rows, and where sums wait for each other,
// memory goes on. Beyond the end of the array nothing happens.
constexpr std::size_t kAheadBytes = 2048;
template <class T>
HWY_INLINE void Ahead(const T* p, std::size_t bytes) {
  hwy::Prefetch(p + bytes / sizeof(T));
}

// One row of wide, contiguous along k, times kVectors vectors. Rows are taken one by one, so that
// memory is read in order; kChains sums for each vector hide the latency.
template <int kVectors, int kChains, class T>
HWY_INLINE void OneRow(const SkinnyPart& p, const T* wide, float* out) {
  const auto k = static_cast<std::size_t>(p.k), n = static_cast<std::size_t>(p.out_stride);
  VF sums[kChains][kVectors];
  DEW_UNROLL
  for (auto& chain : sums) {
    DEW_UNROLL
    for (auto& sum : chain) sum = hn::Zero(DF());
  }
  std::size_t i = 0;
  for (; i + kChains * kLanes <= k; i += kChains * kLanes) {
    DEW_UNROLL
    for (std::size_t c = 0; c < kChains; ++c) {
      Ahead<T>(wide + i + c * kLanes, kAheadBytes);
      const VF w = LoadWide(wide + i + c * kLanes);
      DEW_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[c][v] = hn::MulAdd(w, hn::LoadU(DF(), p.x + v * k + i + c * kLanes), sums[c][v]);
      }
    }
  }
  DEW_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    VF all = sums[0][v];
    DEW_UNROLL
    for (std::size_t c = 1; c < kChains; ++c) all = hn::Add(all, sums[c][v]);
    float sum = SumLanes(all);
    for (std::size_t j = i; j < k; ++j) sum += p.x[v * k + j] * One(wide + j);
    out[v * n] = sum;
  }
}

template <int kVectors, class T>
void AllRows(const SkinnyPart& p) {
  constexpr int kChains = kVectors <= 2 || kLanes == 16 ? 4 : 2;  // sums that fit the registers
  const T* wide = reinterpret_cast<const T*>(p.wide);
  const auto count = static_cast<std::size_t>(p.n), stride = static_cast<std::size_t>(p.stride);
  for (std::size_t n = 0; n < count; ++n)
    OneRow<kVectors, kChains>(p, wide + n * stride, p.out + n);
}

// Wide rows contiguous along n: kTerms multiples of them are added to the sums, which stay in L1.
template <int kVectors, int kTerms, class T>
HWY_INLINE void AddColumns(const SkinnyPart& p, const T* wide, std::size_t k) {
  constexpr std::size_t kLine = 64 / sizeof(T);  // elements of a cache line
  const auto n = static_cast<std::size_t>(p.n), stride = static_cast<std::size_t>(p.stride),
             out = static_cast<std::size_t>(p.out_stride);
  VF x[kVectors][kTerms];
  DEW_UNROLL
  for (std::size_t v = 0; v < kVectors; ++v) {
    DEW_UNROLL
    for (std::size_t t = 0; t < kTerms; ++t)
      x[v][t] = hn::Set(DF(), p.x[v * static_cast<std::size_t>(p.k) + k + t]);
  }
  const auto add = [&](std::size_t i) HWY_ATTR {
    VF sums[kVectors];
    DEW_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(DF(), p.out + v * out + i);
    DEW_UNROLL
    for (std::size_t t = 0; t < kTerms; ++t) {
      const VF w = LoadWide(wide + t * stride + i);
      DEW_UNROLL
      for (std::size_t v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(w, x[v][t], sums[v]);
    }
    DEW_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], DF(), p.out + v * out + i);
  };
  std::size_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    DEW_UNROLL
    for (std::size_t t = 0; t < kTerms; ++t) hwy::Prefetch(wide + (kTerms + t) * stride + i);
    DEW_UNROLL
    for (std::size_t c = 0; c < kLine; c += kLanes) add(i + c);
  }
  for (; i + kLanes <= n; i += kLanes) add(i);
  for (; i < n; ++i) {
    DEW_UNROLL
    for (std::size_t v = 0; v < kVectors; ++v) {
      float sum = p.out[v * out + i];
      DEW_UNROLL
      for (std::size_t t = 0; t < kTerms; ++t)
        sum += hn::GetLane(x[v][t]) * One(wide + t * stride + i);
      p.out[v * out + i] = sum;
    }
  }
}

template <int kVectors, class T>
void AllColumns(const SkinnyPart& p) {
  constexpr int kTerms = 4;
  const T* wide = reinterpret_cast<const T*>(p.wide);
  const auto count = static_cast<std::size_t>(p.k), stride = static_cast<std::size_t>(p.stride);
  for (std::int64_t v = 0; v < kVectors; ++v) std::fill_n(p.out + v * p.out_stride, p.n, 0.0f);
  std::size_t k = 0;
  for (; k + kTerms <= count; k += kTerms) AddColumns<kVectors, kTerms>(p, wide + k * stride, k);
  for (; k < count; ++k) AddColumns<kVectors, 1>(p, wide + k * stride, k);
}

template <class T>
void Part(const SkinnyPart& p, bool by_rows) {
  switch (p.vectors) {
    case 1:
      return by_rows ? AllRows<1, T>(p) : AllColumns<1, T>(p);
    case 2:
      return by_rows ? AllRows<2, T>(p) : AllColumns<2, T>(p);
    case 3:
      return by_rows ? AllRows<3, T>(p) : AllColumns<3, T>(p);
    default:
      return by_rows ? AllRows<4, T>(p) : AllColumns<4, T>(p);
  }
}

// out[i] = the sum over r of from[r * stride + i].
void SumRows(const float* from, std::int64_t rows, std::int64_t stride, std::int64_t count,
             float* out) {
  const auto n = static_cast<std::size_t>(count);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    VF sum = hn::LoadU(DF(), from + i);
    for (std::int64_t r = 1; r < rows; ++r)
      sum = hn::Add(sum, hn::LoadU(DF(), from + r * stride + static_cast<std::int64_t>(i)));
    hn::StoreU(sum, DF(), out + i);
  }
  for (; i < n; ++i) {
    out[i] = from[i];
    for (std::int64_t r = 1; r < rows; ++r)
      out[i] += from[r * stride + static_cast<std::int64_t>(i)];
  }
}

void PartF32(const SkinnyPart& p, bool by_rows) { Part<float>(p, by_rows); }
void PartBf16(const SkinnyPart& p, bool by_rows) { Part<std::uint16_t>(p, by_rows); }

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {
namespace {

HWY_EXPORT(PartF32);
HWY_EXPORT(PartBf16);
HWY_EXPORT(SumRows);

constexpr std::int64_t kPartBytes = 96 * 1024;  // of the wide side: 4 us of memory
constexpr std::int64_t kMostParts = 64;
constexpr std::int64_t kMostColumns = 1024;  // whose sums stay in L1
constexpr std::int64_t kTermShare = 32;      // bytes of the wide side for each of terms, at least
constexpr std::int64_t kSumElements = 4096;  // of all terms that one piece sums

// A piece is a part of the columns of c and of k. If there are several parts of k, their terms go
// to shared scratch, [k part, vector, column], and are summed in their order by a second phase.
class SkinnyDot : public Kernel {
 public:
  // REQUIRES: loops.m is the skinny side.
  explicit SkinnyDot(const DotTask& task) : task_(task), by_rows_(task.loops.k.b == 1) {
    const DotLoops& l = task_.loops;
    const std::int64_t bytes = l.n.size * l.k.size * byte_size(task_.in);
    const std::int64_t parts = std::clamp<std::int64_t>(bytes / kPartBytes, 1, kMostParts);
    if (by_rows_) {
      columns_ = Chunks(l.n.size, parts, 64);
      k_ = Chunks(l.k.size, 1, 1);
    } else {
      columns_ = Chunks(l.n.size, (l.n.size + kMostColumns - 1) / kMostColumns, 64);
      const std::int64_t most = l.k.size * byte_size(task_.in) / (4 * kTermShare * l.m.size);
      k_ = Chunks(
          l.k.size,
          std::clamp<std::int64_t>(parts / columns_.count(), 1, std::max<std::int64_t>(most, 1)),
          4);
    }
    sums_ =
        Chunks(l.n.size, (l.n.size * l.m.size * k_.count() + kSumElements - 1) / kSumElements, 16);
    phases_ = {static_cast<int>(l.batches() * columns_.count() * k_.count())};
    x_bytes_ = (l.m.size * k_.chunk * 4 + 63) / 64 * 64;
    worker_scratch_ = static_cast<std::size_t>(x_bytes_);
    if (k_.count() > 1) {
      phases_.push_back(static_cast<int>(l.batches() * sums_.count()));
      shared_scratch_ =
          static_cast<std::size_t>(l.batches() * k_.count() * l.m.size * l.n.size * 4);
      worker_scratch_ =
          std::max(worker_scratch_, static_cast<std::size_t>(l.m.size * sums_.chunk * 4));
    } else {
      worker_scratch_ += static_cast<std::size_t>(l.m.size * columns_.chunk * 4);
    }
    implementation_ = by_rows_ ? "highway skinny rows" : "highway skinny columns";
  }

  void run(const KernelArgs& args, int phase, int piece) const noexcept override {
    if (phase == 0) return multiply(args, piece);
    sum_terms(args, piece / sums_.count(), piece % sums_.count());
  }

 private:
  DotAddresses batch_at(const KernelArgs& args, std::int64_t batch) const {
    return move_by({args.operands[task_.a], args.operands[task_.b], args.operands[task_.c]},
                   task_.loops.batch, batch, task_.in, task_.out);
  }

  float* terms(const KernelArgs& args, std::int64_t batch, std::int64_t k_part) const {
    const DotLoops& l = task_.loops;
    return reinterpret_cast<float*>(args.shared) +
           (batch * k_.count() + k_part) * l.m.size * l.n.size;
  }

  void multiply(const KernelArgs& args, std::int64_t piece) const {
    const DotLoops& l = task_.loops;
    const std::int64_t column_part = piece % columns_.count(), rest = piece / columns_.count();
    const std::int64_t k_part = rest % k_.count(), batch = rest / k_.count();
    const DotAddresses at = batch_at(args, batch);
    const std::int64_t n = columns_.begin(column_part), count = columns_.length(column_part);
    const std::int64_t k = k_.begin(k_part), terms_count = k_.length(k_part);
    const Matrix a{at.a, task_.in, l.m.a, l.k.a}, wide{at.b, task_.in, l.n.b, l.k.b};
    const Matrix x{args.worker, DType::f32, terms_count, 1};
    copy_matrix({a.at(0, k), task_.in, l.m.a, l.k.a}, x, l.m.size, terms_count);
    const bool whole = k_.count() == 1;
    const SkinnyPart p{
        static_cast<const float*>(x.data),
        l.m.size,
        terms_count,
        static_cast<const std::byte*>(wide.at(n, k)),
        by_rows_ ? l.n.b : l.k.b,
        count,
        whole ? reinterpret_cast<float*>(args.worker + x_bytes_) : terms(args, batch, k_part) + n,
        whole ? count : l.n.size};
    task_.in == DType::f32 ? HWY_DYNAMIC_DISPATCH(PartF32)(p, by_rows_)
                           : HWY_DYNAMIC_DISPATCH(PartBf16)(p, by_rows_);
    if (whole) store(at, n, count, p.out);
  }

  // Columns [n, n + count) of all terms, added up.
  void sum_terms(const KernelArgs& args, std::int64_t batch, std::int64_t part) const {
    const DotLoops& l = task_.loops;
    const std::int64_t n = sums_.begin(part), count = sums_.length(part);
    auto* const sums = reinterpret_cast<float*>(args.worker);
    for (std::int64_t i = 0; i < l.m.size; ++i) {
      HWY_DYNAMIC_DISPATCH(SumRows)
      (terms(args, batch, 0) + i * l.n.size + n, k_.count(), l.m.size * l.n.size, count,
       sums + i * count);
    }
    store(batch_at(args, batch), n, count, sums);
  }

  // c (+)= sums, dense [vector, column].
  void store(const DotAddresses& at, std::int64_t n, std::int64_t count, float* sums) const {
    const DotLoops& l = task_.loops;
    const Matrix c{at.c, task_.out, l.m.c, l.n.c}, from{sums, DType::f32, count, 1};
    const Matrix target{c.at(0, n), task_.out, l.m.c, l.n.c};
    if (task_.accumulate) add(target, from, l.m.size, count);
    copy_matrix(from, target, l.m.size, count);
  }

  static void add(const Matrix& from, const Matrix& to, std::int64_t rows, std::int64_t cols) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        float value;
        copy_matrix({from.at(r, c), from.dtype, 1, 1}, {&value, DType::f32, 1, 1}, 1, 1);
        *static_cast<float*>(to.at(r, c)) += value;
      }
    }
  }

  DotTask task_;
  bool by_rows_;
  Chunks columns_, k_;  // of the pieces
  Chunks sums_;         // columns of the second phase
  std::int64_t x_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_dot_skinny(const DotTask& given) {
  DotTask task = given;
  if (task.loops.m.size > kSkinny) {
    task.loops = transposed(std::move(task.loops));
    std::swap(task.a, task.b);
  }
  const DotLoops& l = task.loops;
  const bool contiguous = l.k.b == 1 || l.n.b == 1;
  if (l.m.size > kSkinny || !l.sums.empty() || !contiguous) return nullptr;
  return std::make_unique<SkinnyDot>(task);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
