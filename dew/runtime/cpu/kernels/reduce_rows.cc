#include "dew/runtime/cpu/kernels/reduce_rows.h"

#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/reduce_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

// Elements after which the sums of a run are put aside: sums of sums err less than one long sum.
constexpr std::size_t kBlockElements = 4096;

struct SumFloats {
  static HWY_INLINE VF Identity() { return hn::Zero(DF()); }
  static HWY_INLINE VF Join(VF a, VF b) { return hn::Add(a, b); }
  static HWY_INLINE VF Lanes(VF v) { return hn::SumOfLanes(DF(), v); }
};
// NaN wins.
struct MaxFloats {
  static HWY_INLINE VF Identity() { return hn::Neg(hn::Inf(DF())); }
  static HWY_INLINE VF Join(VF a, VF b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b)); }
  static HWY_INLINE VF Lanes(VF v) {
    const bool finite = hn::AllFalse(DF(), hn::IsNaN(v));
    return HWY_LIKELY(finite) ? hn::MaxOfLanes(DF(), v) : hn::NaN(DF());
  }
};
template <class T, bool kMax>
struct Integers {
  using Tag = hn::ScalableTag<T>;
  static HWY_INLINE VF Identity() {
    return hn::BitCast(DF(), hn::Set(Tag(), kMax ? hwy::LimitsMin<T>() : T{0}));
  }
  static HWY_INLINE VF Join(VF a, VF b) {
    const auto x = hn::BitCast(Tag(), a), y = hn::BitCast(Tag(), b);
    if constexpr (kMax)
      return hn::BitCast(DF(), hn::Max(x, y));
    else
      return hn::BitCast(DF(), hn::Add(x, y));
  }
  static HWY_INLINE VF Lanes(VF v) {
    const auto x = hn::BitCast(Tag(), v);
    if constexpr (kMax)
      return hn::BitCast(DF(), hn::MaxOfLanes(Tag(), x));
    else
      return hn::BitCast(DF(), hn::SumOfLanes(Tag(), x));
  }
};

template <class Op>
struct Joined {
  VF a;
  static HWY_INLINE Joined None() { return {Op::Identity()}; }
  HWY_INLINE void Join(const Joined& other) { a = Op::Join(a, other.a); }
};

// Behind the end of a run stands what joins without effect.
template <class Op>
HWY_INLINE VF Fill(VF v, Whole) {
  return v;
}
template <class Op>
HWY_INLINE VF Fill(VF v, Some some) {
  return hn::IfThenElse(hn::FirstN(DF(), some.n), v, Op::Identity());
}

template <class Kind, class Op>
HWY_INLINE VF JoinRun(const typename Kind::T* from, std::size_t n) {
  const auto sum = SumRow<Joined<Op>>(n, [&](Joined<Op>& s, std::size_t i, auto part) HWY_ATTR {
    s.a = Op::Join(s.a, Fill<Op>(part.template Load<Kind>(from + i), part));
  });
  return sum.a;
}

template <class Kind, class Op>
void Columns(const std::byte* const* rows, int count, std::size_t n, bool fresh, float* acc) {
  using T = typename Kind::T;
  const T* p[4];
  for (int k = 0; k < 4; ++k) p[k] = reinterpret_cast<const T*>(rows[k < count ? k : 0]);
  ForRow(n, [&](std::size_t i, auto part) HWY_ATTR {
    VF v = part.template Load<Kind>(p[0] + i);
    if (count == 4) {
      v = Op::Join(v, part.template Load<Kind>(p[1] + i));
      v = Op::Join(
          v, Op::Join(part.template Load<Kind>(p[2] + i), part.template Load<Kind>(p[3] + i)));
    } else {
      if (count > 1) v = Op::Join(v, part.template Load<Kind>(p[1] + i));
      if (count > 2) v = Op::Join(v, part.template Load<Kind>(p[2] + i));
    }
    if (!fresh) v = Op::Join(part.template Load<Bits32>(acc + i), v);
    part.template Store<Bits32>(v, acc + i);
  });
}

template <class Op>
void Join(const float* from, float* to, std::size_t n) {
  ForRow(n, [&](std::size_t i, auto part) HWY_ATTR {
    const VF v = Op::Join(part.template Load<Bits32>(to + i), part.template Load<Bits32>(from + i));
    part.template Store<Bits32>(v, to + i);
  });
}

template <class Op>
void Clear(float* to, std::size_t n) {
  ForRow(n, [&](std::size_t i, auto part)
                HWY_ATTR { part.template Store<Bits32>(Op::Identity(), to + i); });
}

template <class Kind, class Op>
void Run(const std::byte* from, std::size_t n, float* lanes) {
  const auto* const p = reinterpret_cast<const typename Kind::T*>(from);
  VF total = hn::LoadU(DF(), lanes);
  for (std::size_t i = 0; i < n; i += kBlockElements) {
    total = Op::Join(total, JoinRun<Kind, Op>(p + i, SmallerOf(kBlockElements, n - i)));
  }
  hn::StoreU(total, DF(), lanes);
}

template <class Op>
float Finish(const float* lanes) {
  return hn::GetLane(Op::Lanes(hn::LoadU(DF(), lanes)));
}

template <class Kind, class Op>
void Rows(const std::byte* from, std::int64_t stride, std::size_t count, std::size_t n, float* to) {
  for (std::size_t r = 0; r < count; ++r, from += stride) {
    const auto* const p = reinterpret_cast<const typename Kind::T*>(from);
    VF total = JoinRun<Kind, Op>(p, SmallerOf(kBlockElements, n));
    for (std::size_t i = kBlockElements; i < n; i += kBlockElements) {
      total = Op::Join(total, JoinRun<Kind, Op>(p + i, SmallerOf(kBlockElements, n - i)));
    }
    to[r] = hn::GetLane(Op::Lanes(total));
  }
}

template <class Kind, class Op>
const Reducer& Get() {
  static constexpr Reducer reducer = {Columns<Kind, Op>, Join<Op>,   Clear<Op>,
                                      Run<Kind, Op>,     Finish<Op>, Rows<Kind, Op>};
  return reducer;
}

const Reducer& FindReducer(DType dtype, bool maximum) {
  if (dtype == DType::bf16) return maximum ? Get<Brain16, MaxFloats>() : Get<Brain16, SumFloats>();
  if (dtype == DType::i32)
    return maximum ? Get<Bits32, Integers<std::int32_t, true>>()
                   : Get<Bits32, Integers<std::int32_t, false>>();
  if (dtype == DType::u32)
    return maximum ? Get<Bits32, Integers<std::uint32_t, true>>()
                   : Get<Bits32, Integers<std::uint32_t, false>>();
  return maximum ? Get<Bits32, MaxFloats>() : Get<Bits32, SumFloats>();
}

// Squares and sums in double, in two sums side by side.
template <class Kind>
double Squares(const std::byte* from, std::size_t n) {
  const auto* const p = reinterpret_cast<const typename Kind::T*>(from);
  const hn::Half<DF> half;
  const hn::Rebind<double, hn::Half<DF>> dd;
  auto low = hn::Zero(dd), high = low, low2 = low, high2 = low;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const VF v = Kind::Load(p + i), w = Kind::Load(p + i + kLanes);
    const auto a = hn::PromoteTo(dd, hn::LowerHalf(half, v)),
               b = hn::PromoteTo(dd, hn::UpperHalf(half, v));
    const auto a2 = hn::PromoteTo(dd, hn::LowerHalf(half, w)),
               b2 = hn::PromoteTo(dd, hn::UpperHalf(half, w));
    low = hn::MulAdd(a, a, low);
    high = hn::MulAdd(b, b, high);
    low2 = hn::MulAdd(a2, a2, low2);
    high2 = hn::MulAdd(b2, b2, high2);
  }
  double sum = 0;
  for (; i < n; ++i) {
    const double x = static_cast<double>(Kind::One(p + i));
    sum += x * x;
  }
  const auto all = hn::Add(hn::Add(low, high), hn::Add(low2, high2));
  return sum + hn::GetLane(hn::SumOfLanes(dd, all));
}

SumSquares FindSquares(DType dtype) {
  return dtype == DType::bf16 ? Squares<Brain16> : Squares<Bits32>;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(FindReducer);
HWY_EXPORT(FindSquares);

const Reducer& reducer(DType dtype, bool maximum) {
  return HWY_DYNAMIC_DISPATCH(FindReducer)(dtype, maximum);
}
SumSquares sum_squares_of(DType dtype) { return HWY_DYNAMIC_DISPATCH(FindSquares)(dtype); }

}  // namespace dew::cpu
#endif  // HWY_ONCE
