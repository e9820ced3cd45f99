// Optimizer updates: one pass over parameter, state and gradient, in place. Where `commit` is false
// every element keeps its bits: old values are selected, never multiplied by zero (0 * NaN is NaN).
#include <array>
#include <cmath>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

// `arrays` operands f32 of one shape, then scalars f32[], then commit pred[].
void check_update(const Checks& check, std::size_t arrays, std::size_t operands) {
  if (check[0].dtype != DType::f32) check.refuse("UPD-1", "parameters and state must be f32");
  for (std::size_t i = 1; i < arrays; ++i) check.is("UPD-2", i, check[0]);
  for (std::size_t i = arrays; i + 1 < operands; ++i) check.is("UPD-3", i, {DType::f32, {}});
  check.is("UPD-4", operands - 1, {DType::pred, {}});
}

std::vector<Type> infer_adamw(const Attrs& attrs, Types in) {
  const Checks check("adamw", "p m v g lr c1 c2 scale commit", in);
  check.attrs<UpdateAttrs>(attrs);
  check_update(check, 4, in.size());
  return {in[0], in[0], in[0]};
}

std::vector<Type> infer_momentum(const char* op, const Attrs& attrs, Types in) {
  const Checks check(op, "p m g lr scale commit", in);
  check.attrs<UpdateAttrs>(attrs);
  check_update(check, 3, in.size());
  return {in[0], in[0]};
}
std::vector<Type> infer_lion(const Attrs& attrs, Types in) {
  return infer_momentum("lion", attrs, in);
}
std::vector<Type> infer_sgd(const Attrs& attrs, Types in) {
  return infer_momentum("sgd", attrs, in);
}

std::vector<Type> infer_ema(const Attrs& attrs, Types in) {
  const Checks check("ema", "e p commit", in);
  check.attrs<Number>(attrs);
  check_update(check, 2, in.size());
  return {in[0]};
}

std::vector<Type> infer_squares(const Attrs& attrs, Types in) {
  const Checks check("sum_squares", "x", in);
  check.attrs<NoAttrs>(attrs);
  if (!is_float(in[0].dtype)) check.refuse("UPD-5", "x must be floats");
  return {{DType::f32, {}}};
}

FactorRule factors(const Attrs&, Types operands, Types results) {
  return pointwise_rule(operands, results);
}

FactorRule factors_squares(const Attrs&, Types operands, Types results) {
  return factor_rule(letters(operands[0].rank()) + " ->", operands, results);
}

// New values of one element from its old ones and the scalars.
using Element = void (*)(const UpdateAttrs&, std::span<double> state, double g,
                         std::span<const double> scalars);

// Operands: `states` arrays, g, scalars, commit. The gradient that the element function sees is
// already scaled.
std::vector<Array> update(const Attrs& attrs, std::span<const Array> in, std::size_t states,
                          Element element) {
  std::vector<Array> results(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(states));
  if (in.back().data[0] == 0.0) return results;
  std::vector<double> scalars, state(states);
  for (const Array& a : in.subspan(states + 1, in.size() - states - 2))
    scalars.push_back(a.data[0]);
  for (std::size_t i = 0; i < results[0].data.size(); ++i) {
    for (std::size_t k = 0; k < states; ++k) state[k] = in[k].data[i];
    element(std::get<UpdateAttrs>(attrs), state, scalars.back() * in[states].data[i], scalars);
    for (std::size_t k = 0; k < states; ++k) results[k].data[i] = state[k];
  }
  return results;
}

void adamw_element(const UpdateAttrs& a, std::span<double> s, double g,
                   std::span<const double> scalars) {
  const double lr = scalars[0], c1 = scalars[1], c2 = scalars[2];
  s[1] = a.b1 * s[1] + (1.0 - a.b1) * g;
  s[2] = a.b2 * s[2] + (1.0 - a.b2) * g * g;
  s[0] -= lr * (s[1] * c1 / (std::sqrt(s[2] * c2) + a.epsilon) + a.weight_decay * s[0]);
}

void lion_element(const UpdateAttrs& a, std::span<double> s, double g,
                  std::span<const double> scalars) {
  const double mixed = a.b1 * s[1] + (1.0 - a.b1) * g;
  const double direction = mixed > 0.0 ? 1.0 : (mixed < 0.0 ? -1.0 : mixed);
  s[1] = a.b2 * s[1] + (1.0 - a.b2) * g;
  s[0] -= scalars[0] * (direction + a.weight_decay * s[0]);
}

void sgd_element(const UpdateAttrs& a, std::span<double> s, double g,
                 std::span<const double> scalars) {
  s[1] = a.momentum * s[1] + g;
  s[0] -= scalars[0] * (s[1] + a.weight_decay * s[0]);
}

std::vector<Array> reference_adamw(const Attrs& a, std::span<const Array> in, Types) {
  return update(a, in, 3, adamw_element);
}
std::vector<Array> reference_lion(const Attrs& a, std::span<const Array> in, Types) {
  return update(a, in, 2, lion_element);
}
std::vector<Array> reference_sgd(const Attrs& a, std::span<const Array> in, Types) {
  return update(a, in, 2, sgd_element);
}

std::vector<Array> reference_ema(const Attrs& attrs, std::span<const Array> in, Types) {
  const double decay = std::get<Number>(attrs).value;
  Array e = in[0];
  if (in[2].data[0] == 0.0) return {std::move(e)};
  for (std::size_t i = 0; i < e.data.size(); ++i)
    e.data[i] = decay * e.data[i] + (1.0 - decay) * in[1].data[i];
  return {std::move(e)};
}

std::vector<Array> reference_squares(const Attrs&, std::span<const Array> x, Types) {
  double sum = 0.0;
  for (double element : x[0].data) sum += element * element;
  return {Array({}, sum)};
}

}  // namespace

constinit const OpDef sum_squares_op = op_row({.name = "sum_squares",
                                               .infer = infer_squares,
                                               .factors = factors_squares,
                                               .reference = reference_squares});
constinit const OpDef adamw_op = op_row({.name = "adamw",
                                         .infer = infer_adamw,
                                         .factors = factors,
                                         .reference = reference_adamw,
                                         .traits = kUpdate});
constinit const OpDef lion_op = op_row({.name = "lion",
                                        .infer = infer_lion,
                                        .factors = factors,
                                        .reference = reference_lion,
                                        .traits = kUpdate});
constinit const OpDef sgd_op = op_row({.name = "sgd",
                                       .infer = infer_sgd,
                                       .factors = factors,
                                       .reference = reference_sgd,
                                       .traits = kUpdate});
constinit const OpDef ema_op = op_row({.name = "ema",
                                       .infer = infer_ema,
                                       .factors = factors,
                                       .reference = reference_ema,
                                       .traits = kUpdate});

Value sum_squares(Value x) { return x.program->add1(sum_squares_op, {x}); }

AdamW adamw(Value p, Value m, Value v, Value g, Value lr, Value c1, Value c2, Value scale,
            Value commit, UpdateAttrs a) {
  const auto r = p.program->add(adamw_op, std::array{p, m, v, g, lr, c1, c2, scale, commit}, a);
  return {r[0], r[1], r[2]};
}
Momentum lion(Value p, Value m, Value g, Value lr, Value scale, Value commit, UpdateAttrs a) {
  const auto r = p.program->add(lion_op, std::array{p, m, g, lr, scale, commit}, a);
  return {r[0], r[1]};
}
Momentum sgd(Value p, Value m, Value g, Value lr, Value scale, Value commit, UpdateAttrs a) {
  const auto r = p.program->add(sgd_op, std::array{p, m, g, lr, scale, commit}, a);
  return {r[0], r[1]};
}
Value ema(Value e, Value p, Value commit, double decay) {
  return p.program->add1(ema_op, {e, p, commit}, Number{decay});
}

}  // namespace dew
