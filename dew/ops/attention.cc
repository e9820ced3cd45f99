// Attention with positions, segments and a window as operands, and its gradient.
#include <cmath>
#include <limits>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

constexpr std::string_view kNames =
    "q k v q_positions k_positions q_segments k_segments window lse delta do";
constexpr std::size_t kForward = 8;  // operands of the forward op; the gradient has three more

std::string_view forward_names() { return kNames.substr(0, kNames.find(" lse")); }

void check_operands(const Checks& check, const AttentionAttrs& attrs) {
  const Type &q = check[0], &k = check[1];
  if (q.rank() != 4 || k.rank() != 4 || !is_float(q.dtype))
    check.refuse("ATT-1", "q must be floats [b, t, h, d]");
  if (k.dtype != q.dtype || check[2] != k)
    check.refuse("ATT-2", "k and v must be [b, s, k, d] of q's dtype");
  if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3])
    check.refuse("ATT-3", "q and k differ in rows or head size");
  const std::int64_t heads = q.shape[2], kv_heads = k.shape[2];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    check.refuse("ATT-4",
                 format("{} query heads are not a multiple of {} kv heads", heads, kv_heads));
  }
  for (std::size_t i : {3, 5}) check.is("ATT-5", i, {DType::i32, {q.shape[0], q.shape[1]}});
  for (std::size_t i : {4, 6}) check.is("ATT-5", i, {DType::i32, {k.shape[0], k.shape[1]}});
  check.is("ATT-6", 7, {DType::i32, {}});
  if (!(attrs.softcap >= 0.0))
    check.refuse("ATT-7", format("softcap {} is negative", attrs.softcap));
}

Type lse_of(const Type& q) { return {DType::f32, {q.shape[0], q.shape[1], q.shape[2]}}; }

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("attention", forward_names(), in);
  check_operands(check, check.attrs<AttentionAttrs>(attrs));
  return {in[0], lse_of(in[0])};
}

std::vector<Type> infer_grad(const Attrs& attrs, Types in) {
  const Checks check("attention_grad", kNames, in);
  check_operands(check, check.attrs<AttentionAttrs>(attrs));
  check.is("ATT-8", 8, lse_of(in[0]));
  check.is("ATT-8", 9, lse_of(in[0]));
  check.is("ATT-9", 10, in[0]);
  return {in[0], in[1], in[2]};
}

FactorRule factors(const Attrs&, Types operands, Types results) {
  return factor_rule(
      "b t (k g) d, b s k d, b s k d, b t, b s, b t, b s, -> b t (k g) d; b t (k g) | norep s d",
      operands, results);
}

// dk and dv lack t and g: parts of queries and of a group's heads are summed.
FactorRule factors_grad(const Attrs&, Types operands, Types results) {
  return factor_rule(
      "b t (k g) d, b s k d, b s k d, b t, b s, b t, b s, , b t (k g), b t (k g), b t (k g) d"
      " -> b t (k g) d; b s k d; b s k d | norep s d",
      operands, results);
}

// The operands with names, and one score.
struct Scores {
  const AttentionAttrs& attrs;
  const Array &q, &k, &v, &q_positions, &k_positions, &q_segments, &k_segments;
  std::int64_t window, group;

  Scores(const Attrs& a, std::span<const Array> in)
      : attrs(std::get<AttentionAttrs>(a)),
        q(in[0]),
        k(in[1]),
        v(in[2]),
        q_positions(in[3]),
        k_positions(in[4]),
        q_segments(in[5]),
        k_segments(in[6]),
        window(static_cast<std::int64_t>(in[7].data[0])),
        group(k.shape[2] == 0 ? 1 : q.shape[2] / k.shape[2]) {}

  std::int64_t keys() const { return k.shape[1]; }
  std::int64_t width() const { return q.shape[3]; }

  // `i` is (row, query, head).
  bool sees(const Dims& i, std::int64_t key) const {
    const Dims query{i[0], i[1]}, other{i[0], key};
    if (at(q_segments, query) != at(k_segments, other)) return false;
    const double distance = at(q_positions, query) - at(k_positions, other);
    if (attrs.causal && distance < 0) return false;
    return window <= 0 || distance < static_cast<double>(window);
  }

  double product(const Array& a, const Dims& i, const Array& b, std::int64_t key) const {
    double sum = 0.0;
    for (std::int64_t d = 0; d < width(); ++d) {
      sum += at(a, {i[0], i[1], i[2], d}) * at(b, {i[0], key, i[2] / group, d});
    }
    return sum;
  }

  double score(const Dims& i, std::int64_t key) const {
    const double plain = attrs.scale * product(q, i, k, key);
    return attrs.softcap > 0.0 ? attrs.softcap * std::tanh(plain / attrs.softcap) : plain;
  }

  // d score / d (scale q.k)
  double slope(double score) const {
    const double part = attrs.softcap > 0.0 ? score / attrs.softcap : 0.0;
    return 1.0 - part * part;
  }
};

double log_sum_exp(const Scores& s, const Dims& i) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (std::int64_t key = 0; key < s.keys(); ++key) {
    if (s.sees(i, key)) most = std::fmax(most, s.score(i, key));
  }
  for (std::int64_t key = 0; key < s.keys(); ++key) {
    if (s.sees(i, key)) sum += std::exp(s.score(i, key) - most);
  }
  return most + std::log(sum);  // no key: -inf + -inf
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> in, Types results) {
  const Scores s(attrs, in);
  Array o(results[0].shape), lse(results[1].shape);
  for_each_index(lse.shape, [&](const Dims& i) {
    at(lse, i) = log_sum_exp(s, i);
    for (std::int64_t key = 0; key < s.keys(); ++key) {
      if (!s.sees(i, key)) continue;
      const double weight = std::exp(s.score(i, key) - at(lse, i));
      for (std::int64_t d = 0; d < s.width(); ++d) {
        at(o, {i[0], i[1], i[2], d}) += weight * at(s.v, {i[0], key, i[2] / s.group, d});
      }
    }
  });
  return {std::move(o), std::move(lse)};
}

// p = exp(score - lse); dv = p do; d(score) = p (do.v - delta); dq and dk from that through the
// softcap and the scale.
std::vector<Array> reference_grad(const Attrs& attrs, std::span<const Array> in, Types results) {
  const Scores s(attrs, in.first(kForward));
  const Array &lse = in[8], &delta = in[9], &d_o = in[10];
  Array dq(results[0].shape), dk(results[1].shape), dv(results[2].shape);
  for_each_index(lse.shape, [&](const Dims& i) {
    for (std::int64_t key = 0; key < s.keys(); ++key) {
      if (!s.sees(i, key)) continue;
      const double score = s.score(i, key);
      const double p = std::exp(score - at(lse, i));
      const double d_score = p * (s.product(d_o, i, s.v, key) - at(delta, i));
      const double d_product = d_score * s.slope(score) * s.attrs.scale;
      for (std::int64_t d = 0; d < s.width(); ++d) {
        const Dims query{i[0], i[1], i[2], d}, other{i[0], key, i[2] / s.group, d};
        at(dq, query) += d_product * at(s.k, other);
        at(dk, other) += d_product * at(s.q, query);
        at(dv, other) += p * at(d_o, query);
      }
    }
  });
  return {std::move(dq), std::move(dk), std::move(dv)};
}

AttentionInputs inputs_of(std::span<const Value> x) {
  return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
}

std::vector<Value> vjp(const VjpArgs& args) {
  if (args.cotangents[1].valid()) {
    fail(ErrorCode::usage, "attention: lse has no gradient", "wrap it in stop_gradient");
  }
  const Value d_o = plain_cotangent(args, 0);
  const AttentionGrad grads =
      attention_grad(inputs_of(args.operands), args.results[1], row_dot(d_o, args.results[0]), d_o,
                     std::get<AttentionAttrs>(args.attrs));
  std::vector<Value> result(args.operands.size());
  result[0] = fit(args.operands[0], grads.dq);
  result[1] = fit(args.operands[1], grads.dk);
  result[2] = fit(args.operands[2], grads.dv);
  return result;
}

std::vector<Value> list(const AttentionInputs& in) {
  return {in.q,           in.k,          in.v,          in.q_positions,
          in.k_positions, in.q_segments, in.k_segments, in.window};
}

}  // namespace

constinit const OpDef attention_op = op_row(
    {.name = "attention", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});
constinit const OpDef attention_grad_op = op_row({.name = "attention_grad",
                                                  .infer = infer_grad,
                                                  .factors = factors_grad,
                                                  .reference = reference_grad});

Attention attention(const AttentionInputs& in, AttentionAttrs attrs) {
  const auto results = in.q.program->add(attention_op, list(in), attrs);
  return {results[0], results[1]};
}

AttentionGrad attention_grad(const AttentionInputs& in, Value lse, Value delta, Value d_o,
                             AttentionAttrs attrs) {
  std::vector<Value> operands = list(in);
  operands.insert(operands.end(), {lse, delta, d_o});
  const auto results = in.q.program->add(attention_grad_op, operands, attrs);
  return {results[0], results[1], results[2]};
}

}  // namespace dew
