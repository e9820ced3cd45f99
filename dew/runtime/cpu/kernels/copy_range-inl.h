// Vectors of f32 and how bf16 is read and written, for all kernels.
#include <cstddef>
#include <cstdint>

#include "dew/base/dtype.h"

#if defined(DEW_COPY_RANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEW_COPY_RANGE_INL_H_
#undef DEW_COPY_RANGE_INL_H_
#else
#define DEW_COPY_RANGE_INL_H_
#endif

#include "hwy/highway.h"

// GCC unrolls loops over registers only when told.
#if defined(__GNUC__) && !defined(__clang__)
#define DEW_UNROLL _Pragma("GCC unroll 8")
#else
#define DEW_UNROLL
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

constexpr std::size_t kLanes = HWY_LANES(float);

// std::min would be compiled for this target here and might be the copy that the linker keeps for
// everyone.
HWY_INLINE std::size_t SmallerOf(std::size_t a, std::size_t b) { return a < b ? a : b; }

HWY_INLINE VF LoadBf16(DF d, const std::uint16_t* p) {
  const DU du;
  const hn::Rebind<std::uint16_t, DF> dh;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, p))));
}

// To nearest, ties to even; NaN stays NaN. Not the machine's own instruction, which flushes
// denormals: bits shall not depend on the processor.
HWY_INLINE void StoreBf16(VF v, DF d, std::uint16_t* p) {
  const DU du;
  const DI di;
  const hn::Rebind<std::uint16_t, DF> dh;
  const VU bits = hn::BitCast(du, v);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
  const VU nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  const VU half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
  (void)d;
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, half)), dh, p);
}

// The first n < kLanes elements; the others read as zeros. Nothing outside is touched.
HWY_INLINE VF LoadPart(const float* p, std::size_t n) {
#if HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(DF(), n), DF(), p);
#else
  HWY_ALIGN float lanes[kLanes] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::Load(DF(), lanes);
#endif
}

HWY_INLINE void StorePart(VF v, float* p, std::size_t n) {
#if HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(DF(), n), DF(), p);
#else
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, DF(), lanes);
  for (std::size_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

HWY_INLINE float FromBits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
HWY_INLINE std::uint32_t ToBits(float value) { return __builtin_bit_cast(std::uint32_t, value); }

// How one dtype is stored: one element, a vector of them, or some (less than a vector; zeros are
// read for the rest), as 32-bit elements.
struct Bits32 {
  using T = float;
  static HWY_INLINE float One(const T* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
  }
  static HWY_INLINE void SetOne(float value, T* p) { __builtin_memcpy(p, &value, sizeof value); }
  static HWY_INLINE VF Load(const T* p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE void Store(VF v, T* p) { hn::StoreU(v, DF(), p); }
  static HWY_INLINE VF LoadSome(const T* p, std::size_t n) { return LoadPart(p, n); }
  static HWY_INLINE void StoreSome(VF v, T* p, std::size_t n) { StorePart(v, p, n); }
};

struct Brain16 {
  using T = std::uint16_t;
  static HWY_INLINE float One(const T* p) { return FromBits(std::uint32_t{*p} << 16); }
  static HWY_INLINE void SetOne(float value, T* p) { *p = bf16(value).bits; }
  static HWY_INLINE VF Load(const T* p) { return LoadBf16(DF(), p); }
  static HWY_INLINE void Store(VF v, T* p) { StoreBf16(v, DF(), p); }
  static HWY_INLINE VF LoadSome(const T* p, std::size_t n) {
    HWY_ALIGN T lanes[kLanes] = {};
    for (std::size_t i = 0; i < n; ++i) lanes[i] = p[i];
    return Load(lanes);
  }
  static HWY_INLINE void StoreSome(VF v, T* p, std::size_t n) {
    HWY_ALIGN T lanes[kLanes];
    Store(v, lanes);
    for (std::size_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
};

struct Byte {
  using T = std::uint8_t;
  static HWY_INLINE float One(const T* p) { return FromBits(*p != 0 ? ~0u : 0u); }
  static HWY_INLINE void SetOne(float value, T* p) { *p = ToBits(value) != 0; }
  static HWY_INLINE VF Load(const T* p) {
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<std::uint8_t, DF> db;
    const auto v = hn::PromoteTo(di, hn::LoadU(db, p));
    return hn::BitCast(DF(), hn::VecFromMask(di, hn::Ne(v, hn::Zero(di))));
  }
  static HWY_INLINE void Store(VF v, T* p) {
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<std::uint8_t, DF> db;
    hn::StoreU(hn::DemoteTo(db, hn::And(hn::BitCast(di, v), hn::Set(di, 1))), db, p);
  }
};

// A whole vector of a row, or what remains at its end.
struct Whole {
  template <class Kind>
  HWY_INLINE VF Load(const typename Kind::T* p) const {
    return Kind::Load(p);
  }
  template <class Kind>
  HWY_INLINE void Store(VF v, typename Kind::T* p) const {
    Kind::Store(v, p);
  }
  HWY_INLINE VF ZeroRest(VF v) const { return v; }
};
struct Some {
  std::size_t n;
  template <class Kind>
  HWY_INLINE VF Load(const typename Kind::T* p) const {
    return Kind::LoadSome(p, n);
  }
  template <class Kind>
  HWY_INLINE void Store(VF v, typename Kind::T* p) const {
    Kind::StoreSome(v, p, n);
  }
  HWY_INLINE VF ZeroRest(VF v) const { return hn::IfThenElseZero(hn::FirstN(DF(), n), v); }
};

// body(i, part) for all vectors of a row. Lambdas need HWY_ATTR.
template <class Body>
HWY_INLINE void ForRow(std::size_t e, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= e; i += kLanes) body(i, Whole());
  if (i < e) body(i, Some{e - i});
}

// Sum over a row, in four sums side by side: add(sum, i, part) adds one vector.
template <class Sum, class Add>
HWY_INLINE Sum SumRow(std::size_t e, Add add) {
  Sum s0 = Sum::None(), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= e; i += 4 * kLanes) {
    add(s0, i, Whole());
    add(s1, i + kLanes, Whole());
    add(s2, i + 2 * kLanes, Whole());
    add(s3, i + 3 * kLanes, Whole());
  }
  for (; i + kLanes <= e; i += kLanes) add(s0, i, Whole());
  if (i < e) add(s1, i, Some{e - i});
  s0.Join(s1);
  s2.Join(s3);
  s0.Join(s2);
  return s0;
}

HWY_INLINE float SumLanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }

struct OneSum {
  VF a;
  static HWY_INLINE OneSum None() { return {hn::Zero(DF())}; }
  HWY_INLINE void Join(const OneSum& other) { a = hn::Add(a, other.a); }
};
struct TwoSums {
  VF a, b;
  static HWY_INLINE TwoSums None() { return {hn::Zero(DF()), hn::Zero(DF())}; }
  HWY_INLINE void Join(const TwoSums& other) {
    a = hn::Add(a, other.a);
    b = hn::Add(b, other.b);
  }
};

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for each target
