// config.json of every family: what it becomes, and what is refused by name.
#include "dew/hf/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"

namespace dew::hf {
namespace {

using models::TransformerConfig;
using testing::HasSubstr;

TransformerConfig parse(const Json& json) {
  ConfigFile file(json.dump(), "config.json");
  const Family& family = find_family(file);
  return read_config(family, file);
}

std::string refusal(const Json& json) {
  return error_of(ErrorCode::checkpoint, [&] { parse(json); });
}

// The least that a config of a family has.
Json least(const std::string& type) {
  if (type == "gpt2") {
    return {{"model_type", type}, {"vocab_size", 11}, {"n_embd", 12},
            {"n_layer", 4},       {"n_head", 3},      {"n_positions", 9}};
  }
  return {{"model_type", type},     {"vocab_size", 11},         {"hidden_size", 12},
          {"num_hidden_layers", 4}, {"num_attention_heads", 2}, {"num_key_value_heads", 1},
          {"intermediate_size", 7}};
}

Json with(const std::string& type, const Json& changes) {
  Json json = least(type);
  json.update(changes);
  return json;
}

TEST(Family, DefaultsOfEachConfigClass) {
  const auto head_dim = [](const char* type) { return parse(least(type)).head_dim; };
  EXPECT_EQ(head_dim("llama"), 6);
  EXPECT_EQ(head_dim("qwen3"), 128);
  EXPECT_EQ(head_dim("gemma2"), 256);
  EXPECT_EQ(parse(least("gpt2")).mlp_features, 48);
  EXPECT_EQ(parse(least("mistral")).window, 4096);
  EXPECT_EQ(parse(least("qwen2")).window, 0);
  EXPECT_EQ(parse(least("gemma2")).window_pattern, (std::vector<std::int64_t>{4096, 0}));
  EXPECT_EQ(parse(least("gemma2")).attention_softcap, 50);
  EXPECT_EQ(parse(least("gemma2")).logit_softcap, 30);
  EXPECT_EQ(parse(least("gemma2")).attention_scale, 1.0 / 16);
  for (const char* tied : {"gpt2", "gemma2"}) EXPECT_TRUE(parse(least(tied)).tie_embeddings);
  for (const char* untied : {"llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2"})
    EXPECT_FALSE(parse(least(untied)).tie_embeddings);
}

TEST(Family, OptionsAreRead) {
  EXPECT_TRUE(parse(with("llama", {{"attention_bias", true}})).attention_bias);
  EXPECT_TRUE(parse(with("llama", {{"mlp_bias", true}})).mlp_bias);
  EXPECT_TRUE(parse(least("qwen2")).qkv_bias);
  EXPECT_EQ(parse(with("llama", {{"head_dim", 10}})).head_dim, 10);
  EXPECT_EQ(parse(with("llama", {{"rms_norm_eps", 0.25}})).norm_eps, 0.25);
  EXPECT_EQ(parse(with("gpt2", {{"n_inner", 5}})).mlp_features, 5);
  EXPECT_EQ(parse(with("gemma2", {{"attn_logit_softcapping", nullptr}})).attention_softcap, 0);
  EXPECT_EQ(parse(with("mistral", {{"sliding_window", nullptr}})).window, 0);
  EXPECT_EQ(parse(with("phi3", {{"sliding_window", 5}})).window, 5);
  EXPECT_EQ(parse(least("olmo2")).qk_norm_over, "all");
}

TEST(Family, WindowsOfLayers) {
  const auto pattern = [](const Json& json) { return parse(json).window_pattern; };
  const Json qwen = with("qwen2", {{"use_sliding_window", true}, {"sliding_window", 5}});
  Json late = qwen;
  late["max_window_layers"] = 1;
  EXPECT_EQ(pattern(late), (std::vector<std::int64_t>{0, 5, 5, 5}));
  late["max_window_layers"] = 0;
  EXPECT_EQ(parse(late).window, 5);
  late["max_window_layers"] = 4;
  EXPECT_EQ(parse(late).window, 0);
  Json typed = qwen;
  typed["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                          "sliding_attention"};
  EXPECT_EQ(pattern(typed), (std::vector<std::int64_t>{0, 5}));
  typed["use_sliding_window"] = false;
  EXPECT_THAT(refusal(typed), HasSubstr("sliding_window is not given"));
  typed["layer_types"] = {"full_attention"};
  EXPECT_THAT(refusal(typed), HasSubstr("layer_types has 1 entries"));
  typed["layer_types"] = {"full_attention", "full_attention", "chunked_attention",
                          "full_attention"};
  EXPECT_THAT(refusal(typed), HasSubstr("'chunked_attention'"));
}

TEST(Family, BothSpellingsOfRope) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 24}};
  for (const char* key : {"rope_type", "type"}) {
    Json scaling = llama3;
    scaling[key] = "llama3";
    const TransformerConfig c =
        parse(with("llama", {{"rope_theta", 500.0}, {"rope_scaling", scaling}}));
    EXPECT_EQ(c.rope_theta, 500);
    EXPECT_EQ(c.rope_scaling, (models::RopeScaling{"llama3", 8, 1, 4, 24}));
  }
  Json parameters = llama3;
  parameters.update({{"rope_type", "llama3"}, {"rope_theta", 500.0}});
  EXPECT_EQ(parse(with("llama", {{"rope_parameters", parameters}})).rope_theta, 500);
  EXPECT_EQ(parse(with("llama", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}}))
                .rope_scaling.factor,
            2);
  EXPECT_EQ(parse(with("llama", {{"rope_scaling", nullptr}})).rope_scaling.type, "none");
}

struct Refused {
  const char* type;
  Json changes;
  const char* text;
};

TEST(Family, Refusals) {
  const std::vector<Refused> cases = {
      {"llama", {{"model_type", "mixtral"}}, "'mixtral': mixtures of experts are not built yet"},
      {"llama", {{"model_type", "qwen3_moe"}}, "'qwen3_moe': mixtures"},
      {"llama", {{"model_type", "bert"}}, "'bert' is not known; known are gpt2, llama"},
      {"llama", {{"model_type", nullptr}}, "model_type is missing"},
      {"llama", {{"model_type", 3}}, "model_type = 3, but it must be a string"},
      {"llama",
       {{"architectures", {"LlamaForTokenClassification"}}},
       "'LlamaForTokenClassification' is not supported; of Llama models it is LlamaForCausalLM"},
      {"llama", {{"hidden_act", "gelu"}}, "hidden_act = 'gelu' is not supported; it may be silu"},
      {"gpt2", {{"activation_function", "relu"}}, "activation_function = 'relu'"},
      {"gemma2", {{"hidden_activation", "silu"}}, "hidden_activation = 'silu'"},
      {"llama", {{"num_hidden_layers", nullptr}}, "num_hidden_layers is missing"},
      {"llama", {{"num_hidden_layers", 0}}, "num_hidden_layers = 0, but it must be an integer"},
      {"mistral",
       {{"num_hidden_layers", 2147483647}},
       "= 2147483647, but it must be at most 65536"},
      {"gpt2", {{"n_layer", 65537}}, "n_layer = 65537, but it must be at most 65536"},
      {"llama", {{"num_hidden_layers", 2.5}}, "num_hidden_layers = 2.5"},
      {"llama", {{"num_hidden_layers", "2"}}, "num_hidden_layers = \"2\""},
      {"llama", {{"hidden_size", 4294967296}}, "hidden_size = 4294967296"},
      {"llama", {{"rms_norm_eps", 0}}, "rms_norm_eps = 0, but it must be a number above 0"},
      {"llama", {{"rms_norm_eps", 1e-60}}, "rms_norm_eps = 1e-60, but it must be within the range"},
      {"llama", {{"rope_theta", 1e308}}, "rope_theta = 1e+308, but it must be within the range"},
      {"llama", {{"rope_theta", 0}}, "rope_theta = 0, but it must be a number above 0"},
      {"llama", {{"rope_theta", -1e4}}, "rope_theta = -10000.0, but it must be a number above 0"},
      {"llama",
       {{"rope_parameters", {{"rope_theta", 1e40}}}},
       "rope_parameters.rope_theta = 1e+40"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 1e300}}}},
       "rope_scaling.factor = 1e+300, but it must be within the range of f32"},
      {"gemma2", {{"query_pre_attn_scalar", 1e60}}, "query_pre_attn_scalar = 1e+60"},
      {"gemma2", {{"final_logit_softcapping", 1e-60}}, "final_logit_softcapping = 1e-60"},
      {"llama", {{"eos_token_id", -1}}, "eos_token_id = -1, but it must be an id from 0 to"},
      {"llama", {{"eos_token_id", {2, 2147483648}}}, "eos_token_id = [2,2147483648]"},
      {"gpt2", {{"bos_token_id", "<s>"}}, "bos_token_id = \"<s>\""},
      {"llama", {{"tie_word_embeddings", "no"}}, "tie_word_embeddings = \"no\""},
      {"llama", {{"num_key_value_heads", 5}}, "num_kv_heads = 5 does not divide"},
      {"llama",
       {{"quantization_config", {{"bits", 4}}}},
       "the key 'quantization_config' = {\"bits\":4} is not known for Llama"},
      {"llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}, "rope_type = 'yarn'"},
      {"llama", {{"rope_scaling", {{"rope_type", "linear"}}}}, "rope_scaling.factor is missing"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"beta", 1}}}},
       "'rope_scaling.beta' = 1 is not known"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "default"}}}, {"rope_parameters", {{"rope_theta", 5}}}},
       "both given"},
      {"llama",
       {{"rope_theta", 4}, {"rope_parameters", {{"rope_theta", 5}}}},
       "rope_theta = 4, but rope_parameters.rope_theta = 5"},
      {"phi3", {{"partial_rotary_factor", 0.75}}, "partial_rotary_factor = 0.75"},
      {"phi3", {{"rope_scaling", {{"type", "longrope"}}}}, "'longrope' is not supported"},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx"},
      {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention = true is not supported"},
      {"mistral", {{"attention_bias", true}}, "the key 'attention_bias' = true is not known"},
      {"llama", {{"rope_interleaved", true}}, "rope_interleaved = true is not supported"},
      {"llama", {{"is_llama_config", false}}, "is_llama_config = false is not supported"},
      {"qwen2", {{"use_mrope", true}}, "use_mrope = true is not supported"},
  };
  for (const Refused& c : cases) {
    EXPECT_THAT(refusal(with(c.type, c.changes)), HasSubstr(c.text)) << c.changes;
  }
}

TEST(Family, BothGelusOfGpt2) {
  EXPECT_EQ(parse(least("gpt2")).mlp, "gelu");
  for (const auto& [theirs, ours] :
       {std::pair{"gelu_new", "gelu"}, {"gelu_pytorch_tanh", "gelu"}, {"gelu", "gelu_erf"}})
    EXPECT_EQ(parse(with("gpt2", {{"activation_function", theirs}})).mlp, ours);
}

TEST(Family, NotAConfig) {
  const auto text_refusal = [](const std::string& text) {
    return error_of(ErrorCode::checkpoint, [&] { ConfigFile(text, "config.json"); });
  };
  for (const char* text : {"", "{", "[]", "3", "{\"a\": 1, \"a\": 2}", "{\"a\": \xff}"})
    EXPECT_THAT(text_refusal(text), HasSubstr("config.json")) << text;
}

// Every family's table names every parameter of its models exactly once, with each option.
TEST(Family, TablesAreComplete) {
  for (const Family& family : families()) {
    for (const Json& changes : {Json::object(), Json{{"tie_word_embeddings", true}},
                                Json{{"tie_word_embeddings", false}}}) {
      const TransformerConfig c = parse(with(std::string(family.model_type), changes));
      EXPECT_GT(map_tensors(family.rows(c), "", models::CausalTransformer(c)).size(), 10u);
    }
  }
  for (const char* type : {"llama", "qwen3", "gemma2", "olmo2"}) {
    const TransformerConfig c = parse(with(type, {{"attention_bias", true}}));
    EXPECT_TRUE(c.attention_bias);
    const auto family = std::ranges::find(families(), type, &Family::model_type);
    EXPECT_GT(map_tensors(family->rows(c), "", models::CausalTransformer(c)).size(), 10u);
  }
}

}  // namespace
}  // namespace dew::hf
