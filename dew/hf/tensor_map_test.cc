#include "dew/hf/tensor_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <map>
#include <numeric>

#include "dew/base/error.h"

namespace dew::hf {
namespace {

std::vector<float> counting(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

std::vector<float> ours_of(const Placement& part, std::int64_t theirs) {
  std::vector<float> ours(static_cast<std::size_t>(element_count(part.our_shape)));
  to_ours(part, counting(theirs), ours);
  return ours;
}

// Two inputs, one head of three: their rows are our columns.
TEST(TensorMap, OutInIsTurned) {
  const Placement part = {"a", {2, 1, 3}, Order::out_in, 0, 3};
  EXPECT_EQ(ours_of(part, 6), (std::vector<float>{0, 2, 4, 1, 3, 5}));
}

TEST(TensorMap, InOutStays) {
  const Placement part = {"a", {2, 3}, Order::in_out, 0, 3};
  EXPECT_EQ(ours_of(part, 6), counting(6));
}

TEST(TensorMap, PartsOfAJoinedTensor) {
  // Rows 1 and 2 of a matrix [4, 2], then columns 1 and 2 of one [2, 4], then a vector's.
  EXPECT_EQ(ours_of({"a", {2, 2}, Order::out_in, 1, 4}, 8), (std::vector<float>{2, 4, 3, 5}));
  EXPECT_EQ(ours_of({"a", {2, 2}, Order::in_out, 1, 4}, 8), (std::vector<float>{1, 2, 5, 6}));
  EXPECT_EQ(ours_of({"a", {1, 2}, Order::vector, 1, 4}, 4), (std::vector<float>{1, 2}));
}

TEST(TensorMap, ThereAndBack) {
  for (const Order order : {Order::out_in, Order::in_out}) {
    for (const Dims& shape : {Dims{1, 1}, Dims{5, 7}, Dims{33, 3, 13}, Dims{65, 40}}) {
      const std::int64_t n = element_count(shape), out = n / shape[0];
      const Placement first = {"a", shape, order, 0, 2 * out};
      const Placement second = {"b", shape, order, out, 2 * out};
      const std::vector<float> theirs = counting(2 * n);
      std::vector<float> back(theirs.size(), -1), a(static_cast<std::size_t>(n)), b = a;
      to_ours(first, theirs, a);
      to_ours(second, theirs, b);
      to_theirs(first, a, back);
      to_theirs(second, b, back);
      EXPECT_EQ(back, theirs);
    }
  }
}

models::CausalTransformer tiny() {
  return models::CausalTransformer({.vocab_size = 5,
                                    .emb_features = 6,
                                    .num_layers = 2,
                                    .num_heads = 2,
                                    .head_dim = 4,
                                    .mlp_features = 3,
                                    .mlp = "gelu",
                                    .qk_norm = false});
}

const std::vector<TensorRow> kRows = {
    {"tokens", "embed_tokens/embedding", Order::table},
    {"block.{}.n1", "layers/attention_norm/scale", Order::vector},
    {"block.{}.qkv", "layers/attention/q_proj/kernel", Order::out_in, 0, 24},
    {"block.{}.qkv", "layers/attention/k_proj/kernel", Order::out_in, 8, 24},
    {"block.{}.qkv", "layers/attention/v_proj/kernel", Order::out_in, 16, 24},
    {"block.{}.o", "layers/attention/o_proj/kernel", Order::out_in},
    {"block.{}.n2", "layers/mlp_norm/scale", Order::vector},
    {"block.{}.up", "layers/mlp/up_proj/kernel", Order::in_out},
    {"block.{}.down", "layers/mlp/down_proj/kernel", Order::in_out},
    {"norm", "final_norm/scale", Order::vector, 0, 0, true},
};

TEST(TensorMap, NamesAndShapes) {
  std::map<std::string, Dims> found;
  for (const TheirTensor& tensor : map_tensors(kRows, "model.", tiny())) {
    found[tensor.name] = tensor.shape;
  }
  const std::map<std::string, Dims> want = {
      {"model.tokens", {5, 6}},       {"norm", {6}},
      {"model.block.0.n1", {6}},      {"model.block.1.n1", {6}},
      {"model.block.0.qkv", {24, 6}}, {"model.block.1.qkv", {24, 6}},
      {"model.block.0.o", {6, 8}},    {"model.block.1.o", {6, 8}},
      {"model.block.0.n2", {6}},      {"model.block.1.n2", {6}},
      {"model.block.0.up", {6, 3}},   {"model.block.1.up", {6, 3}},
      {"model.block.0.down", {3, 6}}, {"model.block.1.down", {3, 6}}};
  EXPECT_EQ(found, want);
}

TEST(TensorMap, EveryParameterIsInOneRow) {
  std::vector<TensorRow> rows = kRows;
  rows.pop_back();
  EXPECT_THROW(map_tensors(rows, "", tiny()), Error);
  rows.push_back(kRows.back());
  rows.push_back(kRows.back());
  EXPECT_THROW(map_tensors(rows, "", tiny()), Error);
}

TEST(TensorMap, AWholeTensorFromItsParts) {
  const std::vector<TheirTensor> tensors = map_tensors(kRows, "", tiny());
  const auto qkv = std::ranges::find(tensors, "block.1.qkv", &TheirTensor::name);
  ASSERT_NE(qkv, tensors.end());
  const std::vector<float> theirs = counting(24 * 6);
  std::map<std::string, std::vector<float>> ours;
  for (const Placement& part : qkv->parts) {
    ours[part.ours].resize(48);
    to_ours(part, theirs, ours[part.ours]);
  }
  EXPECT_EQ(ours.size(), 3u);
  EXPECT_TRUE(ours.contains("layers_1/attention/k_proj/kernel"));
  std::vector<float> back(theirs.size());
  make_theirs(
      *qkv, [&](const std::string& name) { return std::span<const float>(ours.at(name)); }, back);
  EXPECT_EQ(back, theirs);
}

}  // namespace
}  // namespace dew::hf
