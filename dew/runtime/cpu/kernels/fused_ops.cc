#include "dew/runtime/cpu/kernels/fused_ops.h"

#include <cmath>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/fused_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/fused_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {

// ---- loops ----

template <class T>
using D = hn::ScalableTag<T>;

// Tiles hold every type as 32 bits.
template <class T>
HWY_INLINE hn::Vec<D<T>> Get(const Operand& a, std::size_t i) {
  return hn::BitCast(D<T>(), hn::LoadU(DF(), a.p + (i & a.mask)));
}
template <class T>
HWY_INLINE hn::Vec<D<T>> GetPart(const Operand& a, std::size_t i, std::size_t n) {
  return hn::BitCast(D<T>(), LoadPart(a.p + (i & a.mask), n));
}
template <class V>
HWY_INLINE VF AsFloat(V v) {
  return hn::BitCast(DF(), v);
}

template <class Op, class T>
void Unary(const MicroArgs& args) {
  const Operand a = args.operands[0];
  float* const to = args.to;
  std::size_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) hn::StoreU(AsFloat(Op()(D<T>(), Get<T>(a, i))), DF(), to + i);
  if (const std::size_t rest = args.n - i; rest != 0) {
    StorePart(AsFloat(Op()(D<T>(), GetPart<T>(a, i, rest))), to + i, rest);
  }
}

template <class Op, class T>
void Binary(const MicroArgs& args) {
  const Operand a = args.operands[0], b = args.operands[1];
  float* const to = args.to;
  std::size_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    hn::StoreU(AsFloat(Op()(D<T>(), Get<T>(a, i), Get<T>(b, i))), DF(), to + i);
  }
  if (const std::size_t rest = args.n - i; rest != 0) {
    StorePart(AsFloat(Op()(D<T>(), GetPart<T>(a, i, rest), GetPart<T>(b, i, rest))), to + i, rest);
  }
}

HWY_INLINE VF Choose(VF condition, VF a, VF b) { return hn::IfThenElse(hn::MaskFromVec(condition), a, b); }

void Select(const MicroArgs& args) {
  const Operand c = args.operands[0], a = args.operands[1], b = args.operands[2];
  float* const to = args.to;
  std::size_t i = 0;
  for (; i + kLanes <= args.n; i += kLanes) {
    hn::StoreU(Choose(Get<float>(c, i), Get<float>(a, i), Get<float>(b, i)), DF(), to + i);
  }
  if (const std::size_t rest = args.n - i; rest != 0) {
    StorePart(Choose(GetPart<float>(c, i, rest), GetPart<float>(a, i, rest), GetPart<float>(b, i, rest)), to + i, rest);
  }
}

// One element after the other, for what is rare and has no vector form.
template <class T, class Each>
void Elementwise(const MicroArgs& args, Each each) {
  for (std::size_t i = 0; i < args.n; ++i) {
    T x[2] = {};
    for (int k = 0; k < Each::kArity; ++k) {
      __builtin_memcpy(&x[k], args.operands[k].p + (i & args.operands[k].mask), sizeof(T));
    }
    const T y = each(x);
    __builtin_memcpy(args.to + i, &y, sizeof(T));
  }
}

// ---- ops: f32, and integers where it makes sense ----
#define DEW_UNARY_OP(Name, expression)         \
  struct Name {                                \
    template <class Tag, class V>              \
    HWY_INLINE auto operator()(Tag d, V x) const { \
      (void)d;                                 \
      return expression;                       \
    }                                          \
  }
#define DEW_BINARY_OP(Name, expression)                \
  struct Name {                                        \
    template <class Tag, class V>                      \
    HWY_INLINE auto operator()(Tag d, V a, V b) const { \
      (void)d;                                         \
      return expression;                               \
    }                                                  \
  }

DEW_BINARY_OP(AddOp, hn::Add(a, b));
DEW_BINARY_OP(SubOp, hn::Sub(a, b));
DEW_BINARY_OP(MulOp, hn::Mul(a, b));
DEW_BINARY_OP(DivOp, hn::Div(a, b));
// Max and Min give the second operand if one is NaN; so only a first one that is NaN must be kept by hand.
DEW_BINARY_OP(MaxOp, hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b)));
DEW_BINARY_OP(MinOp, hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b)));
DEW_BINARY_OP(IntMaxOp, hn::Max(a, b));
DEW_BINARY_OP(IntMinOp, hn::Min(a, b));
DEW_BINARY_OP(EqualOp, hn::VecFromMask(d, hn::Eq(a, b)));
DEW_BINARY_OP(LessOp, hn::VecFromMask(d, hn::Lt(a, b)));
DEW_BINARY_OP(LessEqualOp, hn::VecFromMask(d, hn::Le(a, b)));
DEW_BINARY_OP(IntLessEqualOp, hn::VecFromMask(d, hn::Not(hn::Lt(b, a))));
DEW_BINARY_OP(AndOp, hn::And(a, b));
DEW_BINARY_OP(OrOp, hn::Or(a, b));

DEW_UNARY_OP(NotOp, hn::Not(x));
DEW_UNARY_OP(NegOp, hn::Neg(x));
DEW_UNARY_OP(IntNegOp, hn::Sub(hn::Zero(d), x));
DEW_UNARY_OP(ExpOp, Exp(x));
DEW_UNARY_OP(LogOp, Log(x));
DEW_UNARY_OP(SqrtOp, hn::Sqrt(x));
DEW_UNARY_OP(RsqrtOp, hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)));
DEW_UNARY_OP(TanhOp, Tanh(x));
DEW_UNARY_OP(LogisticOp, Logistic(x));
DEW_UNARY_OP(ErfOp, ErfBoth(x).erf);
DEW_UNARY_OP(AbsOp, hn::Abs(x));
DEW_UNARY_OP(FloorOp, hn::Floor(x));
DEW_UNARY_OP(SiluOp, Silu(x));
DEW_UNARY_OP(SiluSlopeOp, SiluSlope(x));
DEW_UNARY_OP(GeluTanhOp, GeluTanh(x));
DEW_UNARY_OP(GeluTanhSlopeOp, GeluTanhSlope(x));
DEW_UNARY_OP(GeluErfOp, GeluErf(x));
DEW_UNARY_OP(GeluErfSlopeOp, GeluErfSlope(x));
DEW_UNARY_OP(IsFiniteOp, hn::VecFromMask(d, hn::IsFinite(x)));
// Zeros and NaN stay.
DEW_UNARY_OP(SignOp, hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), x), x));
DEW_UNARY_OP(IntSignOp, hn::Or(hn::ShiftRight<31>(x), hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1))));
DEW_UNARY_OP(UnsignedSignOp, hn::Min(x, hn::Set(d, 1)));
DEW_UNARY_OP(SquareOp, hn::Mul(x, x));
DEW_UNARY_OP(CubeOp, hn::Mul(hn::Mul(x, x), x));
DEW_UNARY_OP(ReciprocalOp, hn::Div(hn::Set(d, 1.0f), x));
DEW_UNARY_OP(OneOp, ((void)x, hn::Set(d, 1.0f)));
DEW_UNARY_OP(SameOp, x);

// ---- conversions; masks come from pred ----
DEW_UNARY_OP(FloatFromInt, hn::ConvertTo(DF(), x));
DEW_UNARY_OP(FloatFromMask, hn::And(x, hn::Set(d, 1.0f)));
DEW_UNARY_OP(IntFromMask, hn::And(x, hn::Set(d, 1)));
DEW_UNARY_OP(MaskFromAny, hn::VecFromMask(d, hn::Ne(x, hn::Zero(d))));
// Towards zero; NaN becomes 0, what is too large the nearest integer of the type.
DEW_UNARY_OP(IntFromFloat, hn::IfThenZeroElse(hn::RebindMask(DI(), hn::IsNaN(x)), hn::ConvertTo(DI(), x)));

// Halves of 16 bits are exact in f32, so that only the last sum rounds.
DEW_UNARY_OP(FloatFromUnsigned,
             hn::MulAdd(hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<16>(x))), hn::Set(DF(), 65536.0f),
                        hn::ConvertTo(DF(), hn::BitCast(DI(), hn::And(x, hn::Set(d, 0xffff))))));

#undef DEW_UNARY_OP
#undef DEW_BINARY_OP

struct UnsignedEach {
  static constexpr int kArity = 1;
  std::uint32_t operator()(const std::uint32_t* x) const {
    float value;
    __builtin_memcpy(&value, x, sizeof value);
    if (!(value > 0.0f)) return 0;
    return value >= 4294967296.0f ? ~0u : static_cast<std::uint32_t>(value);
  }
};
void UnsignedFromFloat(const MicroArgs& args) { Elementwise<std::uint32_t>(args, UnsignedEach()); }

// Division by zero gives 0, and the one quotient that does not fit wraps.
template <class T>
struct DivideEach {
  static constexpr int kArity = 2;
  T operator()(const T* x) const {
    if (x[1] == 0) return 0;
    return static_cast<T>(static_cast<std::uint32_t>(std::int64_t{x[0]} / std::int64_t{x[1]}));
  }
};
template <class T>
void IntDiv(const MicroArgs& args) {
  Elementwise<T>(args, DivideEach<T>());
}

struct PowEach {
  static constexpr int kArity = 1;
  double exponent;
  float operator()(const float* x) const { return static_cast<float>(std::pow(static_cast<double>(*x), exponent)); }
};
void PowAny(const MicroArgs& args) { Elementwise<float>(args, PowEach{args.number}); }

// The vector form reduces angles in double, enough up to a million.
template <bool kSine>
VF SineVector(VF x) {
  const SinCosPair pair = SinCosOf(x);
  const VF y = kSine ? pair.sin : pair.cos;
  if (HWY_LIKELY(hn::AllTrue(DF(), hn::Lt(hn::Abs(x), hn::Set(DF(), 1e6f))))) return y;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, DF(), lanes);
  for (float& lane : lanes) {
    const double value = lane;
    lane = static_cast<float>(kSine ? std::sin(value) : std::cos(value));
  }
  return hn::Load(DF(), lanes);
}
struct SinOp {
  VF operator()(DF, VF x) const { return SineVector<true>(x); }
};
struct CosOp {
  VF operator()(DF, VF x) const { return SineVector<false>(x); }
};

// ---- tables ----

using I = std::int32_t;
using U = std::uint32_t;

struct Row {
  const OpDef* op;
  MicroFn f32, i32, u32, pred;  // by the operands' type
};

constexpr Row kRows[] = {
    {&add_op, Binary<AddOp, float>, Binary<AddOp, I>, Binary<AddOp, U>, nullptr},
    {&sub_op, Binary<SubOp, float>, Binary<SubOp, I>, Binary<SubOp, U>, nullptr},
    {&mul_op, Binary<MulOp, float>, Binary<MulOp, I>, Binary<MulOp, U>, nullptr},
    {&div_op, Binary<DivOp, float>, IntDiv<I>, IntDiv<U>, nullptr},
    {&max_op, Binary<MaxOp, float>, Binary<IntMaxOp, I>, Binary<IntMaxOp, U>, nullptr},
    {&min_op, Binary<MinOp, float>, Binary<IntMinOp, I>, Binary<IntMinOp, U>, nullptr},
    {&neg_op, Unary<NegOp, float>, Unary<IntNegOp, I>, Unary<IntNegOp, U>, nullptr},
    {&exp_op, Unary<ExpOp, float>, nullptr, nullptr, nullptr},
    {&log_op, Unary<LogOp, float>, nullptr, nullptr, nullptr},
    {&sqrt_op, Unary<SqrtOp, float>, nullptr, nullptr, nullptr},
    {&rsqrt_op, Unary<RsqrtOp, float>, nullptr, nullptr, nullptr},
    {&tanh_op, Unary<TanhOp, float>, nullptr, nullptr, nullptr},
    {&logistic_op, Unary<LogisticOp, float>, nullptr, nullptr, nullptr},
    {&erf_op, Unary<ErfOp, float>, nullptr, nullptr, nullptr},
    {&sin_op, Unary<SinOp, float>, nullptr, nullptr, nullptr},
    {&cos_op, Unary<CosOp, float>, nullptr, nullptr, nullptr},
    {&abs_op, Unary<AbsOp, float>, Unary<AbsOp, I>, Unary<SameOp, U>, nullptr},
    {&sign_op, Unary<SignOp, float>, Unary<IntSignOp, I>, Unary<UnsignedSignOp, U>, nullptr},
    {&floor_op, Unary<FloorOp, float>, nullptr, nullptr, nullptr},
    {&silu_op, Unary<SiluOp, float>, nullptr, nullptr, nullptr},
    {&silu_slope_op, Unary<SiluSlopeOp, float>, nullptr, nullptr, nullptr},
    {&gelu_tanh_op, Unary<GeluTanhOp, float>, nullptr, nullptr, nullptr},
    {&gelu_tanh_slope_op, Unary<GeluTanhSlopeOp, float>, nullptr, nullptr, nullptr},
    {&gelu_erf_op, Unary<GeluErfOp, float>, nullptr, nullptr, nullptr},
    {&gelu_erf_slope_op, Unary<GeluErfSlopeOp, float>, nullptr, nullptr, nullptr},
    {&equal_op, Binary<EqualOp, float>, Binary<EqualOp, I>, Binary<EqualOp, U>, Binary<EqualOp, U>},
    {&less_op, Binary<LessOp, float>, Binary<LessOp, I>, Binary<LessOp, U>, nullptr},
    {&less_equal_op, Binary<LessEqualOp, float>, Binary<IntLessEqualOp, I>, Binary<IntLessEqualOp, U>, nullptr},
    {&logical_and_op, nullptr, nullptr, nullptr, Binary<AndOp, U>},
    {&logical_or_op, nullptr, nullptr, nullptr, Binary<OrOp, U>},
    {&logical_not_op, nullptr, nullptr, nullptr, Unary<NotOp, U>},
    {&is_finite_op, Unary<IsFiniteOp, float>, nullptr, nullptr, nullptr},
    {&select_op, Select, Select, Select, Select},
};

MicroFn ByType(DType type, MicroFn f32, MicroFn i32, MicroFn u32, MicroFn pred) {
  switch (type) {
    case DType::f32:
    case DType::bf16: return f32;
    case DType::i32: return i32;
    case DType::u32: return u32;
    case DType::pred: return pred;
    case DType::f64: break;
  }
  return nullptr;
}

MicroFn FindConvert(DType from, DType to) {
  const MicroFn same = Unary<SameOp, float>;
  switch (to) {
    case DType::f32:
    case DType::bf16:
      return ByType(from, same, Unary<FloatFromInt, I>, Unary<FloatFromUnsigned, U>, Unary<FloatFromMask, float>);
    case DType::i32: return ByType(from, Unary<IntFromFloat, float>, same, same, Unary<IntFromMask, I>);
    case DType::u32: return ByType(from, UnsignedFromFloat, same, same, Unary<IntFromMask, I>);
    case DType::pred: return ByType(from, Unary<MaskFromAny, float>, Unary<MaskFromAny, I>, Unary<MaskFromAny, U>, same);
    case DType::f64: break;
  }
  return nullptr;
}

MicroFn FindPow(double exponent) {
  if (exponent == 0) return Unary<OneOp, float>;
  if (exponent == 1) return Unary<SameOp, float>;
  if (exponent == 2) return Unary<SquareOp, float>;
  if (exponent == 3) return Unary<CubeOp, float>;
  if (exponent == -1) return Unary<ReciprocalOp, float>;
  if (exponent == 0.5) return Unary<SqrtOp, float>;
  if (exponent == -0.5) return Unary<RsqrtOp, float>;
  return PowAny;
}

MicroFn FindMicro(const OpDef* op, const Attrs& attrs, DType operand, DType result) {
  if (op == &convert_op) return FindConvert(operand, result);
  if (op == &stop_gradient_op) return Unary<SameOp, float>;
  if (op == &pow_op) return operand == DType::f32 || operand == DType::bf16 ? FindPow(std::get<Number>(attrs).value) : nullptr;
  for (const Row& row : kRows) {
    if (row.op == op) return ByType(operand, row.f32, row.i32, row.u32, row.pred);
  }
  return nullptr;
}

}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(FindMicro);

MicroFn find_micro(const OpDef* op, const Attrs& attrs, std::span<const DType> operands, DType result) {
  if (operands.empty() || operands.size() > 3) return nullptr;
  return HWY_DYNAMIC_DISPATCH(FindMicro)(op, attrs, operands[0], result);
}

bool is_identity(const OpDef* op, DType operand, DType result) {
  if (op == &stop_gradient_op) return true;
  if (op != &convert_op) return false;
  const auto same_kind = [&](auto kind) { return kind(operand) && kind(result); };
  return operand == result || same_kind(is_float) || same_kind(is_integer);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
