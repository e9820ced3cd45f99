// Pointwise ops: one line an op. What the lines have in common (types, factors, the loop over
// elements, operands of rank 0 in gradients) is made from the line by the templates above the
// table.
#include <cmath>
#include <numbers>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

enum class Takes { floats, numbers, preds, any };
enum class Gives { same, pred };

struct Signature {
  char name[16];
  int arity;
  Takes takes = Takes::floats;
  Gives gives = Gives::same;
};

bool fits(Takes takes, DType dtype) {
  switch (takes) {
    case Takes::floats:
      return is_float(dtype);
    case Takes::numbers:
      return is_float(dtype) || is_integer(dtype);
    case Takes::preds:
      return dtype == DType::pred;
    case Takes::any:
      return true;
  }
  return false;
}

// ---- types ----

Dims common_shape(const Checks& check, Types in) {
  const Type* shaped = &in[0];
  for (const Type& type : in) {
    if (type.rank() == 0) continue;
    if (shaped->rank() != 0 && shaped->shape != type.shape) check.refuse("EW-2", "shapes differ");
    shaped = &type;
  }
  return shaped->shape;
}

void check_dtypes(const Checks& check, Types in, Takes takes) {
  for (const Type& type : in) {
    if (type.dtype != in[0].dtype) check.refuse("EW-1", "dtypes differ");
    if (!fits(takes, type.dtype))
      check.refuse("EW-3", format("does not take {}", name(type.dtype)));
  }
}

template <Signature S>
std::vector<Type> infer(const Attrs&, Types in) {
  const Checks check(S.name, S.arity == 1 ? "x" : "a b", in);
  check_dtypes(check, in, S.takes);
  return {{S.gives == Gives::pred ? DType::pred : in[0].dtype, common_shape(check, in)}};
}

std::vector<Type> infer_select(const Attrs&, Types in) {
  const Checks check("select", "condition a b", in);
  if (in[0].dtype != DType::pred) check.refuse("EW-4", "condition must be pred");
  check_dtypes(check, in.subspan(1), Takes::any);
  return {{in[1].dtype, common_shape(check, in)}};
}

std::vector<Type> infer_convert(const Attrs& attrs, Types in) {
  const Checks check("convert", "x", in);
  return {{check.attrs<ConvertTo>(attrs).dtype, in[0].shape}};
}

std::vector<Type> infer_pow(const Attrs& attrs, Types in) {
  const Checks check("pow", "x", in);
  check.attrs<Number>(attrs);
  check_dtypes(check, in, Takes::floats);
  return {in[0]};
}

// ---- factors ----

FactorRule factors(const Attrs&, Types operands, Types results) {
  return pointwise_rule(operands, results);
}

// Partial sums pass: through all operands together (add), or through one while the other is whole
// (mul).
FactorRule linear_factors(Types operands, Types results, FactorRule::LinearMode mode) {
  FactorRule rule = pointwise_rule(operands, results);
  for (std::size_t i = 0; i < operands.size(); ++i) rule.linear.push_back(static_cast<int>(i));
  rule.mode = mode;
  return rule;
}
FactorRule sum_factors(const Attrs&, Types operands, Types results) {
  return linear_factors(operands, results, FactorRule::LinearMode::all);
}
FactorRule product_factors(const Attrs&, Types operands, Types results) {
  return linear_factors(operands, results, FactorRule::LinearMode::each);
}
FactorRule convert_factors(const Attrs&, Types operands, Types results) {
  const bool linear = is_float(operands[0].dtype) && is_float(results[0].dtype);
  return linear ? linear_factors(operands, results, FactorRule::LinearMode::each)
                : pointwise_rule(operands, results);
}

// ---- meaning ----

// The value as an element of that type; a float that no integer of the type equals becomes
// something unspecified.
double stored(DType dtype, double x) {
  constexpr double kWords = 4294967296.0;
  if (is_float(dtype)) return x;
  if (dtype == DType::pred) return x != 0.0 ? 1.0 : 0.0;
  if (!std::isfinite(x)) return 0.0;
  const double wrapped = std::trunc(x) - kWords * std::floor(std::trunc(x) / kWords);
  return dtype == DType::i32 && wrapped >= kWords / 2 ? wrapped - kWords : wrapped;
}

using A = const Attrs&;
using X = const double*;

template <auto Scalar>
std::vector<Array> reference(const Attrs& attrs, std::span<const Array> operands, Types results) {
  Array y(results[0].shape);
  std::vector<double> x(operands.size());
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    for (std::size_t k = 0; k < x.size(); ++k)
      x[k] = operands[k].data[operands[k].shape.empty() ? 0 : i];
    y.data[i] = stored(results[0].dtype, Scalar(attrs, x.data()));
  }
  return {std::move(y)};
}

// ---- gradients ----

// What a gradient in the table sees: g the cotangent, y the result, x the operands, floats all in
// the dtype of g.
struct Grad {
  const Attrs& attrs;
  Value g, y;
  std::vector<Value> x;
};
using Grads = std::vector<Value>;

Value in_dtype_of(Value g, Value x) {
  return is_float(x.dtype()) && x.dtype() != g.dtype() ? convert(x, g.dtype()) : x;
}

// What an operand of rank 0 gets is summed over all elements that it stood for.
Value gradient_of(Value operand, Value each) {
  if (!each.valid() || !is_float(operand.dtype())) return {};
  const Value whole = fit(operand, each);
  return operand.type().rank() == whole.type().rank()
             ? whole
             : reduce_sum(whole, counting(whole.type().rank()));
}

template <auto Rule>
std::vector<Value> vjp(const VjpArgs& args) {
  Grad grad{args.attrs, args.cotangents[0], in_dtype_of(args.cotangents[0], args.results[0]), {}};
  for (Value x : args.operands) grad.x.push_back(in_dtype_of(grad.g, x));
  std::vector<Value> gradients = Rule(grad);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = gradient_of(args.operands[i], gradients[i]);
  return gradients;
}

// Between float types; integers have no cotangent.
std::vector<Value> vjp_convert(const VjpArgs& args) {
  return {is_float(args.operands[0].dtype()) ? fit(args.operands[0], args.cotangents[0]) : Value{}};
}

// To one side where `chosen`, to the other elsewhere. A rank-0 cotangent takes the shape of the
// choice.
Grads choose(Value chosen, Value g) {
  const Value zero = scalar(*g.program, g.dtype(), 0.0);
  return {select(chosen, g, zero), select(chosen, zero, g)};
}

Value power_slope(const Attrs& attrs, Value x) {
  const double exponent = std::get<Number>(attrs).value;
  if (exponent == 2.0) return x * 2.0;
  return pow(x, exponent - 1.0) * exponent;
}

// ---- rows ----

using FactorsCell = FactorRule (*)(const Attrs&, Types, Types);

// Without a rule: no vjp, not differentiable.
template <Signature S, auto Scalar, auto Rule = nullptr>
consteval OpDef row(FactorsCell factors_cell = factors) {
  OpDef result{
      .name = S.name, .infer = infer<S>, .factors = factors_cell, .reference = reference<Scalar>};
  if constexpr (!std::is_null_pointer_v<decltype(Rule)>) result.vjp = vjp<Rule>;
  result.scalar = Scalar;
  result.traits = kPointwise;
  return op_row(result);
}

// A row with cells of its own.
consteval OpDef with_infer(OpDef result, std::vector<Type> (*infer_cell)(const Attrs&, Types)) {
  result.infer = infer_cell;
  return result;
}
consteval OpDef with_vjp(OpDef result, std::vector<Value> (*vjp_cell)(const VjpArgs&)) {
  result.vjp = vjp_cell;
  return result;
}

// Differentiable, and the slope is zero.
Grads none(const Grad&) { return {Value{}}; }

double sign_of(double x) { return x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : x); }

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double silu_slope_of(double x) { return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))); }

constexpr double kTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;
double gelu_tanh_of(double x) {
  return 0.5 * x * (1.0 + std::tanh(kTanhScale * (x + kCubic * x * x * x)));
}
double gelu_tanh_slope_of(double x) {
  const double t = std::tanh(kTanhScale * (x + kCubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kTanhScale * (1.0 + 3.0 * kCubic * x * x);
}

double normal_cdf(double x) { return 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2)); }
double normal_density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
}

constexpr double kErfSlope = 1.1283791670955126;  // 2 / sqrt(pi)

}  // namespace

// ---- the table: signature, value, gradient ----
constinit const OpDef add_op =
    row<Signature{"add", 2, Takes::numbers}, [](A, X x) { return x[0] + x[1]; },
        [](const Grad& a) {
          return Grads{a.g, a.g};
        }>(sum_factors);
constinit const OpDef sub_op =
    row<Signature{"sub", 2, Takes::numbers}, [](A, X x) { return x[0] - x[1]; },
        [](const Grad& a) {
          return Grads{a.g, -a.g};
        }>(sum_factors);
constinit const OpDef mul_op =
    row<Signature{"mul", 2, Takes::numbers}, [](A, X x) { return x[0] * x[1]; },
        [](const Grad& a) {
          return Grads{a.g * a.x[1], a.g * a.x[0]};
        }>(product_factors);
constinit const OpDef div_op =
    row<Signature{"div", 2, Takes::numbers}, [](A, X x) { return x[0] / x[1]; },
        [](const Grad& a) {
          return Grads{a.g / a.x[1], -(a.g * a.y / a.x[1])};
        }>();
constinit const OpDef max_op =
    row<Signature{"max", 2, Takes::numbers}, [](A, X x) { return x[0] < x[1] ? x[1] : x[0]; },
        [](const Grad& a) { return choose(less_equal(a.x[1], a.x[0]), a.g); }>();
constinit const OpDef min_op =
    row<Signature{"min", 2, Takes::numbers}, [](A, X x) { return x[1] < x[0] ? x[1] : x[0]; },
        [](const Grad& a) { return choose(less_equal(a.x[0], a.x[1]), a.g); }>();
constinit const OpDef neg_op =
    row<Signature{"neg", 1, Takes::numbers}, [](A, X x) { return -x[0]; },
        [](const Grad& a) { return Grads{-a.g}; }>(sum_factors);
constinit const OpDef exp_op = row<Signature{"exp", 1}, [](A, X x) { return std::exp(x[0]); },
                                   [](const Grad& a) { return Grads{a.g * a.y}; }>();
constinit const OpDef log_op = row<Signature{"log", 1}, [](A, X x) { return std::log(x[0]); },
                                   [](const Grad& a) { return Grads{a.g / a.x[0]}; }>();
constinit const OpDef sqrt_op = row<Signature{"sqrt", 1}, [](A, X x) { return std::sqrt(x[0]); },
                                    [](const Grad& a) { return Grads{a.g * 0.5 / a.y}; }>();
constinit const OpDef rsqrt_op =
    row<Signature{"rsqrt", 1}, [](A, X x) { return 1.0 / std::sqrt(x[0]); },
        [](const Grad& a) { return Grads{a.g * -0.5 * (a.y * a.y * a.y)}; }>();
constinit const OpDef tanh_op =
    row<Signature{"tanh", 1}, [](A, X x) { return std::tanh(x[0]); },
        [](const Grad& a) { return Grads{a.g * (-(a.y * a.y) + 1.0)}; }>();
constinit const OpDef logistic_op =
    row<Signature{"logistic", 1}, [](A, X x) { return sigmoid(x[0]); },
        [](const Grad& a) { return Grads{a.g * a.y * (-a.y + 1.0)}; }>();
constinit const OpDef erf_op =
    row<Signature{"erf", 1}, [](A, X x) { return std::erf(x[0]); },
        [](const Grad& a) { return Grads{a.g * exp(-(a.x[0] * a.x[0])) * kErfSlope}; }>();
constinit const OpDef sin_op = row<Signature{"sin", 1}, [](A, X x) { return std::sin(x[0]); },
                                   [](const Grad& a) { return Grads{a.g * cos(a.x[0])}; }>();
constinit const OpDef cos_op = row<Signature{"cos", 1}, [](A, X x) { return std::cos(x[0]); },
                                   [](const Grad& a) { return Grads{-(a.g * sin(a.x[0]))}; }>();
constinit const OpDef abs_op =
    row<Signature{"abs", 1, Takes::numbers}, [](A, X x) { return std::fabs(x[0]); },
        [](const Grad& a) { return Grads{a.g * sign(a.x[0])}; }>();
constinit const OpDef sign_op =
    row<Signature{"sign", 1, Takes::numbers}, [](A, X x) { return sign_of(x[0]); }, none>();
constinit const OpDef floor_op =
    row<Signature{"floor", 1}, [](A, X x) { return std::floor(x[0]); }, none>();
constinit const OpDef pow_op = with_infer(
    row<Signature{"pow", 1}, [](A a, X x) { return std::pow(x[0], std::get<Number>(a).value); },
        [](const Grad& a) {
          return std::get<Number>(a.attrs).value == 0.0 ? Grads{Value{}}
                                                        : Grads{a.g * power_slope(a.attrs, a.x[0])};
        }>(),
    infer_pow);
constinit const OpDef silu_op =
    row<Signature{"silu", 1}, [](A, X x) { return x[0] * sigmoid(x[0]); },
        [](const Grad& a) { return Grads{a.g * silu_slope(a.x[0])}; }>();
constinit const OpDef silu_slope_op =
    row<Signature{"silu_slope", 1}, [](A, X x) { return silu_slope_of(x[0]); }>();
constinit const OpDef gelu_tanh_op =
    row<Signature{"gelu_tanh", 1}, [](A, X x) { return gelu_tanh_of(x[0]); },
        [](const Grad& a) { return Grads{a.g * gelu_tanh_slope(a.x[0])}; }>();
constinit const OpDef gelu_tanh_slope_op =
    row<Signature{"gelu_tanh_slope", 1}, [](A, X x) { return gelu_tanh_slope_of(x[0]); }>();
constinit const OpDef gelu_erf_op =
    row<Signature{"gelu_erf", 1}, [](A, X x) { return x[0] * normal_cdf(x[0]); },
        [](const Grad& a) { return Grads{a.g * gelu_erf_slope(a.x[0])}; }>();
constinit const OpDef gelu_erf_slope_op = row<Signature{"gelu_erf_slope", 1}, [](A, X x) {
  return normal_cdf(x[0]) + x[0] * normal_density(x[0]);
}>();
constinit const OpDef equal_op = row<Signature{"equal", 2, Takes::numbers, Gives::pred},
                                     [](A, X x) { return x[0] == x[1] ? 1.0 : 0.0; }>();
constinit const OpDef less_op = row<Signature{"less", 2, Takes::numbers, Gives::pred},
                                    [](A, X x) { return x[0] < x[1] ? 1.0 : 0.0; }>();
constinit const OpDef less_equal_op = row<Signature{"less_equal", 2, Takes::numbers, Gives::pred},
                                          [](A, X x) { return x[0] <= x[1] ? 1.0 : 0.0; }>();
constinit const OpDef logical_and_op =
    row<Signature{"logical_and", 2, Takes::preds}, [](A, X x) { return x[0] * x[1]; }>();
constinit const OpDef logical_or_op =
    row<Signature{"logical_or", 2, Takes::preds}, [](A, X x) { return std::fmax(x[0], x[1]); }>();
constinit const OpDef logical_not_op =
    row<Signature{"logical_not", 1, Takes::preds}, [](A, X x) { return 1.0 - x[0]; }>();
constinit const OpDef is_finite_op = row<Signature{"is_finite", 1, Takes::floats, Gives::pred},
                                         [](A, X x) { return std::isfinite(x[0]) ? 1.0 : 0.0; }>();
constinit const OpDef select_op =
    with_infer(row<Signature{"select", 3}, [](A, X x) { return x[0] != 0.0 ? x[1] : x[2]; },
                   [](const Grad& a) {
                     const Grads sides = choose(a.x[0], a.g);
                     return Grads{Value{}, sides[0], sides[1]};
                   }>(),
               infer_select);
constinit const OpDef convert_op = with_vjp(
    with_infer(
        row<Signature{"convert", 1},
            [](A a, X x) { return stored(std::get<ConvertTo>(a).dtype, x[0]); }>(convert_factors),
        infer_convert),
    vjp_convert);
constinit const OpDef stop_gradient_op =
    row<Signature{"stop_gradient", 1, Takes::any}, [](A, X x) { return x[0]; }, none>();

// ---- builders ----
#define DEW_UNARY(name) \
  Value name(Value x) { return x.program->add1(name##_op, {x}); }
#define DEW_BINARY(name) \
  Value name(Value a, Value b) { return a.program->add1(name##_op, {a, b}); }

// clang-format off
DEW_BINARY(add) DEW_BINARY(sub) DEW_BINARY(mul) DEW_BINARY(div) DEW_BINARY(max) DEW_BINARY(min)
DEW_UNARY(neg) DEW_UNARY(exp) DEW_UNARY(log) DEW_UNARY(sqrt) DEW_UNARY(rsqrt) DEW_UNARY(tanh)
DEW_UNARY(logistic) DEW_UNARY(erf) DEW_UNARY(sin) DEW_UNARY(cos)
DEW_UNARY(abs) DEW_UNARY(sign) DEW_UNARY(floor)
DEW_UNARY(silu) DEW_UNARY(silu_slope) DEW_UNARY(gelu_tanh) DEW_UNARY(gelu_tanh_slope)
DEW_UNARY(gelu_erf) DEW_UNARY(gelu_erf_slope)
DEW_BINARY(equal) DEW_BINARY(less) DEW_BINARY(less_equal)
DEW_BINARY(logical_and) DEW_BINARY(logical_or) DEW_UNARY(logical_not)
DEW_UNARY(is_finite) DEW_UNARY(stop_gradient)
// clang-format on

#undef DEW_UNARY
#undef DEW_BINARY

                                Value pow(Value x, double exponent) {
  return x.program->add1(pow_op, {x}, Number{exponent});
}
Value select(Value condition, Value a, Value b) {
  return a.program->add1(select_op, {condition, a, b});
}
Value convert(Value x, DType dtype) { return x.program->add1(convert_op, {x}, ConvertTo{dtype}); }

// ---- sugar ----
namespace {

Value raised(Value x, Value to) {
  const std::int64_t missing = to.type().rank() - x.type().rank();
  if (missing <= 0 || x.type().rank() == 0) return x;
  Dims dims = counting(x.type().rank());
  for (std::int64_t& d : dims) d += missing;
  return broadcast(x, to.shape(), dims);
}

Value number(Value like, double value) { return scalar(*like.program, like.dtype(), value); }

}  // namespace

Value operator+(Value a, Value b) { return add(raised(a, b), raised(b, a)); }
Value operator-(Value a, Value b) { return sub(raised(a, b), raised(b, a)); }
Value operator*(Value a, Value b) { return mul(raised(a, b), raised(b, a)); }
Value operator/(Value a, Value b) { return div(raised(a, b), raised(b, a)); }
Value operator-(Value x) { return neg(x); }
Value operator+(Value a, double b) { return add(a, number(a, b)); }
Value operator-(Value a, double b) { return sub(a, number(a, b)); }
Value operator*(Value a, double b) { return mul(a, number(a, b)); }
Value operator/(Value a, double b) { return div(a, number(a, b)); }

}  // namespace dew
