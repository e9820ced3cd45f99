// Powers of two and quick roundings, for softmax.
#include "dew/runtime/cpu/kernels/fused_math-inl.h"

#if defined(DEW_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEW_ATTENTION_INL_H_
#undef DEW_ATTENTION_INL_H_
#else
#define DEW_ATTENTION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

// 2^t for t < 128; NaN stays NaN. Relative error 2e-7 if kExact, else 3e-6, enough for what becomes
// bf16. Below -125 it is 0 if kZero, else something of at most 2^-125, one instruction sooner.
template <bool kExact, bool kZero>
HWY_INLINE VF Exp2(VF t) {
  if constexpr (!kZero) t = hn::Max(Const(-126.0f), t);
  const VF magic =
      Const(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, which is in the low bits
  const VF shifted = hn::Add(t, magic);
  const VF f = hn::Sub(t, hn::Sub(shifted, magic));
  VF p;
  if constexpr (kExact) {
    p = hn::MulAdd(Const(1.32647285e-3f), f, Const(9.67151299e-3f));
    p = hn::MulAdd(p, f, Const(5.55073358e-2f));
    p = hn::MulAdd(p, f, Const(2.40222424e-1f));
    p = hn::MulAdd(p, f, Const(6.93147004e-1f));
  } else {
    p = hn::MulAdd(Const(9.58285201e-3f), f, Const(5.59064262e-2f));
    p = hn::MulAdd(p, f, Const(2.40240991e-1f));
    p = hn::MulAdd(p, f, Const(6.93124175e-1f));
  }
  p = hn::MulAdd(p, f, Const(1.0f));
  const VI power =
      hn::ShiftLeft<23>(hn::BitCast(DI(), shifted));  // the magic number's own bits fall out
  p = hn::BitCast(DF(), hn::Add(hn::BitCast(DI(), p), power));
  return kZero ? hn::IfThenZeroElse(hn::Lt(t, Const(-125.0f)), p) : p;
}

// To the nearest bf16, ties away from zero: for sums of products, where a tie's direction cannot
// matter. Keeps NaNs that arithmetic makes.
HWY_INLINE VU RoundedBits(VF v) { return hn::Add(hn::BitCast(DU(), v), hn::Set(DU(), 0x8000)); }

HWY_INLINE void StoreNear(VF v, std::uint16_t* p) {
  const hn::Rebind<std::uint16_t, DF> dh;
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(DI(), hn::ShiftRight<16>(RoundedBits(v)))), dh, p);
}

// Two vectors side by side, for less than twice the price.
HWY_INLINE void StoreNear2(VF a, VF b, std::uint16_t* p) {
  const hn::Repartition<std::uint16_t, DF> dh;
  hn::StoreU(hn::ConcatOdd(dh, hn::BitCast(dh, RoundedBits(b)), hn::BitCast(dh, RoundedBits(a))),
             dh, p);
}

HWY_INLINE VF RoundNear(VF v) {
  return hn::BitCast(DF(), hn::And(RoundedBits(v), hn::Set(DU(), 0xffff0000u)));
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for each target
