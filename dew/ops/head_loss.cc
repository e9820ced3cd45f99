// Cross-entropy fused with the output head: logits are never an array of the program.
#include <array>
#include <cmath>
#include <limits>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/ops/support.h"

namespace dew {
namespace {

enum Result : std::size_t { kLoss, kNll, kCorrect, kLse, kDh, kDtable };

std::vector<Type> infer(const Attrs& attrs, Types in) {
  const Checks check("head_loss", "h table labels weights", in);
  const auto& head = check.attrs<HeadAttrs>(attrs);
  if (in[0].rank() != 3 || !is_float(in[0].dtype))
    check.refuse("HEA-1", "h must be floats [b, t, e]");
  if (in[1].rank() != 2 || in[1].dtype != in[0].dtype || in[1].shape[1] != in[0].shape[2]) {
    check.refuse("HEA-2", "table must be [v, e] of h's dtype and width");
  }
  const Dims tokens{in[0].shape[0], in[0].shape[1]};
  check.is("HEA-3", 2, {DType::i32, tokens});
  check.is("HEA-4", 3, {DType::f32, tokens});
  if (!(head.softcap >= 0.0)) check.refuse("HEA-5", format("softcap {} is negative", head.softcap));
  const Type sum{DType::f32, {}};
  std::vector<Type> results{sum, sum, sum, {DType::f32, tokens}};
  if (head.gradients) results.insert(results.end(), {in[0], {DType::f32, in[1].shape}});
  return results;
}

// Split over v, the op itself reduces maximum, sum of exponentials, the label's logit and d_h;
// d_table is a sum over tokens.
FactorRule factors(const Attrs& attrs, Types operands, Types results) {
  const bool gradients = std::get<HeadAttrs>(attrs).gradients;
  return factor_rule(
      format("b s e, v e, b s, b s -> ; ; ; b s{} | norep e | inner v:0 v:1 v:2 v:3{} | index v:2",
             gradients ? "; b s e; v e" : "", gradients ? " v:4" : ""),
      operands, results);
}

// One token's logits and what follows from them.
struct Token {
  std::vector<double> z;
  double lse = -std::numeric_limits<double>::infinity();
  double best = lse;
  std::int64_t winner = -1;  // first of the greatest

  Token(const HeadAttrs& attrs, const Array& h, const Array& table, const Dims& token) {
    for (std::int64_t v = 0; v < table.shape[0]; ++v) {
      double sum = 0.0;
      for (std::int64_t e = 0; e < table.shape[1]; ++e)
        sum += at(h, {token[0], token[1], e}) * at(table, {v, e});
      z.push_back(attrs.softcap > 0.0 ? attrs.softcap * std::tanh(sum / attrs.softcap) : sum);
      if (z.back() > best) {
        best = z.back();
        winner = v;
      }
    }
    double sum = 0.0;
    for (double logit : z) sum += std::exp(logit - best);
    if (!z.empty()) lse = best + std::log(sum);
  }
};

// d loss / d (h . table^T) of one token.
std::vector<double> slopes(const HeadAttrs& attrs, const Token& t, std::int64_t label,
                           double weight) {
  std::vector<double> result(t.z.size());
  for (std::size_t v = 0; v < result.size(); ++v) {
    const double p = std::exp(t.z[v] - t.lse);
    const double target = static_cast<std::int64_t>(v) == label ? 1.0 : 0.0;
    const double cap = attrs.softcap > 0.0 ? 1.0 - std::pow(t.z[v] / attrs.softcap, 2) : 1.0;
    result[v] = weight * ((1.0 + 2.0 * attrs.z_loss * t.lse) * p - target) * cap;
  }
  return result;
}

void add_gradients(std::vector<Array>& results, const Array& h, const Array& table,
                   const Dims& token, const std::vector<double>& dz) {
  for (std::int64_t v = 0; v < table.shape[0]; ++v) {
    for (std::int64_t e = 0; e < table.shape[1]; ++e) {
      const Dims state{token[0], token[1], e}, entry{v, e};
      at(results[kDh], state) += dz[slot(v)] * at(table, entry);
      at(results[kDtable], entry) += dz[slot(v)] * at(h, state);
    }
  }
}

std::vector<Array> reference(const Attrs& attrs, std::span<const Array> in, Types types) {
  const auto& head = std::get<HeadAttrs>(attrs);
  const Array &h = in[0], &table = in[1], &labels = in[2], &weights = in[3];
  std::vector<Array> results;
  for (const Type& type : types) results.emplace_back(type.shape);
  for_each_index(weights.shape, [&](const Dims& token) {
    const double weight = at(weights, token);
    if (weight == 0.0) return;  // selected away: its state may hold anything
    const Token t(head, h, table, token);
    const auto label = static_cast<std::int64_t>(at(labels, token));
    const bool known = label >= 0 && label < table.shape[0];
    const double nll = t.lse - (known ? t.z[slot(label)] : 0.0);
    results[kLoss].data[0] += weight * (nll + head.z_loss * t.lse * t.lse);
    results[kNll].data[0] += weight * nll;
    results[kCorrect].data[0] += known && t.winner == label ? weight : 0.0;
    at(results[kLse], token) = t.lse;
    if (head.gradients) add_gradients(results, h, table, token, slopes(head, t, label, weight));
  });
  return results;
}

std::vector<Value> vjp(const VjpArgs& args) {
  for (std::size_t i = kNll; i < args.cotangents.size(); ++i) {
    if (args.cotangents[i].valid()) fail(ErrorCode::usage, "head_loss: only `loss` has a gradient");
  }
  if (!std::get<HeadAttrs>(args.attrs).gradients) {
    fail(ErrorCode::usage, "head_loss: not differentiable as built", "set HeadAttrs::gradients");
  }
  const Value h = args.operands[0], table = args.operands[1], g = args.cotangents[kLoss];
  const Value dh = args.results[kDh], dtable = args.results[kDtable];
  const Value g_h = dh.dtype() == g.dtype() ? g : convert(g, dh.dtype());
  return {fit(h, dh * g_h), fit(table, dtable * g), {}, {}};
}

}  // namespace

constinit const OpDef head_loss_op = op_row(
    {.name = "head_loss", .infer = infer, .factors = factors, .reference = reference, .vjp = vjp});

HeadLoss head_loss(Value h, Value table, Value labels, Value weights, HeadAttrs attrs) {
  const auto r = h.program->add(head_loss_op, std::array{h, table, labels, weights}, attrs);
  HeadLoss loss{r[kLoss], r[kNll], r[kCorrect], r[kLse], {}, {}};
  if (attrs.gradients) {
    loss.d_h = r[kDh];
    loss.d_table = r[kDtable];
  }
  return loss;
}

}  // namespace dew
