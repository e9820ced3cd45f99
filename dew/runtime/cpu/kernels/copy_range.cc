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
void LoadKind(const Strided& s, const std::byte* base, std::int64_t begin, std::size_t n, float* to) {
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
void StoreKind(const Strided& s, std::byte* base, std::int64_t begin, std::size_t n, const float* from) {
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

void LoadRange(const Strided& s, const std::byte* base, std::int64_t begin, std::size_t n, float* to) {
  if (s.dtype == DType::bf16) return LoadKind<Brain16>(s, base, begin, n, to);
  if (s.dtype == DType::pred) return LoadKind<Byte>(s, base, begin, n, to);
  LoadKind<Bits32>(s, base, begin, n, to);
}

void StoreRange(const Strided& s, std::byte* base, std::int64_t begin, std::size_t n, const float* from) {
  if (s.dtype == DType::bf16) return StoreKind<Brain16>(s, base, begin, n, from);
  if (s.dtype == DType::pred) return StoreKind<Byte>(s, base, begin, n, from);
  StoreKind<Bits32>(s, base, begin, n, from);
}

const RangeIo& Io() {
  static constexpr RangeIo io = {LoadRange, StoreRange};
  return io;
}

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
