#include "dew/runtime/cpu/kernels/copy_range.h"

#include <algorithm>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/copy_range.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

template <class Kind>
void LoadRun(const typename Kind::T* from, std::int64_t step, std::size_t n, float* to) {
  std::size_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) hn::StoreU(Kind::Load(from + i), DF(), to + i);
    for (; i < n; ++i) to[i] = Kind::One(from + i);
  } else if (step == 0) {
    const float value = Kind::One(from);
    const VF v = hn::Set(DF(), value);
    for (; i + kLanes <= n; i += kLanes) hn::StoreU(v, DF(), to + i);
    for (; i < n; ++i) to[i] = value;
  } else {
    for (; i < n; ++i) to[i] = Kind::One(from + static_cast<std::int64_t>(i) * step);
  }
}

template <class Kind>
void StoreRun(const float* from, std::size_t n, std::int64_t step, typename Kind::T* to) {
  std::size_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) Kind::Store(hn::LoadU(DF(), from + i), to + i);
    for (; i < n; ++i) Kind::SetOne(from[i], to + i);
  } else {
    for (; i < n; ++i) Kind::SetOne(from[i], to + static_cast<std::int64_t>(i) * step);
  }
}

template <class Kind>
void LoadKind(const Strided& s, const std::byte* base, std::int64_t begin, std::size_t n,
              float* to) {
  const auto* from = reinterpret_cast<const typename Kind::T*>(base);
  if (s.dense()) return LoadRun<Kind>(from + begin, 1, n, to);
  Runs runs(s, begin);
  for (std::size_t done = 0; done < n;) {
    const std::size_t count = SmallerOf(static_cast<std::size_t>(runs.left()), n - done);
    LoadRun<Kind>(from + runs.offset(), s.step(), count, to + done);
    runs.advance(static_cast<std::int64_t>(count));
    done += count;
  }
}

template <class Kind>
void StoreKind(const Strided& s, std::byte* base, std::int64_t begin, std::size_t n,
               const float* from) {
  auto* to = reinterpret_cast<typename Kind::T*>(base);
  if (s.dense()) return StoreRun<Kind>(from, n, 1, to + begin);
  Runs runs(s, begin);
  for (std::size_t done = 0; done < n;) {
    const std::size_t count = SmallerOf(static_cast<std::size_t>(runs.left()), n - done);
    StoreRun<Kind>(from + done, count, s.step(), to + runs.offset());
    runs.advance(static_cast<std::int64_t>(count));
    done += count;
  }
}

void LoadRange(const Strided& s, const std::byte* base, std::int64_t begin, std::size_t n,
               float* to) {
  if (s.dtype == DType::bf16) return LoadKind<Brain16>(s, base, begin, n, to);
  if (s.dtype == DType::pred) return LoadKind<Byte>(s, base, begin, n, to);
  LoadKind<Bits32>(s, base, begin, n, to);
}

void StoreRange(const Strided& s, std::byte* base, std::int64_t begin, std::size_t n,
                const float* from) {
  if (s.dtype == DType::bf16) return StoreKind<Brain16>(s, base, begin, n, from);
  if (s.dtype == DType::pred) return StoreKind<Byte>(s, base, begin, n, from);
  StoreKind<Bits32>(s, base, begin, n, from);
}

// A square of 16 bytes by 16 bytes, in registers: elements of 4 bytes change places in 2 rounds, of
// 2 bytes in 3.
HWY_INLINE void TransposeSquare(const std::uint32_t* from, std::int64_t stride, std::uint32_t* to,
                                std::int64_t to_stride) {
  const hn::FixedTag<std::uint32_t, 4> d;
  const hn::FixedTag<std::uint64_t, 2> d2;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + stride);
  const auto e = hn::LoadU(d, from + 2 * stride), f = hn::LoadU(d, from + 3 * stride);
  const auto ab0 = hn::BitCast(d2, hn::InterleaveLower(d, a, b)),
             ab1 = hn::BitCast(d2, hn::InterleaveUpper(d, a, b));
  const auto ef0 = hn::BitCast(d2, hn::InterleaveLower(d, e, f)),
             ef1 = hn::BitCast(d2, hn::InterleaveUpper(d, e, f));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab0, ef0)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab0, ef0)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab1, ef1)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab1, ef1)), d, to + 3 * to_stride);
}

HWY_INLINE void TransposeSquare(const std::uint16_t* from, std::int64_t stride, std::uint16_t* to,
                                std::int64_t to_stride) {
  const hn::FixedTag<std::uint16_t, 8> d;
  const hn::FixedTag<std::uint32_t, 4> d4;
  const hn::FixedTag<std::uint64_t, 2> d2;
  hn::Vec<decltype(d4)> pairs[8];  // of columns 2k and 2k + 1: rows 0 to 3, rows 4 to 7
  for (int k = 0; k < 4; ++k) {
    const auto a = hn::LoadU(d, from + 2 * k * stride),
               b = hn::LoadU(d, from + (2 * k + 1) * stride);
    pairs[2 * k] = hn::BitCast(d4, hn::InterleaveLower(d, a, b));
    pairs[2 * k + 1] = hn::BitCast(d4, hn::InterleaveUpper(d, a, b));
  }
  for (int half = 0; half < 2; ++half) {
    const auto a = pairs[half], b = pairs[half + 2], e = pairs[half + 4], f = pairs[half + 6];
    const auto ab0 = hn::BitCast(d2, hn::InterleaveLower(d4, a, b)),
               ab1 = hn::BitCast(d2, hn::InterleaveUpper(d4, a, b));
    const auto ef0 = hn::BitCast(d2, hn::InterleaveLower(d4, e, f)),
               ef1 = hn::BitCast(d2, hn::InterleaveUpper(d4, e, f));
    std::uint16_t* const row = to + 4 * half * to_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab0, ef0)), d, row);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab0, ef0)), d, row + to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab1, ef1)), d, row + 2 * to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab1, ef1)), d, row + 3 * to_stride);
  }
}

HWY_INLINE void TransposeSquare(const std::uint8_t* from, std::int64_t, std::uint8_t* to,
                                std::int64_t) {
  *to = *from;
}

// Through a block of its own: columns are read and rows are written whole lines at a time, even
// where their strides fall into one set of the cache.
template <class T>
void TransposeBlock(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
                    std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t side = sizeof(T) == 1 ? 1 : 16 / sizeof(T);
  HWY_ALIGN T block[kTransposeSide * kTransposeSide];
  const std::int64_t square_rows = rows / side * side, square_columns = columns / side * side;
  for (std::int64_t c = 0; c < square_columns; c += side) {
    for (std::int64_t r = 0; r < square_rows; r += side) {
      TransposeSquare(from + c * from_stride + r, from_stride, block + r * kTransposeSide + c,
                      kTransposeSide);
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    const std::int64_t first = c < square_columns ? square_rows : 0;
    for (std::int64_t r = first; r < rows; ++r)
      block[r * kTransposeSide + c] = from[c * from_stride + r];
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    __builtin_memcpy(to + r * to_stride, block + r * kTransposeSide,
                     static_cast<std::size_t>(columns) * sizeof(T));
  }
}

void Transpose(std::int64_t bytes, const std::byte* from, std::int64_t from_stride, std::byte* to,
               std::int64_t to_stride, std::int64_t rows, std::int64_t columns) {
  const auto block = [&]<class T>(T) {
    TransposeBlock(reinterpret_cast<const T*>(from), from_stride, reinterpret_cast<T*>(to),
                   to_stride, rows, columns);
  };
  if (bytes == 4)
    block(std::uint32_t{});
  else if (bytes == 2)
    block(std::uint16_t{});
  else
    block(std::uint8_t{});
}

const RangeIo& Io() {
  static constexpr RangeIo io = {LoadRange, StoreRange, Transpose};
  return io;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Io);

const RangeIo& range_io() { return HWY_DYNAMIC_DISPATCH(Io)(); }

std::optional<Strided> strided(const Dims& shape, const Dims& strides, DType dtype) {
  Strided s;
  s.dtype = dtype;
  s.elements = element_count(shape);
  s.sizes[0] = s.elements;
  s.strides[0] = 1;
  if (s.elements <= 1) return s;
  int rank = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (rank > 0 && s.strides[rank - 1] == strides[d] * shape[d]) {
      s.sizes[rank - 1] *= shape[d];
      s.strides[rank - 1] = strides[d];
      continue;
    }
    if (rank == kMaxRank) return std::nullopt;
    s.sizes[rank] = shape[d];
    s.strides[rank++] = strides[d];
  }
  s.rank = rank;
  return s;
}

std::optional<Strided> strided(const View& view) {
  return strided(view.type.shape, view.strides, view.type.dtype);
}

Pieces cut_pieces(std::int64_t elements, std::int64_t target, std::int64_t unit) {
  constexpr std::int64_t kMaxPieces = 64;
  const std::int64_t least = std::max(target, (elements + kMaxPieces - 1) / kMaxPieces);
  Pieces p;
  p.size = std::max<std::int64_t>(1, (least + unit - 1) / unit) * unit;
  p.count = static_cast<int>(std::max<std::int64_t>(1, (elements + p.size - 1) / p.size));
  return p;
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
