#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "dew/base/error.h"
#include "dew/nn/transformer.h"

namespace dew::models {
namespace {

TransformerConfig small() {
  return {.vocab_size = 256, .emb_features = 64, .num_layers = 2, .num_heads = 4};
}

std::string refusal(const std::function<void(TransformerConfig&)>& change) {
  TransformerConfig config = small();
  change(config);
  try {
    validate(config);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(TransformerConfig, DefaultsAreFilledIn) {
  const TransformerConfig c = resolved(small());
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.mlp_features, 256);
  EXPECT_EQ(resolved(c), c);
}

TEST(TransformerConfig, RefusalsNameValuesAndWhatWouldWork) {
  using testing::HasSubstr;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal([](auto& c) { c.vocab_size = 0; }),
              HasSubstr("model.vocab_size = 0, but it must be from 1"));
  EXPECT_THAT(refusal([](auto& c) { c.num_layers = -1; }), HasSubstr("model.num_layers = -1"));
  EXPECT_THAT(refusal([](auto& c) { c.num_heads = 5; }), HasSubstr("1, 2, 4, 8, 16, 32, 64"));
  EXPECT_THAT(refusal([](auto& c) { c.num_kv_heads = 3; }), HasSubstr("it must be one of 1, 2, 4"));
  EXPECT_THAT(refusal([](auto& c) { c.head_dim = 5; }), HasSubstr("head_dim = 5 is odd"));
  EXPECT_THAT(refusal([](auto& c) { c.mlp = "relu"; }), HasSubstr("one of swiglu, geglu, gelu"));
  EXPECT_THAT(refusal([](auto& c) { c.norm_placement = "none"; }),
              HasSubstr("one of before, after, both"));
  EXPECT_THAT(refusal([](auto& c) { c.qk_norm_over = "token"; }), HasSubstr("one of head, all"));
  EXPECT_THAT(refusal([](auto& c) { c.qk_norm = false, c.qk_norm_over = "all"; }),
              HasSubstr("no such norm"));
  EXPECT_THAT(refusal([](auto& c) { c.attention_bias = c.qkv_bias = true; }),
              HasSubstr("both given"));
  EXPECT_THAT(refusal([](auto& c) { c.attention_scale = -1; }), HasSubstr("attention_scale = -1"));
  EXPECT_THAT(refusal([](auto& c) { c.norm = "batch"; }),
              HasSubstr("one of rms, rms_plus_one, layer"));
  EXPECT_THAT(refusal([](auto& c) { c.positions = "alibi"; }), HasSubstr("one of rope, learned"));
  EXPECT_THAT(refusal([](auto& c) { c.remat = "all"; }), HasSubstr("one of none, save_list, full"));
  EXPECT_THAT(refusal([](auto& c) { c.positions = "learned"; }), HasSubstr("needs max_seq_len"));
  EXPECT_THAT(refusal([](auto& c) { c.dropout = 1; }),
              HasSubstr("model.dropout = 1, but it must be 0 or more and below 1"));
  EXPECT_THAT(refusal([&](auto& c) { c.dropout = nan; }), HasSubstr("model.dropout = nan"));
  EXPECT_THAT(refusal([](auto& c) { c.norm_eps = 0; }), HasSubstr("above 0 and finite"));
  EXPECT_THAT(refusal([](auto& c) { c.logit_softcap = -1; }),
              HasSubstr("model.logit_softcap = -1"));
  EXPECT_THAT(refusal([](auto& c) { c.window = -1; }), HasSubstr("model.window = -1"));
  EXPECT_THAT(refusal([](auto& c) {
                c.window_pattern = {4, 0, 4};
              }),
              HasSubstr("has 3 windows, but num_layers = 2"));
  EXPECT_THAT(refusal([](auto& c) { c.window = 4, c.window_pattern = {8}; }),
              HasSubstr("both given"));
  EXPECT_THAT(refusal([](auto& c) { c.rope_scaling.type = "yarn"; }),
              HasSubstr("one of none, linear, llama3"));
  EXPECT_THAT(refusal([](auto& c) { c.rope_scaling = {.type = "linear", .factor = 0}; }),
              HasSubstr("factor = 0"));
  EXPECT_THAT(refusal([](auto& c) { c.rope_theta = 1e-30; }),
              HasSubstr("model.rope_theta = 1e-30, but it must be at least 1"));
  EXPECT_THAT(refusal([](auto& c) { c.rope_scaling = {.type = "linear", .factor = 0.5}; }),
              HasSubstr("model.rope_scaling.factor = 0.5, but it must be at least 1"));
  EXPECT_THAT(refusal([](auto& c) { c.rope_scaling = {.type = "llama3", .factor = 8}; }),
              HasSubstr("original_max_seq_len = 0"));
  EXPECT_THAT(refusal([](auto& c) { c.vocab_size = 2000000000, c.emb_features = 2000000000; }),
              HasSubstr("at most 1e15"));
  EXPECT_EQ(refusal([](auto& c) {
              c.num_kv_heads = 2, c.head_dim = 30, c.window_pattern = {4, 0};
            }),
            "accepted");
}

}  // namespace
}  // namespace dew::models
