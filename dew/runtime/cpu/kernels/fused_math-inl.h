// Functions of one f32 vector. Largest errors found over every 211th float (in units of the last
// place, or absolute as a share of max(1, |result|)), for AVX-512 and AVX2:
//   Exp 1.0  Log 0.9  Tanh 2.4  Logistic 2.4  ErfBoth 1.0  SinCos 1.6 ulp
//   Silu, SiluSlope, GeluTanh, GeluTanhSlope, GeluErf, GeluErfSlope 2.1e-7
// Infinite arguments give the limits where there are any, NaN gives NaN, denormal results are kept.
// Min and Max take the value second: on x86 they return the second operand if one is NaN.
#include "dew/runtime/cpu/kernels/copy_range-inl.h"

#if defined(DEW_FUSED_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEW_FUSED_MATH_INL_H_
#undef DEW_FUSED_MATH_INL_H_
#else
#define DEW_FUSED_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

HWY_INLINE VF Const(float value) { return hn::Set(DF(), value); }

// x = n ln 2 + r with |r| <= ln 2 / 2. `power` has n in its low bits, so that shifting it by 23
// gives n in the exponent.
struct ExpParts {
  VI power;
  VF r;
};

HWY_INLINE ExpParts SplitExp(VF x) {
  const VF magic = Const(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const VF shifted = hn::MulAdd(x, Const(1.44269504f), magic);
  const VF n = hn::Sub(shifted, magic);
  const VF r = hn::NegMulAdd(n, Const(0.693145751953125f), x);
  return {hn::BitCast(DI(), shifted), hn::NegMulAdd(n, Const(1.428606765330187e-6f), r)};
}

// exp(r) - 1.
HWY_INLINE VF ExpTail(VF r) {
  VF p = hn::MulAdd(Const(0.000198527617612853646f), r, Const(0.00139304355252534151f));
  p = hn::MulAdd(p, r, Const(0.00833336077630519867f));
  p = hn::MulAdd(p, r, Const(0.0416664853692054749f));
  p = hn::MulAdd(p, r, Const(0.166666671633720398f));
  p = hn::MulAdd(p, r, Const(0.5f));
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

HWY_INLINE VF PowerOfTwo(VI n) {
  return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(DI(), 127))));
}

// The power is applied in two halves, since 2^-149 and 2^128 are no normal numbers.
HWY_INLINE VF Exp(VF x) {
  const ExpParts e = SplitExp(hn::Min(Const(89.0f), hn::Max(Const(-105.0f), x)));
  const VF p = hn::Add(ExpTail(e.r), Const(1.0f));
  const VI n = hn::Sub(e.power, hn::Set(DI(), 0x4b400000));
  const VI half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(p, PowerOfTwo(half)), PowerOfTwo(hn::Sub(n, half)));
}

// Method and coefficients as published by Norbert Juffa.
HWY_INLINE VF Log(VF x) {
  const auto denormal = hn::Lt(x, Const(1.17549435e-38f));
  const VF a = hn::IfThenElse(denormal, hn::Mul(x, Const(8388608.0f)), x);
  const VI bits = hn::BitCast(DI(), a);
  const VI two_thirds = hn::Set(DI(), 0x3f2aaaab);
  const VI e =
      hn::And(hn::Sub(bits, two_thirds), hn::Set(DI(), static_cast<std::int32_t>(0xff800000u)));
  const VF m = hn::Sub(hn::BitCast(DF(), hn::Sub(bits, e)), Const(1.0f));
  const VF i = hn::MulAdd(hn::ConvertTo(DF(), e), Const(1.19209290e-7f),
                          hn::IfThenElseZero(denormal, Const(-23.0f)));
  const VF s = hn::Mul(m, m);
  VF r = Const(-0.130310059f);
  VF t = Const(0.140869141f);
  r = hn::MulAdd(r, s, Const(-0.121483512f));
  t = hn::MulAdd(t, s, Const(0.139814854f));
  r = hn::MulAdd(r, s, Const(-0.166846126f));
  t = hn::MulAdd(t, s, Const(0.200120345f));
  r = hn::MulAdd(r, s, Const(-0.249996200f));
  r = hn::MulAdd(t, m, r);
  r = hn::MulAdd(r, m, Const(0.333331972f));
  r = hn::MulAdd(r, m, Const(-0.5f));
  r = hn::MulAdd(r, s, m);
  r = hn::MulAdd(i, Const(0.693147182f), r);
  // Not positive, or infinite, or NaN.
  const VF inf = hn::Inf(DF());
  r = hn::IfThenElse(hn::Lt(x, inf), r, x);
  r = hn::IfThenElse(hn::Eq(x, hn::Zero(DF())), hn::Neg(inf), r);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(DF())), hn::NaN(DF()), r);
}

// t / (t + 2) with t = exp(2|x|) - 1.
HWY_INLINE VF Tanh(VF x) {
  const VF y = hn::Min(Const(20.0f), hn::Mul(Const(2.0f), hn::Abs(x)));
  const ExpParts e = SplitExp(y);
  const VF power =
      hn::BitCast(DF(), hn::Add(hn::ShiftLeft<23>(e.power),
                                hn::Set(DI(), 127 << 23)));  // the magic number's bits fall out
  const VF t = hn::MulAdd(power, ExpTail(e.r), hn::Sub(power, Const(1.0f)));
  return hn::CopySign(hn::Div(t, hn::Add(t, Const(2.0f))), x);
}

// sigma(x) and 1 - sigma(x), without cancellation.
struct LogisticPair {
  VF value, rest;
};

HWY_INLINE LogisticPair LogisticBoth(VF x) {
  const VF e = Exp(hn::Neg(hn::Abs(x)));
  const VF large = hn::Div(Const(1.0f), hn::Add(Const(1.0f), e));
  const VF small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(DF()));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

HWY_INLINE VF Logistic(VF x) { return LogisticBoth(x).value; }

// erf(x), and 1 + erf(x) without cancellation for negative x. Method and coefficients by Norbert
// Juffa.
struct ErfPair {
  VF erf, one_plus;
};

HWY_INLINE ErfPair ErfBoth(VF x) {
  const VF t = hn::Min(Const(10.0f), hn::Abs(x));
  const VF s = hn::Mul(t, t);
  VF r = hn::MulAdd(Const(-1.72853470e-5f), t, Const(3.83197126e-4f));
  VF u = hn::MulAdd(Const(-3.88396438e-3f), t, Const(2.42546219e-2f));
  r = hn::MulAdd(r, s, u);
  r = hn::MulAdd(r, t, Const(-1.06777877e-1f));
  r = hn::MulAdd(r, t, Const(-6.34846687e-1f));
  r = hn::MulAdd(r, t, Const(-1.28717512e-1f));
  r = hn::MulAdd(r, t, hn::Neg(t));
  const VF complement = Exp(r);  // 1 - erf(t) for t > 0.93

  VF q = hn::MulAdd(Const(-5.96761703e-4f), s, Const(4.99119423e-3f));
  q = hn::MulAdd(q, s, Const(-2.67681349e-2f));
  q = hn::MulAdd(q, s, Const(1.12819925e-1f));
  q = hn::MulAdd(q, s, Const(-3.76125336e-1f));
  q = hn::MulAdd(q, s, Const(1.28379166e-1f));
  const VF central = hn::MulAdd(q, x, x);

  const VF one = Const(1.0f);
  const auto tail = hn::Gt(t, Const(0.927734375f));
  const VF erf = hn::IfThenElse(tail, hn::CopySign(hn::Sub(one, complement), x), central);
  const auto left = hn::And(tail, hn::Lt(x, hn::Zero(DF())));
  return {erf, hn::IfThenElse(left, complement, hn::Add(one, erf))};
}

HWY_INLINE VF Silu(VF x) { return hn::Mul(x, Logistic(x)); }

HWY_INLINE VF SiluSlope(VF x) {
  const LogisticPair s = LogisticBoth(x);
  return hn::Mul(s.value, hn::MulAdd(x, s.rest, Const(1.0f)));
}

// x/2 (1 + tanh(u)) = x sigma(2u), with 2u = 2 sqrt(2/pi) x (1 + 0.044715 x^2).
HWY_INLINE VF GeluTanhArgument(VF x) {
  const VF c = Const(1.59576912f);
  return hn::Mul(hn::Mul(c, x), hn::MulAdd(hn::Mul(x, x), Const(0.044715f), Const(1.0f)));
}

HWY_INLINE VF GeluTanh(VF x) { return hn::Mul(x, Logistic(GeluTanhArgument(x))); }

HWY_INLINE VF GeluTanhSlope(VF x) {
  const LogisticPair s = LogisticBoth(GeluTanhArgument(x));
  // Beyond 20 the second summand is 0; the bound keeps 0 * inf out.
  const VF y = hn::Min(Const(20.0f), hn::Max(Const(-20.0f), x));
  const VF inner =
      hn::MulAdd(hn::Mul(y, y), Const(1.59576912f * 3 * 0.044715f), Const(1.59576912f));
  return hn::MulAdd(hn::Mul(s.value, s.rest), hn::Mul(y, inner), s.value);
}

HWY_INLINE VF GeluErf(VF x) {
  const VF half_x = hn::Mul(Const(0.5f), x);
  return hn::Mul(half_x, ErfBoth(hn::Mul(x, Const(0.707106781f))).one_plus);
}

HWY_INLINE VF GeluErfSlope(VF x) {
  const VF density = hn::Mul(Const(0.398942280f), Exp(hn::Mul(Const(-0.5f), hn::Mul(x, x))));
  const VF y = hn::Min(Const(20.0f), hn::Max(Const(-20.0f), x));
  const VF cumulated = hn::Mul(Const(0.5f), ErfBoth(hn::Mul(x, Const(0.707106781f))).one_plus);
  return hn::MulAdd(y, density, cumulated);
}

// An angle as r + k pi/2 with |r| <= pi/4; k modulo 4 counts.
struct Angle {
  VF r;
  VI k;
};

using DFHalf = hn::Half<DF>;
using DD = hn::Rebind<double, DFHalf>;  // as many doubles as half a vector of floats
using VD = hn::Vec<DD>;

struct HalfAngle {
  hn::Vec<DFHalf> r;
  hn::Vec<hn::Rebind<std::int32_t, DD>> k;
};

// In double: to 1e-9 for angles up to a million.
HWY_INLINE HalfAngle ReduceHalf(VD angle) {
  const DD d;
  const VD magic = hn::Set(d, 6755399441055744.0);  // 1.5 * 2^52
  const VD k = hn::Sub(hn::MulAdd(angle, hn::Set(d, 0.63661977236758134308), magic), magic);
  VD r = hn::NegMulAdd(k, hn::Set(d, 1.5707963267948965580), angle);
  r = hn::NegMulAdd(k, hn::Set(d, 6.1232339957367658862e-17), r);
  return {hn::DemoteTo(DFHalf(), r), hn::DemoteTo(hn::Rebind<std::int32_t, DD>(), k)};
}

HWY_INLINE Angle ReduceAngle(VD low, VD high) {
  const HalfAngle a = ReduceHalf(low), b = ReduceHalf(high);
  return {hn::Combine(DF(), b.r, a.r), hn::Combine(DI(), b.k, a.k)};
}

struct SinCosPair {
  VF sin, cos;
};

// Coefficients of Cephes.
HWY_INLINE SinCosPair SinCos(Angle a) {
  const VF s = hn::Mul(a.r, a.r);
  VF p = hn::MulAdd(Const(-1.9515295891e-4f), s, Const(8.3321608736e-3f));
  p = hn::MulAdd(p, s, Const(-1.6666654611e-1f));
  p = hn::MulAdd(hn::Mul(p, s), a.r, a.r);
  VF q = hn::MulAdd(Const(2.443315711809948e-5f), s, Const(-1.388731625493765e-3f));
  q = hn::MulAdd(q, s, Const(4.166664568298827e-2f));
  q = hn::MulAdd(hn::Mul(q, s), s, hn::NegMulAdd(Const(0.5f), s, Const(1.0f)));
  const auto swapped = hn::RebindMask(DF(), hn::TestBit(a.k, hn::Set(DI(), 1)));
  const VF sin = hn::IfThenElse(swapped, q, p), cos = hn::IfThenElse(swapped, p, q);
  // Bit 1 of k and of k + 1 moved to the sign.
  const VI two = hn::Set(DI(), 2);
  const VI sin_sign = hn::ShiftLeft<30>(hn::And(a.k, two));
  const VI cos_sign = hn::ShiftLeft<30>(hn::And(hn::Add(a.k, hn::Set(DI(), 1)), two));
  return {hn::Xor(sin, hn::BitCast(DF(), sin_sign)), hn::Xor(cos, hn::BitCast(DF(), cos_sign))};
}

HWY_INLINE SinCosPair SinCosOf(VF x) {
  const DFHalf half;
  return SinCos(ReduceAngle(hn::PromoteTo(DD(), hn::LowerHalf(half, x)),
                            hn::PromoteTo(DD(), hn::UpperHalf(half, x))));
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard for each target
