#include "tests/conformance/op_samples.h"

#include <algorithm>
#include <limits>

#include "tests/conformance/template_op.h"

namespace dew {
namespace {

using Maker = SampleMaker;

// ---- pointwise; limits are tenths ----
template <Value (*Op)(Value), int Low = -20, int High = 20>
void unary(Maker& m) {
  m.result(Op(m.values(m.shape(), Low / 10.0, High / 10.0)));
}

template <Value (*Op)(Value)>
void kinked(Maker& m) {
  m.result(Op(m.distinct(m.shape())));
}

// Two operands of one shape, sometimes one of rank 0.
template <class MakeInput>
std::pair<Value, Value> pair(Maker& m, MakeInput make) {
  const Dims shape = m.shape();
  const Dims first = m.chance(0.15) ? Dims{} : shape;
  const Dims second = m.chance(0.15) ? Dims{} : shape;
  const Value a = make(first);
  return {a, make(second)};
}

template <Value (*Op)(Value, Value)>
void binary(Maker& m) {
  const bool whole = m.chance(0.2);
  const auto [a, b] =
      pair(m, [&](const Dims& s) { return whole ? m.integers(s, -9, 9) : m.values(s); });
  m.result(Op(a, b));
}

void sample_div(Maker& m) {
  const bool whole = m.chance(0.2);
  const auto [a, b] =
      pair(m, [&](const Dims& s) { return whole ? m.integers(s, 1, 40) : m.values(s, 0.5, 2); });
  m.result(div(a, b));
}

// Floats that differ by 0.02 at least, or small integers, some of them alike.
template <Value (*Op)(Value, Value)>
void mixed_choice(Maker& m) {
  const bool whole = m.chance(0.3);
  double offset = 0.0;
  const auto [a, b] = pair(m, [&](const Dims& s) {
    offset += 0.02;
    return whole ? m.integers(s, -2, 2) : m.distinct(s, offset);
  });
  m.result(Op(a, b));
}

template <Value (*Op)(Value, Value)>
void logic(Maker& m) {
  const auto [a, b] = pair(m, [&](const Dims& s) { return m.preds(s); });
  m.result(Op(a, b));
}

void sample_not(Maker& m) { m.result(logical_not(m.preds(m.shape()))); }

void sample_pow(Maker& m) {
  const double exponents[] = {-1.5, 0, 0.5, 1, 2, 3};
  m.result(pow(m.values(m.shape(), 0.5, 3), exponents[m.integer(0, 5)]));
}

void sample_is_finite(Maker& m) {
  const Type type{m.float_type(), m.shape()};
  const double kinds[] = {0, -1.5, std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> data(static_cast<std::size_t>(type.elements()));
  for (double& x : data) x = kinds[m.integer(0, 3)];
  m.result(is_finite(m.input(type, data, false)));
}

void sample_select(Maker& m) {
  const Dims shape = m.shape();
  const Value condition = m.preds(m.chance(0.2) ? Dims{} : shape);
  const Value a = m.values(shape);
  m.result(select(condition, a, m.values(m.chance(0.2) ? Dims{} : shape)));
}

void sample_convert(Maker& m) {
  const DType kinds[] = {DType::f32, DType::bf16, DType::i32, DType::pred};
  const DType to = kinds[m.integer(0, 3)];
  const Dims shape = m.shape();
  switch (m.integer(0, 2)) {
    case 0:
      return m.result(convert(m.integers(shape, -100, 100), to));
    case 1:
      return m.result(convert(m.preds(shape), to));
    default:
      return m.result(convert(m.distinct(shape), to));
  }
}

void sample_stop(Maker& m) { m.result(stop_gradient(m.values(m.shape())), false); }

// ---- structure ----
void sample_constant(Maker& m) {
  m.result(constant(m.program(), {m.float_type(), m.shape()}, 1.5));
}

void sample_iota(Maker& m) {
  const Dims shape = m.shape(static_cast<int>(m.integer(1, 3)));
  const DType dtype = m.chance(0.5) ? DType::i32 : m.float_type();
  m.result(
      iota(m.program(), {dtype, shape}, m.integer(0, static_cast<std::int64_t>(shape.size()) - 1)));
}

void sample_broadcast(Maker& m) {
  const Dims shape = m.shape(static_cast<int>(m.integer(0, 4)));
  Dims from, dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!m.chance(0.5)) continue;
    from.push_back(shape[d]);
    dims.push_back(static_cast<std::int64_t>(d));
  }
  m.result(broadcast(m.values(from), shape, dims));
}

// Merging, splitting, both at once, and shapes without common factors.
void sample_reshape(Maker& m) {
  const std::int64_t a = m.size(), b = m.size(), c = m.size();
  const std::pair<Dims, Dims> cases[] = {
      {{a, b, c}, {a, b * c}},    {{a, b * c}, {a, b, c}}, {{a, b, 2 * c}, {a * b, 2, c}},
      {{a * 2, b}, {2, a, 1, b}}, {{4, 6, a}, {8, 3, a}},  {{2, 3, a}, {3, 2, a}},
      {{a, b, c}, {a * b * c}},   {{1, a, 1}, {a}},
  };
  const auto& [from, to] = cases[m.integer(0, 7)];
  m.result(reshape(m.values(from), to));
}

void sample_transpose(Maker& m) {
  Dims order;
  const std::int64_t rank = m.integer(0, 4);
  for (std::int64_t d = 0; d < rank; ++d) order.insert(order.begin() + m.integer(0, d), d);
  m.result(transpose(m.values(m.shape(static_cast<int>(rank))), order));
}

void sample_slice(Maker& m) {
  const Dims shape = m.shape();
  Dims start, limit;
  for (std::int64_t size : shape) {
    const bool whole = m.chance(0.5);
    start.push_back(whole ? 0 : m.integer(0, size));
    limit.push_back(whole ? size : m.integer(start.back(), size));
  }
  m.result(slice(m.values(shape), start, limit));
}

void sample_pad(Maker& m) {
  const Dims shape = m.shape();
  Dims low, high;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool whole = m.chance(0.5);
    low.push_back(whole ? 0 : m.integer(0, 3));
    high.push_back(whole ? 0 : m.integer(0, 3));
  }
  m.result(pad(m.values(shape), low, high));
}

void sample_concatenate(Maker& m) {
  Dims shape = m.shape(static_cast<int>(m.integer(1, 3)));
  const std::int64_t dim = m.integer(0, static_cast<std::int64_t>(shape.size()) - 1);
  std::vector<Value> parts;
  for (std::int64_t i = m.integer(1, 3); i > 0; --i) {
    shape[static_cast<std::size_t>(dim)] = m.size();
    parts.push_back(m.values(shape));
  }
  m.result(concatenate(parts, dim));
}

Dims some_dims(Maker& m, const Dims& shape) {
  Dims dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (m.chance(0.5)) dims.push_back(static_cast<std::int64_t>(d));
  }
  return dims;
}

void sample_reduce_sum(Maker& m) {
  const Dims shape = m.shape();
  m.result(
      reduce_sum(m.chance(0.2) ? m.integers(shape, -9, 9) : m.values(shape), some_dims(m, shape)));
}

void sample_reduce_max(Maker& m) {
  const Dims shape = m.shape();
  const Value y =
      reduce_max(m.chance(0.2) ? m.integers(shape, -9, 9) : m.distinct(shape), some_dims(m, shape));
  m.result(y, element_count(shape) > 0);  // else -inf, which no difference measures
}

void sample_row_dot(Maker& m) {
  const Value a = m.values(m.shape(static_cast<int>(m.integer(1, 4))));
  m.result(row_dot(a, m.values(a.shape())));
}

// Dimensions of all kinds in random places. `order` says for each operand where its dimensions go.
void sample_dot(Maker& m) {
  const std::int64_t kinds[] = {m.integer(0, 2), m.integer(0, 2), m.integer(0, 2), m.integer(0, 2)};
  const std::int64_t batch = kinds[0] / 2, contract = kinds[1], lhs_free = kinds[2],
                     rhs_free = kinds[3];
  DotDims dims;
  Dims lhs, rhs;
  // Gives each dimension of `count` a random place in both shapes; -1 for one that it lacks.
  const auto put = [&m](Dims& shape, Dims& places, std::vector<Dims*> others, std::int64_t size) {
    const std::int64_t at = m.integer(0, static_cast<std::int64_t>(shape.size()));
    for (Dims* list : others) {
      for (std::int64_t& d : *list) d += d >= at ? 1 : 0;
    }
    shape.insert(shape.begin() + at, size);
    places.push_back(at);
  };
  Dims ignored;
  const auto put_lhs = [&](Dims& places, std::int64_t size) {
    put(lhs, places, {&dims.lhs_batch, &dims.lhs_contract}, size);
  };
  const auto put_rhs = [&](Dims& places, std::int64_t size) {
    put(rhs, places, {&dims.rhs_batch, &dims.rhs_contract}, size);
  };
  for (std::int64_t i = 0; i < batch + contract; ++i) {
    const std::int64_t size = m.size();
    put_lhs(i < batch ? dims.lhs_batch : dims.lhs_contract, size);
    put_rhs(i < batch ? dims.rhs_batch : dims.rhs_contract, size);
  }
  for (std::int64_t i = 0; i < lhs_free; ++i) put_lhs(ignored, m.size());
  for (std::int64_t i = 0; i < rhs_free; ++i) put_rhs(ignored, m.size());
  dims.out = m.chance(0.5) ? DType::f32 : m.float_type();
  const Value a = m.values(lhs);
  m.result(dot(a, m.values(rhs), dims));
}

void sample_gather(Maker& m) {
  const Value table = m.values({m.size(), m.size()});
  m.result(gather_rows(table, m.integers(m.shape(), -1, table.dim(0))));
}

void sample_scatter(Maker& m) {
  const Value base = m.values_f32({m.size(), m.size()});
  const Value ids = m.integers(m.shape(2), -1, base.dim(0));
  m.result(scatter_add_rows(base, ids, m.values({ids.dim(0), ids.dim(1), base.dim(1)})));
}

void sample_write_columns(Maker& m) {
  const Dims shape = m.shape(static_cast<int>(m.integer(2, 4)));
  const bool whole = m.chance(0.2);
  const auto make = [&](const Dims& s) { return whole ? m.integers(s, -9, 9) : m.values(s); };
  const Value base = make(shape);
  const Value columns = m.integers({shape[0], m.size()}, -1, shape[1]);
  Dims updates = shape;
  updates[1] = columns.dim(1);
  m.result(write_columns(base, columns, make(updates)), false);
}

// ---- random ----
Counters counters(Maker& m, std::int64_t rows, std::int64_t columns) {
  Counters c;
  c.key = m.integers({2}, 0, 0xffffffff, DType::u32);
  c.layer = m.integers({}, 0, 100);
  c.step = m.integers({}, 0, 100000);
  c.row_ids = m.integers({rows}, -1, 1000);
  c.columns = m.integers({columns}, 0, 1000);
  return c;
}

void sample_bits(Maker& m) {
  const Counters c = counters(m, m.size(), m.size());
  m.result(random_bits(c, m.integer(0, 9), m.shape(static_cast<int>(m.integer(0, 2)))));
}

void sample_dropout(Maker& m) {
  const Value x = m.values(m.shape(static_cast<int>(m.integer(2, 4))));
  const Counters c = counters(m, x.dim(0), x.dim(1));
  m.result(dropout(x, c, m.integer(0, 9), m.real(0, 0.9)));
}

// ---- norms ----
constexpr double kEpsilon = 0.01;

void sample_rms(Maker& m) {
  const Value x = m.values(m.shape(static_cast<int>(m.integer(1, 4))));
  const auto [y, r] = rms_norm(x, m.values_f32({x.dim(-1)}), kEpsilon);
  m.result(y);
  m.result(r, false);
}

void sample_layer(Maker& m) {
  const Value x = m.values(m.shape(static_cast<int>(m.integer(1, 4))));
  const Value scale = m.values_f32({x.dim(-1)});
  const auto [y, mean, r] = layer_norm(x, scale, m.values_f32({x.dim(-1)}), kEpsilon);
  m.result(y);
  m.result(mean, false);
  m.result(r, false);
}

Value statistic(Maker& m, Value x, double low, double high) {
  return m.constants_f32({x.shape().begin(), x.shape().end() - 1}, low, high);
}

void all_results(Maker& m, const OpDef& op, const std::vector<Value>& operands,
                 const Attrs& attrs) {
  for (Value result : m.program().add(op, operands, attrs)) m.result(result, false);
}

void sample_rms_grad(Maker& m) {
  const Value x = m.values(m.shape(static_cast<int>(m.integer(1, 4))));
  const Value scale = m.values_f32({x.dim(-1)});
  const Value r = statistic(m, x, 0.5, 2);
  all_results(m, rms_norm_grad_op, {x, scale, r, m.values(x.shape())}, NoAttrs{});
}

void sample_layer_grad(Maker& m) {
  const Value x = m.values(m.shape(static_cast<int>(m.integer(1, 4))));
  const Value scale = m.values_f32({x.dim(-1)});
  const Value mean = statistic(m, x, -1, 1);
  const Value r = statistic(m, x, 0.5, 2);
  all_results(m, layer_norm_grad_op, {x, scale, mean, r, m.values(x.shape())}, NoAttrs{});
}

// ---- attention ----
void sample_rope(Maker& m) {
  const Value x = m.values({m.size(), m.size(), m.size(), 2 * m.size()});
  const Value positions = m.integers({x.dim(0), x.dim(1)}, 0, 300);
  RopeDims dims{.scaling = "none", .factor = 4, .original_max_seq_len = 64};
  dims.inverse = m.chance(0.3);
  const char* scalings[] = {"none", "linear", "llama3"};
  dims.scaling = scalings[m.integer(0, 2)];
  m.result(rope(x, positions, m.input({DType::f32, {}}, {m.chance(0.5) ? 10000.0 : 500.0}, false),
                dims));
}

struct Placed {
  std::vector<double> positions, segments;
};

// Documents packed one after another, then pads with a segment each, as the batch dispatch makes
// them.
Placed packed(Maker& m, std::int64_t rows, std::int64_t columns) {
  Placed placed;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t real = m.integer(0, columns);
    double position = 0, segment = 0;
    for (std::int64_t c = 0; c < columns; ++c, ++position) {
      if (c < real && m.chance(0.2)) {
        position = 0;
        ++segment;
      }
      placed.positions.push_back(c < real ? position : 0);
      placed.segments.push_back(c < real ? segment : static_cast<double>(-1 - c));
    }
  }
  return placed;
}

// Self-attention over packed rows, or queries and keys that have nothing to do with each other.
AttentionInputs attention_inputs(Maker& m) {
  const std::int64_t b = m.size(), t = m.size(), kv = m.integer(1, 3), group = m.integer(1, 4),
                     d = m.integer(1, 6);
  const bool self = m.chance(0.7);
  const std::int64_t s = self ? t : m.size();
  AttentionInputs in;
  in.q = m.values({b, t, kv * group, d});
  in.k = m.values({b, s, kv, d});
  in.v = m.values({b, s, kv, d});
  const Placed queries = packed(m, b, t);
  const Placed keys = self ? queries : packed(m, b, s);
  in.q_positions = m.input({DType::i32, {b, t}}, queries.positions, false);
  in.k_positions = m.input({DType::i32, {b, s}}, keys.positions, false);
  in.q_segments = m.input({DType::i32, {b, t}}, queries.segments, false);
  in.k_segments = m.input({DType::i32, {b, s}}, keys.segments, false);
  in.window = m.integers({}, -1, 4);
  return in;
}

AttentionAttrs attention_attrs(Maker& m) {
  return {.scale = 0.5, .softcap = m.chance(0.3) ? 1.5 : 0.0, .causal = m.chance(0.8)};
}

void sample_attention(Maker& m) {
  const AttentionInputs in = attention_inputs(m);
  const auto [o, lse] = attention(in, attention_attrs(m));
  m.result(o);
  m.result(lse, false);
}

// lse above every sum of exponentials, so that weights stay below one.
void sample_attention_grad(Maker& m) {
  const AttentionInputs in = attention_inputs(m);
  const Dims heads{in.q.dim(0), in.q.dim(1), in.q.dim(2)};
  const Value lse = m.constants_f32(heads, 10, 14);
  const Value delta = m.constants_f32(heads, -1, 1);
  const auto [dq, dk, dv] =
      attention_grad(in, lse, delta, m.values(in.q.shape()), attention_attrs(m));
  for (Value result : {dq, dk, dv}) m.result(result, false);
}

// Kernels refuse an empty vocabulary and states of no width.
void sample_head_loss(Maker& m) {
  const std::int64_t rows = m.size(), columns = m.size(),
                     width = std::max<std::int64_t>(m.size(), 1);
  const Value h = m.values({rows, columns, width});
  const Value table = m.values({std::max<std::int64_t>(m.size(), 1), width});
  std::vector<double> labels, weights;
  for (std::int64_t i = 0; i < h.dim(0) * h.dim(1); ++i) {
    const double kinds[] = {0, 0.5, 1, 1};
    weights.push_back(kinds[m.integer(0, 3)]);
    labels.push_back(
        static_cast<double>(m.integer(weights.back() == 0 ? -1 : 0, table.dim(0) - 1)));
  }
  const Value label = m.input({DType::i32, {h.dim(0), h.dim(1)}}, labels, false);
  const Value weight = m.input({DType::f32, {h.dim(0), h.dim(1)}}, weights, false);
  const HeadAttrs attrs{.z_loss = m.chance(0.5) ? 0.1 : 0.0,
                        .softcap = m.chance(0.3) ? 2.0 : 0.0,
                        .gradients = m.chance(0.8)};
  const HeadLoss loss = head_loss(h, table, label, weight, attrs);
  m.result(loss.loss, attrs.gradients);
  for (Value result : {loss.nll, loss.correct, loss.lse, loss.d_h, loss.d_table}) {
    if (result.valid()) m.result(result, false);
  }
}

// ---- optimizers ----
void sample_squares(Maker& m) { m.result(sum_squares(m.values(m.shape())), false); }

UpdateAttrs update_attrs(Maker& m) {
  return {.b1 = 0.9,
          .b2 = 0.95,
          .epsilon = 1e-6,
          .weight_decay = m.chance(0.5) ? 0.1 : 0.0,
          .momentum = 0.8};
}

void sample_adamw(Maker& m) {
  const Dims shape = m.shape();
  std::vector<Value> in{m.values_f32(shape), m.values_f32(shape), m.values_f32(shape, 0, 2),
                        m.values_f32(shape)};
  for (int i = 0; i < 4; ++i) in.push_back(m.constants_f32({}, 0.1, 2));  // lr, c1, c2, scale
  in.push_back(m.preds({}));
  all_results(m, adamw_op, in, update_attrs(m));
}

void sample_momentum(Maker& m, const OpDef& op) {
  const Dims shape = m.shape();
  std::vector<Value> in{m.values_f32(shape), m.values_f32(shape), m.values_f32(shape)};
  for (int i = 0; i < 2; ++i) in.push_back(m.constants_f32({}, 0.1, 2));  // lr, scale
  in.push_back(m.preds({}));
  all_results(m, op, in, update_attrs(m));
}
void sample_lion(Maker& m) { sample_momentum(m, lion_op); }
void sample_sgd(Maker& m) { sample_momentum(m, sgd_op); }

void sample_ema(Maker& m) {
  const Dims shape = m.shape();
  const Value e = m.values_f32(shape);
  const Value p = m.values_f32(shape);
  m.result(ema(e, p, m.preds({}), 0.9), false);
}

// ---- scan: two carries, a slice, a constant; one stacked result ----
void sample_scan(Maker& m) {
  const Dims shape{m.integer(1, 4), m.integer(1, 4)};
  const Type type{m.float_type(), shape}, square{m.float_type(), {shape[1], shape[1]}};
  const std::int64_t length = m.integer(0, 4);
  auto body = std::make_shared<Program>("body");
  const Value a = body->input("a", type), b = body->input("b", type);
  const bool weight = m.chance(0.5);
  const Value w = body->input("w", square, true), c = body->input("c", type, weight);
  const Value next = tanh(linear(a, w) + b * 0.5);
  body->output("a", next);
  body->output("b", b + a * c);
  body->output("y", next * c);
  m.weights(0);
  std::vector<Value> carries{m.values(shape), m.values(shape)};
  m.weights(1);
  const Value slices = m.values({length, shape[1], shape[1]}, -0.6, 0.6);
  m.weights(weight ? 1 : 0);
  const Value shared = m.values(shape);
  const Scan s = scan(body, carries, std::array{slices}, std::array{shared}, length, m.chance(0.5));
  for (Value v : s.carries) m.result(v);
  for (Value v : s.stacked) m.result(v);
}

constexpr OpSample kSamples[] = {
    {&add_op, binary<add>},
    {&sub_op, binary<sub>},
    {&mul_op, binary<mul>},
    {&div_op, sample_div},
    {&max_op, mixed_choice<max>},
    {&min_op, mixed_choice<min>},
    {&neg_op, unary<neg>},
    {&exp_op, unary<exp>},
    {&log_op, unary<log, 5, 30>},
    {&sqrt_op, unary<sqrt, 5, 30>},
    {&rsqrt_op, unary<rsqrt, 5, 30>},
    {&tanh_op, unary<tanh>},
    {&logistic_op, unary<logistic>},
    {&erf_op, unary<erf>},
    {&sin_op, unary<sin, -60, 60>},
    {&cos_op, unary<cos, -60, 60>},
    {&abs_op, kinked<abs>},
    {&sign_op, kinked<sign>},
    {&floor_op, kinked<floor>},
    {&pow_op, sample_pow},
    {&silu_op, unary<silu, -60, 60>},
    {&silu_slope_op, unary<silu_slope, -60, 60>},
    {&gelu_tanh_op, unary<gelu_tanh, -40, 40>},
    {&gelu_tanh_slope_op, unary<gelu_tanh_slope, -40, 40>},
    {&gelu_erf_op, unary<gelu_erf, -40, 40>},
    {&gelu_erf_slope_op, unary<gelu_erf_slope, -40, 40>},
    {&equal_op, mixed_choice<equal>},
    {&less_op, mixed_choice<less>},
    {&less_equal_op, mixed_choice<less_equal>},
    {&logical_and_op, logic<logical_and>},
    {&logical_or_op, logic<logical_or>},
    {&logical_not_op, sample_not},
    {&is_finite_op, sample_is_finite},
    {&select_op, sample_select},
    {&convert_op, sample_convert},
    {&stop_gradient_op, sample_stop},
    {&constant_op, sample_constant},
    {&iota_op, sample_iota},
    {&broadcast_op, sample_broadcast},
    {&reshape_op, sample_reshape},
    {&transpose_op, sample_transpose},
    {&slice_op, sample_slice},
    {&pad_op, sample_pad},
    {&concatenate_op, sample_concatenate},
    {&reduce_sum_op, sample_reduce_sum},
    {&reduce_max_op, sample_reduce_max},
    {&row_dot_op, sample_row_dot},
    {&dot_op, sample_dot},
    {&gather_rows_op, sample_gather},
    {&scatter_add_rows_op, sample_scatter},
    {&write_columns_op, sample_write_columns},
    {&random_bits_op, sample_bits},
    {&dropout_op, sample_dropout},
    {&rms_norm_op, sample_rms},
    {&rms_norm_grad_op, sample_rms_grad},
    {&layer_norm_op, sample_layer},
    {&layer_norm_grad_op, sample_layer_grad},
    {&rope_op, sample_rope},
    {&attention_op, sample_attention},
    {&attention_grad_op, sample_attention_grad},
    {&head_loss_op, sample_head_loss},
    {&sum_squares_op, sample_squares},
    {&adamw_op, sample_adamw},
    {&lion_op, sample_lion},
    {&sgd_op, sample_sgd},
    {&ema_op, sample_ema},
    {&scan_op, sample_scan},
};

}  // namespace

std::span<const OpSample> op_samples() { return kSamples; }

std::vector<OpSample> samples_and_template() {
  std::vector<OpSample> rows(std::begin(kSamples), std::end(kSamples));
  rows.push_back({&running_sum_op, sample_running_sum});
  return rows;
}

std::vector<const OpDef*> ops_and_template() {
  std::vector<const OpDef*> ops(all_ops().begin(), all_ops().end());
  ops.push_back(&running_sum_op);
  return ops;
}

}  // namespace dew
