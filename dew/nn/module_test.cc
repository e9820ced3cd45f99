#include "dew/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dew/base/error.h"
#include "dew/nn/transformer.h"

namespace dew {
namespace {

ParamSpec stacked(Init init) {
  return {.name = "layers/mlp/up_proj/kernel",
          .type = {DType::f32, {3, 5, 7}},
          .axes = {"layers", "embed", "mlp"},
          .stack = "layers",
          .init = init,
          .kind = ParamKind::matrix};
}

std::vector<float> whole_layer(const ParamSpec& param, RandomKey key, std::int64_t slot) {
  std::vector<float> values(static_cast<std::size_t>(param.layer_elements()));
  init_part(param, key, slot, 0, values);
  return values;
}

TEST(Params, NamesAndSizesOfOneLayer) {
  const ParamSpec p = stacked({});
  EXPECT_EQ(p.layers(), 3);
  EXPECT_EQ(p.layer_elements(), 35);
  EXPECT_EQ(p.layer_shape(), (Dims{5, 7}));
  EXPECT_EQ(p.layer_name(2), "layers_2/mlp/up_proj/kernel");
  EXPECT_THROW(p.layer_name(3), Error);

  const ParamSpec table = {.name = "embed_tokens/embedding",
                           .type = {DType::f32, {4, 2}},
                           .axes = {"vocab", "embed"},
                           .stack = {},
                           .init = {},
                           .kind = ParamKind::embedding};
  EXPECT_EQ(table.layers(), 1);
  EXPECT_EQ(table.layer_name(0), "embed_tokens/embedding");
  EXPECT_EQ(parameter_count(std::vector{p, table}), 105 + 8);
}

TEST(Params, InitialValuesDoNotDependOnTheParts) {
  for (const auto kind :
       {Init::Kind::zeros, Init::Kind::ones, Init::Kind::normal, Init::Kind::truncated_normal}) {
    const ParamSpec p = stacked({kind, 0.5});
    const RandomKey key = key_from_seed(11);
    const std::vector<float> whole = whole_layer(p, key, 1);
    for (std::int64_t first = 0; first < 35; ++first) {
      for (std::int64_t size = 0; first + size <= 35; size += 3) {
        std::vector<float> part(static_cast<std::size_t>(size), -9.0f);
        init_part(p, key, 1, first, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
            << first << " + " << size;
      }
    }
  }
}

TEST(Params, InitialValuesFollowKeyAndLayer) {
  for (const auto kind : {Init::Kind::normal, Init::Kind::truncated_normal}) {
    const ParamSpec p = stacked({kind, 0.5});
    const auto a = whole_layer(p, key_from_seed(0), 0);
    EXPECT_EQ(a, whole_layer(p, key_from_seed(0), 0));
    EXPECT_NE(a, whole_layer(p, key_from_seed(0), 1));
    EXPECT_NE(a, whole_layer(p, key_from_seed(1), 0));
    // A stack of another depth begins with the same layers.
    ParamSpec deeper = p;
    deeper.type.shape[0] = 9;
    EXPECT_EQ(a, whole_layer(deeper, key_from_seed(0), 0));
  }
}

double deviation(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Fan-in is judged without the stack's dimension, and is what a kernel contracts.
TEST(Params, InitialScales) {
  const models::CausalTransformer model({.vocab_size = 300,
                                         .emb_features = 64,
                                         .num_layers = 2,
                                         .num_heads = 4,
                                         .mlp_features = 400,
                                         .tie_embeddings = false,
                                         .attention_bias = true});
  for (const ParamSpec& p : model.params()) {
    const std::vector<float> values = whole_layer(p, key_from_seed(3), p.layers() - 1);
    const std::string& n = p.name;
    if (p.kind == ParamKind::vector) {
      const float want = n.ends_with("scale") ? 1.0f : 0.0f;
      EXPECT_EQ(values, std::vector<float>(values.size(), want)) << n;
      continue;
    }
    const double fan_in = n == "layers/mlp/down_proj/kernel" ? 400 : 64;
    EXPECT_NEAR(deviation(values) * std::sqrt(fan_in), 1.0, 0.05) << n;
    EXPECT_EQ(p.init.kind,
              n == "embed_tokens/embedding" ? Init::Kind::normal : Init::Kind::truncated_normal)
        << n;
  }
}

TEST(Params, AListRefusesTheSameNameTwice) {
  ParamList list;
  list.add("a", {2}, {"embed"}, {}, ParamKind::vector);
  list.begin_stack("layers", 4);
  list.add("a", {2}, {"embed"}, {}, ParamKind::vector);
  EXPECT_THROW(list.add("a", {2}, {"embed"}, {}, ParamKind::vector), Error);
  EXPECT_THROW(list.add("b", {2, 3}, {"embed"}, {}, ParamKind::vector), Error);
  EXPECT_EQ(list.params()[1].type, (Type{DType::f32, {4, 2}}));
  EXPECT_EQ(list.params()[1].axes, (AxisNames{"layers", "embed"}));
}

}  // namespace
}  // namespace dew
