// Builders of every op, and the list of all rows. Shapes: b rows, t columns (query positions), s
// key positions, e width, h query heads, k kv heads, g query heads a kv head (h = k g, kv head
// major), d head size, v vocabulary. Every builder throws ErrorCode::usage, citing a numbered
// constraint, if types do not fit.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "dew/ir/program.h"

// X(name): the row name_op. A name listed without a row does not link.
// clang-format off
#define DEW_POINTWISE_OPS(X)                                                                   \
  X(add) X(sub) X(mul) X(div) X(max) X(min) X(neg) X(exp) X(log) X(sqrt) X(rsqrt) X(tanh)      \
  X(logistic) X(erf) X(sin) X(cos) X(abs) X(sign) X(floor) X(pow) X(silu) X(silu_slope)        \
  X(gelu_tanh) X(gelu_tanh_slope) X(gelu_erf) X(gelu_erf_slope) X(equal) X(less) X(less_equal) \
  X(logical_and) X(logical_or) X(logical_not) X(is_finite) X(select) X(convert)                \
  X(stop_gradient)

#define DEW_OTHER_OPS(X)                                                                       \
  X(constant) X(iota) X(broadcast) X(reshape) X(transpose) X(slice) X(pad) X(concatenate)      \
  X(reduce_sum) X(reduce_max) X(row_dot) X(dot) X(gather_rows) X(scatter_add_rows)             \
  X(random_bits) X(dropout) X(rms_norm) X(rms_norm_grad) X(layer_norm) X(layer_norm_grad)      \
  X(write_columns) X(rope) X(attention) X(attention_grad) X(head_loss) X(sum_squares) X(adamw) \
  X(lion) X(sgd) X(ema) X(scan)

#define DEW_COLLECTIVE_OPS(X)                                                                  \
  X(all_reduce) X(all_gather) X(reduce_scatter) X(all_to_all) X(permute) X(own_part)           \
  X(device_index)
// clang-format on

namespace dew {

#define DEW_DECLARE_OP(name) extern const OpDef name##_op;
DEW_POINTWISE_OPS(DEW_DECLARE_OP)
DEW_OTHER_OPS(DEW_DECLARE_OP)
DEW_COLLECTIVE_OPS(DEW_DECLARE_OP)
#undef DEW_DECLARE_OP

std::span<const OpDef* const> all_ops();

// ---- pointwise (ops/elementwise.cc) ----
// Operands of equal type; an operand of rank 0 stands for all elements.
Value add(Value a, Value b);
Value sub(Value a, Value b);
Value mul(Value a, Value b);
Value div(Value a, Value b);
Value max(Value a, Value b);  // ties: the whole cotangent goes to a
Value min(Value a, Value b);
Value neg(Value x);
Value exp(Value x);
Value log(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);
Value tanh(Value x);
Value logistic(Value x);
Value erf(Value x);
Value sin(Value x);
Value cos(Value x);
Value abs(Value x);
Value sign(Value x);
Value floor(Value x);
Value pow(Value x, double exponent);
Value silu(Value x);        // x sigmoid(x)
Value silu_slope(Value x);  // its derivative
Value gelu_tanh(Value x);   // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
Value gelu_tanh_slope(Value x);
Value gelu_erf(Value x);  // x/2 (1 + erf(x/sqrt 2))
Value gelu_erf_slope(Value x);
Value equal(Value a, Value b);  // comparisons give pred
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
Value logical_and(Value a, Value b);
Value logical_or(Value a, Value b);
Value logical_not(Value x);
Value is_finite(Value x);                         // pred
Value select(Value condition, Value a, Value b);  // condition ? a : b
Value convert(Value x, DType dtype);
Value stop_gradient(Value x);

// Sugar: scalars become constants; a value of lower rank is broadcast along leading dimensions.
Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator-(Value x);
Value operator+(Value a, double b);
Value operator-(Value a, double b);
Value operator*(Value a, double b);
Value operator/(Value a, double b);

// ---- structure (one file an op) ----
Value constant(Program& program, Type type, double value);
Value zeros_like(Value x);
Value iota(Program& program, Type type, std::int64_t dim);
Value broadcast(Value x, Dims shape,
                Dims dims);  // operand dimension i becomes result dimension dims[i]
Value reshape(Value x, Dims shape);
Value transpose(Value x, Dims order);  // result dimension i is operand dimension order[i]
Value slice(Value x, Dims start, Dims limit);
Value pad(Value x, Dims low, Dims high);  // with zeros
Value concatenate(std::span<const Value> parts, std::int64_t dim);
Value reduce_sum(Value x, Dims dims);  // sums in f32 at least; result has the operand's dtype
Value reduce_max(Value x, Dims dims);  // cotangent goes to the first maximum in row-major order

// a, b [.., d] -> f32[..]: the product of each row of a with that of b.
Value row_dot(Value a, Value b);

// General product; results: batch, free of a, free of b. Accumulates in f32; `dims.out` is f32 or
// the operands' dtype.
Value dot(Value a, Value b, DotDims dims);
// x [.., e] times w [e, ..]: contracts the last dimension of x with the first of w; result has x's
// dtype.
Value linear(Value x, Value w);

// table [v, e], ids [..] i32 -> [.., e]. Ids outside [0, v) read as zeros.
Value gather_rows(Value table, Value ids);
// base [v, e] f32 + sum over ids [..] of updates [.., e] (f32 or bf16); ids outside [0, v) are left
// out.
Value scatter_add_rows(Value base, Value ids, Value updates);
// base [b, s, ..] with column columns[b, t] of each row (i32[b, t]) replaced by that of updates [b,
// t,
// ..], in order: of equal columns the last one stays. Columns outside [0, s) are left out.
Value write_columns(Value base, Value columns, Value updates);

// Counter-based: key u32[2], layer i32[], step i32[], row_ids i32[rows], columns i32[cols] ->
// u32[rows, cols, shape...]. Element (r, c, j): word j % 4 of philox(k, {j / 4, column c, row_id r,
// 0}) with k = fold(key, purpose, layer, step, 0).
struct Counters {
  Value key, layer, step, row_ids, columns;
};
Value random_bits(Counters counters, std::int64_t purpose, Dims shape);
// x [rows, cols, ...]: kept where the uniform number of random_bits is at least rate, times 1 / (1
// - rate).
Value dropout(Value x, Counters counters, std::int64_t purpose, double rate);

// ---- norms over the last dimension, statistics f32 ----
struct RmsNorm {
  Value y, r;  // r = rsqrt(mean x^2 + eps), f32, shape of x without the last dimension
};
RmsNorm rms_norm(Value x, Value scale, double epsilon);  // y = x r scale; scale [e] f32
struct LayerNorm {
  Value y, mean, r;
};
LayerNorm layer_norm(Value x, Value scale, Value bias,
                     double epsilon);  // y = (x - mean) r scale + bias

// x [b, s, h, d], d even, positions i32[b, s], base f32[]: pairs (i, i + d/2) rotate by position *
// base^(-2i/d).
Value rope(Value x, Value positions, Value base, RopeDims dims);
// Radians that pair i of d/2 turns by a position, as Hugging Face defines the scalings. llama3:
// wavelengths above original / low_freq_factor are stretched by factor, those below original /
// high_freq_factor are kept, those between are blended.
double rope_frequency(const RopeDims& dims, double base, std::int64_t pair, std::int64_t d);

// q [b, t, h, d], k and v [b, s, k, d]; positions and segments i32 of queries [b, t] and keys [b,
// s]; window i32[]. Query t sees key s if segments are equal, and (causal) key position <= query
// position, and (window > 0) query position - key position < window. Results: o [b, t, h, d], lse
// f32[b, t, h]; without any key o = 0, lse = -inf.
struct AttentionInputs {
  Value q, k, v, q_positions, k_positions, q_segments, k_segments, window;
};
struct Attention {
  Value o, lse;
};
Attention attention(const AttentionInputs& in, AttentionAttrs attrs);
// Gradients from the final lse [b, t, h], delta = sum_d do * o (f32[b, t, h]) and do: dq, dk, dv.
struct AttentionGrad {
  Value dq, dk, dv;
};
AttentionGrad attention_grad(const AttentionInputs& in, Value lse, Value delta, Value d_o,
                             AttentionAttrs attrs);

// Loss with the output head, logits never stored: z = h . table^T, h [b, t, e], table [v, e],
// labels i32[b, t], weights f32[b, t]. Tokens of weight 0 are selected away: their lse and d_h are
// 0, whatever h holds. A label outside [0, v) has logit 0 and is never correct; of equal logits the
// first is the argmax. All results f32: loss = sum w (lse - z_label + z_loss lse^2), nll = sum w
// (lse - z_label), correct = sum w [argmax z == label], lse [b, t]; with attrs.gradients also the
// gradients of loss: d_h (dtype of h) and d_table (f32).
struct HeadLoss {
  Value loss, nll, correct, lse, d_h, d_table;
};
HeadLoss head_loss(Value h, Value table, Value labels, Value weights, HeadAttrs attrs);

// ---- optimizers ----
// f32, one pass, in place; where `commit` (pred[]) is false everything keeps its bits.
Value sum_squares(Value x);  // f32[]
struct AdamW {
  Value p, m, v;
};
// g' = scale g; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; p -= lr (m c1 / (sqrt(v c2) + eps) +
// weight_decay p), with c1 = 1/(1-b1^n), c2 = 1/(1-b2^n) given as f32[] operands, like lr and
// scale.
AdamW adamw(Value p, Value m, Value v, Value g, Value lr, Value c1, Value c2, Value scale,
            Value commit, UpdateAttrs a);
struct Momentum {
  Value p, m;
};
// u = sign(b1 m + (1-b1) g'); m = b2 m + (1-b2) g'; p -= lr (u + weight_decay p).
Momentum lion(Value p, Value m, Value g, Value lr, Value scale, Value commit, UpdateAttrs a);
// m = momentum m + g'; p -= lr (m + weight_decay p).
Momentum sgd(Value p, Value m, Value g, Value lr, Value scale, Value commit, UpdateAttrs a);
// e = decay e + (1 - decay) p.
Value ema(Value e, Value p, Value commit, double decay);

// ---- between devices (ops/collectives.cc) ----
// In programs of one device, written by partition/ only. The devices of a group differ in their
// places along group.atoms and in nothing else; a member's number counts along them, the first
// atom being the major one. Shapes are what each member holds. No gradients: they are found before.
Value all_reduce(Value x, GroupAttrs group);  // the sum of the members'
Value all_gather(Value x, GroupAttrs group);  // the members' parts of dimension dims[0] in a row
Value reduce_scatter(Value x, GroupAttrs group);  // own_part(all_reduce(x))
Value all_to_all(Value x, GroupAttrs group);  // own_part along dims[1] of a gather along dims[0]
// The parts of an array dealt anew: the device that stood for a part by its place along `atoms` is
// followed by the one that has that number along `to`.
Value permute(Value x, GroupAttrs group);
Value own_part(Value x, GroupAttrs group);  // the member's part of dimension dims[0] of a whole x
Value device_index(Program& program, GroupAttrs group);  // i32[]: the member's number

// ---- scan ----
// Runs `body` `length` times. Body inputs: carries, slices, constants; body outputs: carries, then
// per-iteration results, which come out stacked on a new leading dimension.
struct Scan {
  std::vector<Value> carries, stacked;
};
Scan scan(std::shared_ptr<const Program> body, std::span<const Value> carries,
          std::span<const Value> slices, std::span<const Value> constants, std::int64_t length,
          bool reverse = false);

}  // namespace dew
