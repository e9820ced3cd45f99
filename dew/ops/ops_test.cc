// What the table of samples cannot see: edges, ties, and the shape of gradients. Numbers are worked
// out by hand.
#include "dew/ops/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

#include "dew/base/error.h"
#include "dew/base/rng.h"
#include "dew/ir/interpret.h"

namespace dew {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Data = std::vector<double>;

// A program with its inputs beside it; run() gives the elements of a value.
struct Bench {
  Program program{"test"};
  std::vector<Array> inputs;

  Value in(Type type, Data data, bool weight = false) {
    Array array(type.shape);
    EXPECT_EQ(array.data.size(), data.size());
    array.data = std::move(data);
    inputs.push_back(std::move(array));
    return program.input("x" + std::to_string(inputs.size()), std::move(type), weight);
  }
  Value f(Dims shape, Data data) { return in({DType::f32, std::move(shape)}, std::move(data)); }
  Value i(Dims shape, Data data) { return in({DType::i32, std::move(shape)}, std::move(data)); }

  Data run(Value value) {
    Program copy = program;
    copy.output("out", copy.value(value.id));
    return interpret(copy, inputs)[0].data;
  }

  // Cotangents of the operands of the node that made `result`, for a cotangent of its first result.
  std::vector<Value> vjp(Value result, Value cotangent) {
    const Node node = program.nodes()[static_cast<std::size_t>(program.info(result).node)];
    std::vector<Value> operands, results;
    for (int id : node.operands) operands.push_back(program.value(id));
    for (int k = 0; k < node.result_count; ++k)
      results.push_back(program.value(node.first_result + k));
    std::vector<Value> cotangents(results.size());
    cotangents[0] = cotangent;
    return node.op->vjp({node.attrs, operands, results, cotangents});
  }
};

TEST(Pointwise, IntegersWrapAndTruncate) {
  Bench b;
  const Value u = b.in({DType::u32, {2}}, {4294967295, 1});
  EXPECT_EQ(b.run(u + u), (Data{4294967294, 2}));
  EXPECT_EQ(b.run(-u), (Data{1, 4294967295}));
  const Value i = b.i({3}, {-7, 7, 2147483647});
  EXPECT_EQ(b.run(i / 2.0), (Data{-3, 3, 1073741823}));
  EXPECT_EQ(b.run(i + 1.0), (Data{-6, 8, -2147483648.0}));
  EXPECT_EQ(b.run(convert(b.f({3}, {-1.9, 1.9, 0}), DType::i32)), (Data{-1, 1, 0}));
  EXPECT_EQ(b.run(convert(b.f({2}, {0.5, 0}), DType::pred)), (Data{1, 0}));
}

TEST(Pointwise, TiesGoToTheFirstOperand) {
  for (const auto op :
       {static_cast<Value (*)(Value, Value)>(max), static_cast<Value (*)(Value, Value)>(min)}) {
    Bench b;
    const Value x = b.f({2}, {1, 1}), y = b.f({2}, {1, 1});
    const std::vector<Value> grads = b.vjp(op(x, y), b.f({2}, {5, 6}));
    EXPECT_EQ(b.run(grads[0]), (Data{5, 6}));
    EXPECT_EQ(b.run(grads[1]), (Data{0, 0}));
  }
}

TEST(Pointwise, SelectKeepsNaNOut) {
  Bench b;
  const Value c = b.in({DType::pred, {2}}, {1, 0});
  EXPECT_EQ(b.run(select(c, b.f({2}, {1, kNaN}), b.f({2}, {kNaN, 2}))), (Data{1, 2}));
}

TEST(Pointwise, SugarBroadcastsLeadingDimensions) {
  Bench b;
  const Value matrix = b.f({2, 2}, {1, 2, 3, 4}), vector = b.f({2}, {10, 20});
  EXPECT_EQ(b.run(matrix + vector), (Data{11, 22, 13, 24}));
  EXPECT_EQ(b.run(vector * matrix), (Data{10, 40, 30, 80}));
  EXPECT_EQ(b.run(matrix - 1.0), (Data{0, 1, 2, 3}));
}

TEST(Pointwise, GradientOfAWeightIsF32) {
  Bench b;
  const Value x = b.in({DType::bf16, {2, 3}}, Data(6, 1.0));
  const Value scale = b.in({DType::bf16, {}}, {2}, true);
  const std::vector<Value> grads = b.vjp(x * scale, b.in({DType::bf16, {2, 3}}, Data(6, 1.0)));
  EXPECT_EQ(grads[0].type(), (Type{DType::bf16, {2, 3}}));
  EXPECT_EQ(grads[1].type(), (Type{DType::f32, {}}));
  EXPECT_EQ(b.run(grads[1]), (Data{6}));
}

TEST(Reduce, MaximumOfNothingAndFirstHit) {
  Bench b;
  EXPECT_EQ(b.run(reduce_max(b.f({0, 1}, {}), {0})), (Data{-kInfinity}));
  const Value x = b.f({2, 3}, {1, 5, 5, 7, 0, 7});
  EXPECT_EQ(b.run(b.vjp(reduce_max(x, {1}), b.f({2}, {1, 2}))[0]), (Data{0, 1, 0, 2, 0, 0}));
  EXPECT_EQ(b.run(b.vjp(reduce_max(x, {1, 0}), b.f({}, {3}))[0]), (Data{0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(b.run(b.vjp(reduce_max(x, {}), x)[0]), (Data{1, 5, 5, 7, 0, 7}));
}

int count(const Program& program, const OpDef& op) {
  return static_cast<int>(std::ranges::count(program.nodes(), &op, &Node::op));
}

TEST(Dot, GradientsOfALayerAreTwoProductsWithoutTransposes) {
  Program p("test");
  const Value x = p.input("x", {DType::bf16, {2, 3, 4}});
  const Value w = p.input("w", {DType::bf16, {4, 5, 6}}, true);
  const Value y = linear(x, w);
  EXPECT_EQ(y.type(), (Type{DType::bf16, {2, 3, 5, 6}}));
  const Value operands[] = {x, w}, results[] = {y}, cotangents[] = {y};
  const Attrs attrs = p.nodes().back().attrs;
  const std::vector<Value> grads = dot_op.vjp({attrs, operands, results, cotangents});
  EXPECT_EQ(grads[0].type(), x.type());
  EXPECT_EQ(grads[1].type(), (Type{DType::f32, w.shape()}));
  EXPECT_EQ(count(p, dot_op), 3);
  EXPECT_EQ(p.nodes().size(), 3u);
}

TEST(Dot, GradientTakesTheOrderThatNeedsNoTranspose) {
  Program p("test");
  const Value x = p.input("x", {DType::f32, {4, 3}}), w = p.input("w", {DType::f32, {5, 4}});
  const Value y = dot(x, w, {{}, {}, {0}, {1}, DType::f32});  // [3, 5]
  const Value operands[] = {x, w}, results[] = {y}, cotangents[] = {y};
  const Attrs attrs = p.nodes().back().attrs;
  const std::vector<Value> grads = dot_op.vjp({attrs, operands, results, cotangents});
  EXPECT_EQ(grads[0].shape(), x.shape());
  EXPECT_EQ(grads[1].shape(), w.shape());
  EXPECT_EQ(p.nodes().size(), 3u);
}

TEST(Gather, OutsideRowsAreZeroAndLeftOut) {
  Bench b;
  const Value table = b.f({2, 2}, {1, 2, 3, 4}), ids = b.i({4}, {1, -1, 2, 1});
  EXPECT_EQ(b.run(gather_rows(table, ids)), (Data{3, 4, 0, 0, 0, 0, 3, 4}));
  EXPECT_EQ(b.run(scatter_add_rows(table, ids, b.f({4, 2}, {1, 1, 9, 9, 9, 9, 2, 2}))),
            (Data{1, 2, 6, 7}));
}

TEST(Random, WordsAreThoseOfTheGenerator) {
  Bench b;
  const Value key = b.in({DType::u32, {2}}, {7, 9});
  const Counters all{key, b.i({}, {3}), b.i({}, {11}), b.i({2}, {40, -1}), b.i({3}, {5, 6, 7})};
  const Data bits = b.run(random_bits(all, 2, {6}));
  const RandomKey folded = fold({7, 9}, 2, 3, 11, 0);
  EXPECT_EQ(bits[0], philox(folded, {0, 5, 40, 0})[0]);
  EXPECT_EQ(bits[6 + 5], philox(folded, {1, 6, 40, 0})[1]);  // row 40, column 6, element 5
  EXPECT_EQ(bits[18 + 12 + 3],
            philox(folded, {0, 7, 0xffffffffu, 0})[3]);  // row -1, column 7, element 3
  const Counters part{key, all.layer, all.step, b.i({1}, {40}), b.i({1}, {6})};
  const Data some = b.run(random_bits(part, 2, {6}));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), bits.begin() + 6));
}

TEST(Random, DropoutKeepsTheMean) {
  Bench b;
  constexpr std::int64_t kSize = 64;
  Data rows(kSize);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i);
  const Counters c{b.in({DType::u32, {2}}, {1, 2}), b.i({}, {0}), b.i({}, {0}), b.i({kSize}, rows),
                   b.i({kSize}, rows)};
  const Data y = b.run(dropout(b.f({kSize, kSize}, Data(kSize * kSize, 1.0)), c, 1, 0.25));
  double sum = 0;
  for (double element : y) {
    EXPECT_TRUE(element == 0 || element == 1 / 0.75);
    sum += element;
  }
  EXPECT_NEAR(sum / (kSize * kSize), 1.0, 0.03);
}

TEST(Rope, RotatesPairsHalfADimensionApart) {
  Bench b;
  const Value x = b.f({1, 2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const Value positions = b.i({1, 2}, {0, 3}), base = b.f({}, {100});
  const Value y = rope(x, positions, base, {});
  const Data found = b.run(y);
  EXPECT_TRUE(std::equal(found.begin(), found.begin() + 4, b.inputs[0].data.begin()));
  EXPECT_NEAR(found[4], 1 * std::cos(3.0) - 3 * std::sin(3.0), 1e-12);
  EXPECT_NEAR(found[6], 3 * std::cos(3.0) + 1 * std::sin(3.0), 1e-12);
  EXPECT_NEAR(found[5], 2 * std::cos(0.3) - 4 * std::sin(0.3), 1e-12);
  RopeDims back;
  back.inverse = true;
  const Data again = b.run(rope(y, positions, base, back));
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_NEAR(again[i], b.inputs[0].data[i], 1e-12);
}

// The angle at position 1 of a pair whose plain frequency is `base`^(-2i/d).
double angle(RopeDims dims, std::int64_t pair) {
  Bench b;
  Data x(8, 0.0);
  x[static_cast<std::size_t>(pair)] = 1;
  const Value y = rope(b.f({1, 1, 1, 8}, x), b.i({1, 1}, {1}), b.f({}, {10000}), std::move(dims));
  const Data found = b.run(y);
  return std::atan2(found[static_cast<std::size_t>(pair + 4)],
                    found[static_cast<std::size_t>(pair)]);
}

TEST(Rope, Scaling) {
  RopeDims dims;
  dims.factor = 8;
  dims.scaling = "linear";
  EXPECT_NEAR(angle(dims, 1), 0.1 / 8, 1e-12);
  dims.scaling = "llama3";
  dims.original_max_seq_len = 512;               // turns of pairs 0..3: 81.5, 8.15, 0.815, 0.0815
  EXPECT_NEAR(angle(dims, 0), 1.0, 1e-12);       // above high_freq_factor 4: kept
  EXPECT_NEAR(angle(dims, 2), 0.01 / 8, 1e-12);  // below low_freq_factor 1: stretched
  dims.original_max_seq_len = 128;               // pair 1 turns 2.04 times: blended
  const double blend = (128 * 0.1 / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_NEAR(angle(dims, 1), (1 - blend) * 0.1 / 8 + blend * 0.1, 1e-12);
}

struct AttentionBench : Bench {
  // One row, one head of size 1, four columns; v counts 1, 2, 3, 4 and all scores are zero.
  Attention build(Data positions, Data segments, double window, bool causal = true) {
    const Value q = f({1, 4, 1, 1}, {0, 0, 0, 0}), v = f({1, 4, 1, 1}, {1, 2, 3, 4});
    const Value p = i({1, 4}, std::move(positions)), s = i({1, 4}, std::move(segments));
    return attention({q, q, v, p, p, s, s, i({}, {window})},
                     {.scale = 1, .softcap = 0, .causal = causal});
  }
};

TEST(Attention, MaskIsCausalWindowedAndWithinSegments) {
  AttentionBench b;
  EXPECT_EQ(b.run(b.build({0, 1, 2, 3}, {0, 0, 0, 0}, 0).o), (Data{1, 1.5, 2, 2.5}));
  AttentionBench windowed;
  EXPECT_EQ(windowed.run(windowed.build({0, 1, 2, 3}, {0, 0, 0, 0}, 2).o),
            (Data{1, 1.5, 2.5, 3.5}));
  AttentionBench packed;
  EXPECT_EQ(packed.run(packed.build({0, 1, 0, 0}, {0, 0, 1, -4}, 0).o), (Data{1, 1.5, 3, 4}));
  AttentionBench full;
  EXPECT_EQ(full.run(full.build({0, 1, 2, 3}, {0, 0, 0, 0}, 0, false).o),
            (Data{2.5, 2.5, 2.5, 2.5}));
}

TEST(Attention, AQueryWithoutKeysIsZero) {
  Bench b;
  const Value q = b.f({1, 1, 1, 1}, {1}), p = b.i({1, 1}, {0});
  const auto [o, lse] =
      attention({q, q, q, p, p, b.i({1, 1}, {0}), b.i({1, 1}, {1}), b.i({}, {0})}, {});
  EXPECT_EQ(b.run(o), (Data{0}));
  EXPECT_EQ(b.run(lse), (Data{-kInfinity}));
  for (Value g : b.vjp(o, b.f({1, 1, 1, 1}, {1}))) {
    EXPECT_TRUE(!g.valid() || b.run(g) == (Data{0}));
  }
}

TEST(Attention, LseHasNoGradient) {
  AttentionBench b;
  const Attention a = b.build({0, 1, 2, 3}, {0, 0, 0, 0}, 0);
  const Node node = b.program.nodes().back();
  std::vector<Value> operands;
  for (int id : node.operands) operands.push_back(b.program.value(id));
  const Value results[] = {a.o, a.lse}, cotangents[] = {a.o, a.lse};
  EXPECT_THROW(attention_op.vjp({node.attrs, operands, results, cotangents}), Error);
}

TEST(HeadLoss, WeightlessTokensAreSelectedAway) {
  Bench b;
  const Value h = b.f({1, 2, 1}, {1, kNaN}), table = b.f({3, 1}, {0, std::log(2.0), 0});
  const Value labels = b.i({1, 2}, {1, -100}), weights = b.f({1, 2}, {2, 0});
  const HeadLoss loss =
      head_loss(h, table, labels, weights, {.z_loss = 0, .softcap = 0, .gradients = true});
  EXPECT_NEAR(b.run(loss.loss)[0], 2 * std::log(2.0), 1e-12);  // p = 1/4, 1/2, 1/4
  EXPECT_EQ(b.run(loss.correct), (Data{2}));
  EXPECT_EQ(b.run(loss.lse)[1], 0);
  EXPECT_EQ(b.run(loss.d_h)[1], 0);
  const Data d_table = b.run(loss.d_table);
  for (std::size_t v = 0; v < 3; ++v) EXPECT_NEAR(d_table[v], (Data{0.5, -1, 0.5})[v], 1e-12);
}

TEST(HeadLoss, TiesGoToTheFirstLabel) {
  Bench b;
  const Value h = b.f({1, 2, 1}, {0, 0}), table = b.f({2, 1}, {1, 2});
  const HeadLoss loss = head_loss(h, table, b.i({1, 2}, {0, 1}), b.f({1, 2}, {1, 1}), {});
  EXPECT_EQ(b.run(loss.correct), (Data{1}));
}

TEST(Update, WithoutCommitEverythingKeepsItsBits) {
  Bench b;
  const Value p = b.f({2}, {1, kNaN}), m = b.f({2}, {2, 3}), bad = b.f({2}, {kNaN, kInfinity}),
              one = b.f({}, {1});
  const Value no = b.in({DType::pred, {}}, {0});
  const AdamW a = adamw(p, m, m, bad, one, one, one, b.f({}, {kNaN}), no, {});
  EXPECT_EQ(b.run(a.p)[0], 1);
  EXPECT_EQ(b.run(a.m), (Data{2, 3}));
  EXPECT_EQ(b.run(ema(m, bad, no, 0.9)), (Data{2, 3}));
  EXPECT_EQ(b.run(lion(m, m, bad, one, one, no, {}).p), (Data{2, 3}));
  EXPECT_EQ(b.run(sgd(m, m, bad, one, one, no, {}).m), (Data{2, 3}));
}

TEST(Update, FirstStepOfAdamWIsTheSignOfTheGradient) {
  Bench b;
  const Value zero = b.f({2}, {0, 0});
  const UpdateAttrs a{.b1 = 0.9, .b2 = 0.99, .epsilon = 0, .weight_decay = 0.5, .momentum = 0};
  const AdamW r =
      adamw(b.f({2}, {1, 2}), zero, zero, b.f({2}, {3, -4}), b.f({}, {0.1}), b.f({}, {1 / 0.1}),
            b.f({}, {1 / 0.01}), b.f({}, {0.5}), b.in({DType::pred, {}}, {1}), a);
  EXPECT_NEAR(b.run(r.p)[0], 1 - 0.1 * (1 + 0.5 * 1), 1e-12);
  EXPECT_NEAR(b.run(r.p)[1], 2 - 0.1 * (-1 + 0.5 * 2), 1e-12);
  EXPECT_NEAR(b.run(r.m)[1], 0.1 * -2, 1e-12);
}

std::shared_ptr<const Program> running_sum() {
  auto body = std::make_shared<Program>("body");
  const Value sum = body->input("sum", {DType::f32, {}}), x = body->input("x", {DType::f32, {}});
  body->output("sum", sum + x);
  body->output("before", sum);
  return body;
}

TEST(Scan, StacksByIterationInBothDirections) {
  Bench b;
  const Value start = b.f({}, {10}), x = b.f({3}, {1, 2, 3});
  const Scan forward = scan(running_sum(), std::array{start}, std::array{x}, {}, 3);
  EXPECT_EQ(b.run(forward.carries[0]), (Data{16}));
  EXPECT_EQ(b.run(forward.stacked[0]), (Data{10, 11, 13}));
  const Scan reverse = scan(running_sum(), std::array{start}, std::array{x}, {}, 3, true);
  EXPECT_EQ(b.run(reverse.stacked[0]), (Data{15, 13, 10}));
}

TEST(Norms, EmptyVectorsAndStatistics) {
  Bench b;
  EXPECT_EQ(b.run(rms_norm(b.f({2, 0}, {}), b.f({0}, {}), 0.1).r), (Data{0, 0}));
  const LayerNorm n = layer_norm(b.f({1, 2}, {1, 3}), b.f({2}, {1, 1}), b.f({2}, {0, 5}), 0);
  EXPECT_EQ(b.run(n.mean), (Data{2}));
  EXPECT_EQ(b.run(n.y), (Data{-1, 6}));
}

}  // namespace
}  // namespace dew
