// Norms over the last dimension, with their gradients as ops of their own.
#include <array>
#include <cmath>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

Type statistic(const Type& x) { return {DType::f32, {x.shape.begin(), x.shape.end() - 1}}; }
Type vector_of(const Type& x) { return {DType::f32, {x.shape.back()}}; }

// x [.., e] and `vectors` operands f32[e] behind it.
void check_operands(const Checks& check, std::size_t vectors) {
  if (check[0].rank() < 1 || !is_float(check[0].dtype))
    check.refuse("NRM-1", "x must be floats [.., e]");
  for (std::size_t i = 1; i <= vectors; ++i) check.is("NRM-2", i, vector_of(check[0]));
}

void check_epsilon(const Checks& check, const Attrs& attrs) {
  const double epsilon = check.attrs<Number>(attrs).value;
  if (!(epsilon >= 0.0)) check.refuse("NRM-3", format("epsilon {} is negative", epsilon));
}

std::vector<Type> infer_rms(const Attrs& attrs, Types in) {
  const Checks check("rms_norm", "x scale", in);
  check_operands(check, 1);
  check_epsilon(check, attrs);
  return {in[0], statistic(in[0])};
}

std::vector<Type> infer_layer(const Attrs& attrs, Types in) {
  const Checks check("layer_norm", "x scale bias", in);
  check_operands(check, 2);
  check_epsilon(check, attrs);
  return {in[0], statistic(in[0]), statistic(in[0])};
}

std::vector<Type> infer_rms_grad(const Attrs& attrs, Types in) {
  const Checks check("rms_norm_grad", "x scale r dy", in);
  check.attrs<NoAttrs>(attrs);
  check_operands(check, 1);
  check.is("NRM-4", 2, statistic(in[0]));
  check.is("NRM-5", 3, in[0]);
  return {in[0], in[1]};
}

std::vector<Type> infer_layer_grad(const Attrs& attrs, Types in) {
  const Checks check("layer_norm_grad", "x scale mean r dy", in);
  check.attrs<NoAttrs>(attrs);
  check_operands(check, 1);
  check.is("NRM-4", 2, statistic(in[0]));
  check.is("NRM-4", 3, statistic(in[0]));
  check.is("NRM-5", 4, in[0]);
  return {in[0], in[1], in[1]};
}

// F: the leading dimensions. e stays whole, since statistics need all of it.
FactorRule rule(std::string text, Types operands, Types results) {
  const std::string leading = letters(operands[0].rank() - 1);
  for (std::size_t at = text.find('F'); at != std::string::npos; at = text.find('F'))
    text.replace(at, 1, leading);
  return factor_rule(text + " | norep e", operands, results);
}
FactorRule factors_rms(const Attrs&, Types in, Types out) {
  return rule("F e, e -> F e; F", in, out);
}
FactorRule factors_rms_grad(const Attrs&, Types in, Types out) {
  return rule("F e, e, F, F e -> F e; e", in, out);
}
FactorRule factors_layer(const Attrs&, Types in, Types out) {
  return rule("F e, e, e -> F e; F; F", in, out);
}
FactorRule factors_layer_grad(const Attrs&, Types in, Types out) {
  return rule("F e, e, F, F, F e -> F e; e; e", in, out);
}

// Calls visit(row, first) for each vector of the last dimension: its number and that of its first
// element.
template <class Visit>
void for_each_vector(const Array& x, Visit visit) {
  const std::size_t width = slot(x.shape.back());
  if (width == 0) return;  // statistics stay zero
  for (std::size_t row = 0; row < x.data.size() / width; ++row) visit(row, row * width);
}

std::vector<Array> reference_rms(const Attrs& attrs, std::span<const Array> in, Types results) {
  const Array &x = in[0], &scale = in[1];
  Array y(results[0].shape), r(results[1].shape);
  const std::size_t width = scale.data.size();
  for_each_vector(x, [&](std::size_t row, std::size_t first) {
    double squares = 0.0;
    for (std::size_t i = 0; i < width; ++i) squares += x.data[first + i] * x.data[first + i];
    r.data[row] =
        1.0 / std::sqrt(squares / static_cast<double>(width) + std::get<Number>(attrs).value);
    for (std::size_t i = 0; i < width; ++i)
      y.data[first + i] = x.data[first + i] * r.data[row] * scale.data[i];
  });
  return {std::move(y), std::move(r)};
}

std::vector<Array> reference_rms_grad(const Attrs&, std::span<const Array> in, Types results) {
  const Array &x = in[0], &scale = in[1], &r = in[2], &dy = in[3];
  Array dx(results[0].shape), dscale(results[1].shape);
  const std::size_t width = scale.data.size();
  for_each_vector(x, [&](std::size_t row, std::size_t first) {
    const double s = r.data[row];
    double sum = 0.0;
    for (std::size_t i = 0; i < width; ++i)
      sum += scale.data[i] * dy.data[first + i] * x.data[first + i];
    const double along = s * s * s * sum / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) {
      dx.data[first + i] = s * scale.data[i] * dy.data[first + i] - x.data[first + i] * along;
      dscale.data[i] += dy.data[first + i] * x.data[first + i] * s;
    }
  });
  return {std::move(dx), std::move(dscale)};
}

std::vector<Array> reference_layer(const Attrs& attrs, std::span<const Array> in, Types results) {
  const Array &x = in[0], &scale = in[1], &bias = in[2];
  Array y(results[0].shape), mean(results[1].shape), r(results[2].shape);
  const std::size_t width = scale.data.size();
  for_each_vector(x, [&](std::size_t row, std::size_t first) {
    double sum = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < width; ++i) sum += x.data[first + i];
    const double m = sum / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i)
      squares += (x.data[first + i] - m) * (x.data[first + i] - m);
    mean.data[row] = m;
    r.data[row] =
        1.0 / std::sqrt(squares / static_cast<double>(width) + std::get<Number>(attrs).value);
    for (std::size_t i = 0; i < width; ++i) {
      y.data[first + i] = (x.data[first + i] - m) * r.data[row] * scale.data[i] + bias.data[i];
    }
  });
  return {std::move(y), std::move(mean), std::move(r)};
}

// With h = scale dy and n = (x - mean) r: dx = r (h - mean of h - n * mean of h n).
std::vector<Array> reference_layer_grad(const Attrs&, std::span<const Array> in, Types results) {
  const Array &x = in[0], &scale = in[1], &mean = in[2], &r = in[3], &dy = in[4];
  Array dx(results[0].shape), dscale(results[1].shape), dbias(results[2].shape);
  const std::size_t width = scale.data.size();
  for_each_vector(x, [&](std::size_t row, std::size_t first) {
    const auto normal = [&](std::size_t i) {
      return (x.data[first + i] - mean.data[row]) * r.data[row];
    };
    double h = 0.0, hn = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      h += scale.data[i] * dy.data[first + i] / static_cast<double>(width);
      hn += scale.data[i] * dy.data[first + i] * normal(i) / static_cast<double>(width);
    }
    for (std::size_t i = 0; i < width; ++i) {
      dx.data[first + i] = r.data[row] * (scale.data[i] * dy.data[first + i] - h - normal(i) * hn);
      dscale.data[i] += dy.data[first + i] * normal(i);
      dbias.data[i] += dy.data[first + i];
    }
  });
  return {std::move(dx), std::move(dscale), std::move(dbias)};
}

std::vector<Value> vjp_rms(const VjpArgs& args) {
  DEW_CHECK(!args.cotangents[1].valid(), "rms_norm: the statistic r has no gradient");
  const Value x = args.operands[0], scale = args.operands[1], g = plain_cotangent(args, 0);
  const auto grads =
      x.program->add(rms_norm_grad_op, std::array{x, scale, args.results[1], g}, NoAttrs{});
  return {fit(x, grads[0]), grads[1]};
}

std::vector<Value> vjp_layer(const VjpArgs& args) {
  DEW_CHECK(!args.cotangents[1].valid() && !args.cotangents[2].valid(),
            "layer_norm: its statistics have no gradient");
  const Value x = args.operands[0], scale = args.operands[1], mean = args.results[1],
              r = args.results[2];
  const Value g = plain_cotangent(args, 0);
  const auto grads =
      x.program->add(layer_norm_grad_op, std::array{x, scale, mean, r, g}, NoAttrs{});
  return {fit(x, grads[0]), grads[1], grads[2]};
}

}  // namespace

constinit const OpDef rms_norm_op = op_row({.name = "rms_norm",
                                            .infer = infer_rms,
                                            .factors = factors_rms,
                                            .reference = reference_rms,
                                            .vjp = vjp_rms,
                                            .traits = kNorm});
constinit const OpDef rms_norm_grad_op = op_row({.name = "rms_norm_grad",
                                                 .infer = infer_rms_grad,
                                                 .factors = factors_rms_grad,
                                                 .reference = reference_rms_grad});
constinit const OpDef layer_norm_op = op_row({.name = "layer_norm",
                                              .infer = infer_layer,
                                              .factors = factors_layer,
                                              .reference = reference_layer,
                                              .vjp = vjp_layer,
                                              .traits = kNorm});
constinit const OpDef layer_norm_grad_op = op_row({.name = "layer_norm_grad",
                                                   .infer = infer_layer_grad,
                                                   .factors = factors_layer_grad,
                                                   .reference = reference_layer_grad});

RmsNorm rms_norm(Value x, Value scale, double epsilon) {
  const auto results = x.program->add(rms_norm_op, std::array{x, scale}, Number{epsilon});
  return {results[0], results[1]};
}

LayerNorm layer_norm(Value x, Value scale, Value bias, double epsilon) {
  const auto results = x.program->add(layer_norm_op, std::array{x, scale, bias}, Number{epsilon});
  return {results[0], results[1], results[2]};
}

}  // namespace dew
