#include "dew/runtime/cpu/kernels/fused_ops.h"

#include <cmath>

#include "dew/ops/ops.h"
#include "dew/runtime/cpu/kernels/kernels_highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dew/runtime/cpu/kernels/fused_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "dew/runtime/cpu/kernels/fused_code-inl.h"
#include "dew/runtime/cpu/kernels/fused_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dew::cpu::HWY_NAMESPACE {
namespace {

// ---- ops: f32, and integers where it makes sense ----
#define DEW_UNARY_OP(Name, expression)             \
  struct Name {                                    \
    template <class Tag, class V>                  \
    HWY_INLINE auto operator()(Tag d, V x) const { \
      (void)d;                                     \
      return expression;                           \
    }                                              \
  }
#define DEW_BINARY_OP(Name, expression)                 \
  struct Name {                                         \
    template <class Tag, class V>                       \
    HWY_INLINE auto operator()(Tag d, V a, V b) const { \
      (void)d;                                          \
      return expression;                                \
    }                                                   \
  }

DEW_BINARY_OP(AddOp, hn::Add(a, b));
DEW_BINARY_OP(SubOp, hn::Sub(a, b));
DEW_BINARY_OP(MulOp, hn::Mul(a, b));
DEW_BINARY_OP(DivOp, hn::Div(a, b));
// Max and Min give the second operand if one is NaN; so only a first one that is NaN must be kept
// by hand.
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
DEW_UNARY_OP(SignOp,
             hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), x), x));
DEW_UNARY_OP(IntSignOp, hn::Or(hn::ShiftRight<31>(x),
                               hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1))));
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
DEW_UNARY_OP(IntFromFloat,
             hn::IfThenZeroElse(hn::RebindMask(DI(), hn::IsNaN(x)), hn::ConvertTo(DI(), x)));

// Halves of 16 bits are exact in f32, so that only the last sum rounds.
DEW_UNARY_OP(FloatFromUnsigned,
             hn::MulAdd(hn::ConvertTo(DF(), hn::BitCast(DI(), hn::ShiftRight<16>(x))),
                        hn::Set(DF(), 65536.0f),
                        hn::ConvertTo(DF(), hn::BitCast(DI(), hn::And(x, hn::Set(d, 0xffff))))));

#undef DEW_UNARY_OP
#undef DEW_BINARY_OP

struct UnsignedFromFloat {
  static std::uint32_t Apply(std::uint32_t bits, std::uint32_t, double) {
    const float value = FromBits(bits);
    if (!(value > 0.0f)) return 0;
    return value >= 4294967296.0f ? ~0u : static_cast<std::uint32_t>(value);
  }
};

// Division by zero gives 0, and the one quotient that does not fit wraps.
struct Divide {
  template <class T>
  static T Apply(T x, T y, double) {
    return y == 0 ? T{0}
                  : static_cast<T>(static_cast<std::uint32_t>(std::int64_t{x} / std::int64_t{y}));
  }
};

struct Power {
  static float Apply(float x, float, double exponent) {
    return static_cast<float>(std::pow(static_cast<double>(x), exponent));
  }
};

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

template <class F>
CodeFn Fn(F* routine) {
  return reinterpret_cast<CodeFn>(routine);
}

template <class Op, class T>
CodeFn Unary(Form form) {
  return form == Form::unary ? Fn(UnaryCode<Op, T>) : nullptr;
}
template <class Op>
CodeFn Long(Form form) {
  return form == Form::unary ? Fn(LongUnaryCode<Op, float>) : nullptr;
}
template <class Op, class T>
CodeFn Binary(Form form) {
  if (form == Form::acc_mem) return Fn(BinaryCode<Op, T, Form::acc_mem>);
  if (form == Form::mem_acc) return Fn(BinaryCode<Op, T, Form::mem_acc>);
  if (form == Form::acc_acc) return Fn(BinaryCode<Op, T, Form::acc_acc>);
  return nullptr;
}
template <class Each, class T>
CodeFn Element(Form form) {
  if (form == Form::unary) return Fn(ElementCode<Each, T, Form::unary>);
  if (form == Form::acc_mem) return Fn(ElementCode<Each, T, Form::acc_mem>);
  if (form == Form::mem_acc) return Fn(ElementCode<Each, T, Form::mem_acc>);
  if (form == Form::acc_acc) return Fn(ElementCode<Each, T, Form::acc_acc>);
  return nullptr;
}
inline CodeFn Select(Form form) {
  if (form == Form::select_first) return Fn(SelectCode<Form::select_first>);
  if (form == Form::select_second) return Fn(SelectCode<Form::select_second>);
  if (form == Form::select_third) return Fn(SelectCode<Form::select_third>);
  return nullptr;
}

using ByForm = CodeFn (*)(Form);

struct Row {
  const OpDef* op;
  ByForm f32, i32 = nullptr, u32 = nullptr, pred = nullptr;  // by the operands' type
};

constexpr Row kRows[] = {
    {&add_op, Binary<AddOp, float>, Binary<AddOp, I>, Binary<AddOp, U>},
    {&sub_op, Binary<SubOp, float>, Binary<SubOp, I>, Binary<SubOp, U>},
    {&mul_op, Binary<MulOp, float>, Binary<MulOp, I>, Binary<MulOp, U>},
    {&div_op, Binary<DivOp, float>, Element<Divide, I>, Element<Divide, U>},
    {&max_op, Binary<MaxOp, float>, Binary<IntMaxOp, I>, Binary<IntMaxOp, U>},
    {&min_op, Binary<MinOp, float>, Binary<IntMinOp, I>, Binary<IntMinOp, U>},
    {&neg_op, Unary<NegOp, float>, Unary<IntNegOp, I>, Unary<IntNegOp, U>},
    {&exp_op, Long<ExpOp>},
    {&log_op, Long<LogOp>},
    {&sqrt_op, Unary<SqrtOp, float>},
    {&rsqrt_op, Unary<RsqrtOp, float>},
    {&tanh_op, Long<TanhOp>},
    {&logistic_op, Long<LogisticOp>},
    {&erf_op, Long<ErfOp>},
    {&sin_op, Long<SinOp>},
    {&cos_op, Long<CosOp>},
    {&abs_op, Unary<AbsOp, float>, Unary<AbsOp, I>, Unary<SameOp, U>},
    {&sign_op, Unary<SignOp, float>, Unary<IntSignOp, I>, Unary<UnsignedSignOp, U>},
    {&floor_op, Unary<FloorOp, float>},
    {&silu_op, Long<SiluOp>},
    {&silu_slope_op, Long<SiluSlopeOp>},
    {&gelu_tanh_op, Long<GeluTanhOp>},
    {&gelu_tanh_slope_op, Long<GeluTanhSlopeOp>},
    {&gelu_erf_op, Long<GeluErfOp>},
    {&gelu_erf_slope_op, Long<GeluErfSlopeOp>},
    {&equal_op, Binary<EqualOp, float>, Binary<EqualOp, I>, Binary<EqualOp, U>, Binary<EqualOp, U>},
    {&less_op, Binary<LessOp, float>, Binary<LessOp, I>, Binary<LessOp, U>},
    {&less_equal_op, Binary<LessEqualOp, float>, Binary<IntLessEqualOp, I>,
     Binary<IntLessEqualOp, U>},
    {&logical_and_op, nullptr, nullptr, nullptr, Binary<AndOp, U>},
    {&logical_or_op, nullptr, nullptr, nullptr, Binary<OrOp, U>},
    {&logical_not_op, nullptr, nullptr, nullptr, Unary<NotOp, U>},
    {&is_finite_op, Unary<IsFiniteOp, float>},
    {&select_op, Select, Select, Select, Select},
};

inline ByForm ByType(DType type, ByForm f32, ByForm i32, ByForm u32, ByForm pred) {
  switch (type) {
    case DType::f32:
    case DType::bf16:
      return f32;
    case DType::i32:
      return i32;
    case DType::u32:
      return u32;
    case DType::pred:
      return pred;
    case DType::f64:
      break;
  }
  return nullptr;
}

inline ByForm FindConvert(DType from, DType to) {
  const ByForm same = Unary<SameOp, float>;
  switch (to) {
    case DType::f32:
    case DType::bf16:
      return ByType(from, same, Unary<FloatFromInt, I>, Unary<FloatFromUnsigned, U>,
                    Unary<FloatFromMask, float>);
    case DType::i32:
      return ByType(from, Unary<IntFromFloat, float>, same, same, Unary<IntFromMask, I>);
    case DType::u32:
      return ByType(from, Element<UnsignedFromFloat, U>, same, same, Unary<IntFromMask, I>);
    case DType::pred:
      return ByType(from, Unary<MaskFromAny, float>, Unary<MaskFromAny, I>, Unary<MaskFromAny, U>,
                    same);
    case DType::f64:
      break;
  }
  return nullptr;
}

inline ByForm FindPow(double exponent) {
  if (exponent == 0) return Unary<OneOp, float>;
  if (exponent == 1) return Unary<SameOp, float>;
  if (exponent == 2) return Unary<SquareOp, float>;
  if (exponent == 3) return Unary<CubeOp, float>;
  if (exponent == -1) return Unary<ReciprocalOp, float>;
  if (exponent == 0.5) return Unary<SqrtOp, float>;
  if (exponent == -0.5) return Unary<RsqrtOp, float>;
  return Element<Power, float>;
}

CodeFn FindCode(const OpDef* op, double number, DType operand, DType result, Form form) {
  ByForm found = nullptr;
  if (op == &convert_op) {
    found = FindConvert(operand, result);
  } else if (op == &stop_gradient_op) {
    found = Unary<SameOp, float>;
  } else if (op == &pow_op) {
    if (is_float(operand)) found = FindPow(number);
  }
  for (const Row& row : kRows) {
    if (row.op == op) found = ByType(operand, row.f32, row.i32, row.u32, row.pred);
  }
  return found == nullptr ? nullptr : found(form);
}

CodeFn FindLoad(DType dtype) {
  if (dtype == DType::bf16) return Fn(LoadCode<Brain16>);
  return dtype == DType::pred ? Fn(LoadCode<Byte>) : Fn(LoadCode<Bits32>);
}

CodeFn FindStore(DType dtype) {
  if (dtype == DType::bf16) return Fn(StoreCode<Brain16>);
  return dtype == DType::pred ? Fn(StoreCode<Byte>) : Fn(StoreCode<Bits32>);
}

const CodeTable& Table() {
  static const CodeTable table = {FindCode, FindLoad, FindStore, Fn(HaltCode), RunCodes};
  return table;
}

}  // namespace
}  // namespace dew::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dew::cpu {

HWY_EXPORT(Table);

const CodeTable& code_table() { return HWY_DYNAMIC_DISPATCH(Table)(); }

bool is_identity(const OpDef* op, DType operand, DType result) {
  if (op == &stop_gradient_op) return true;
  if (op != &convert_op) return false;
  const auto same_kind = [&](auto kind) { return kind(operand) && kind(result); };
  return operand == result || same_kind(is_float) || same_kind(is_integer);
}

}  // namespace dew::cpu
#endif  // HWY_ONCE
