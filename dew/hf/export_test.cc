#include "dew/hf/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"
#include "dew/hf/model.h"

namespace dew::hf {
namespace {

using models::TransformerConfig;
using testing::HasSubstr;

TransformerConfig tiny() {
  return {.vocab_size = 11,
          .emb_features = 12,
          .num_layers = 3,
          .num_heads = 2,
          .mlp_features = 10,
          .max_seq_len = 8};
}

Json target_of(const TransformerConfig& config, const ExportOptions& options = {}) {
  return parse_json(find_target(config, "", options).config, "config.json", ErrorCode::internal);
}

TEST(Export, ConfigOfAFamily) {
  const Json json = target_of(tiny(), {.eos_id = 3});
  EXPECT_EQ(json["model_type"], "qwen3");
  EXPECT_EQ(json["architectures"], (Json{"Qwen3ForCausalLM"}));
  EXPECT_EQ(json["head_dim"], 6);
  EXPECT_EQ(json["eos_token_id"], 3);
  EXPECT_EQ(json["torch_dtype"], "float32");
  EXPECT_EQ(target_of(tiny(), {.dtype = DType::bf16})["torch_dtype"], "bfloat16");
}

TEST(Export, WhatNoFamilyHas) {
  const auto refused = [](auto change) {
    TransformerConfig config = tiny();
    change(config);
    EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { find_target(config, "", {}); }),
                HasSubstr("no Hugging Face family has all options"));
  };
  refused([](auto& c) { c.norm = "layer"; });
  refused([](auto& c) { c.mlp = "geglu"; });
  refused([](auto& c) { c.logit_softcap = 3; });
  refused([](auto& c) { c.window_pattern = {2, 3}; });
  refused([](auto& c) { c.max_seq_len = 0; });
}

TEST(Export, OriginIsKeptButForTheType) {
  const TransformerConfig config = tiny();
  std::string origin = find_target(config, "", {}).config;
  origin.replace(origin.find("\"max_window_layers\": 0"), 22, "\"max_window_layers\": 9");
  const Target target = find_target(config, origin, {.dtype = DType::bf16});
  const Json json = parse_json(target.config, "config.json", ErrorCode::internal);
  EXPECT_EQ(json["max_window_layers"], 9);
  EXPECT_EQ(json["torch_dtype"], "bfloat16");
  TransformerConfig other = config;
  other.num_layers = 4;
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { find_target(other, origin, {}); }),
              HasSubstr("it describes another model"));
  other = config;
  other.dropout = 0.5;  // of training
  EXPECT_EQ(find_target(other, origin, {}).family->name, "Qwen3");
}

// Of a run that went on from a published model.
TEST(Export, OriginOfATrainedModel) {
  const TransformerConfig config = tiny();
  Json json = parse_json(find_target(config, "", {.eos_id = 4}).config, "c", ErrorCode::internal);
  json["architectures"] = {"Qwen3Model"};
  const std::string origin = json.dump();
  const auto exported = [&](std::int64_t positions, const ExportOptions& options) {
    TransformerConfig trained = config;
    trained.max_seq_len = positions;
    return parse_json(find_target(trained, origin, options).config, "c", ErrorCode::internal);
  };
  EXPECT_EQ(exported(8, {.eos_id = 4}), json);
  EXPECT_EQ(exported(3, {}), json);  // shorter rows take no position away
  EXPECT_EQ(exported(9, {})["max_position_embeddings"], 9);
  EXPECT_EQ(exported(8, {.eos_id = 7})["eos_token_id"], (Json{7, 4}));
}

TEST(Export, TheExactGelu) {
  TransformerConfig config = tiny();
  config.positions = "learned";
  config.norm = "layer";
  config.mlp = "gelu_erf";
  config.qk_norm = false;
  config.attention_bias = config.mlp_bias = true;
  EXPECT_EQ(target_of(config)["activation_function"], "gelu");
  config.mlp = "gelu";
  EXPECT_EQ(target_of(config)["activation_function"], "gelu_new");
}

// Parameters whose elements are numbered through.
class Numbers {
 public:
  explicit Numbers(const TransformerConfig& config) {
    const models::CausalTransformer model(config);
    float next = 0;
    for (const ParamSpec& param : model.params()) {
      for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
        for (std::int64_t i = 0; i < param.layer_elements(); ++i)
          values_[param.layer_name(slot)].push_back(next++);
      }
    }
  }
  const std::map<std::string, std::vector<float>>& values() const { return values_; }
  FindOurs find() const {
    return [this](const std::string& name) { return std::span<const float>(values_.at(name)); };
  }

 private:
  std::map<std::string, std::vector<float>> values_;
};

void expect_same(const Path& directory, const Numbers& numbers) {
  const Model model(directory);
  for (const auto& [name, values] : numbers.values()) {
    std::vector<float> found(values.size());
    model.read(name, found);
    EXPECT_EQ(found, values) << name;
  }
}

TEST(Export, OneFileOrShardsWithAnIndex) {
  const TransformerConfig config = tiny();
  const Numbers numbers(config);
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1500}, std::int64_t{1} << 30}) {
    const TemporaryDirectory directory;
    const ExportOptions options = {.shard_bytes = bytes};
    write_model(directory.path(), find_target(config, "", options), config, numbers.find(),
                options);
    expect_same(directory.path(), numbers);
    const auto names = list_directory(directory.path(), ErrorCode::internal);
    if (bytes == std::int64_t{1} << 30) {
      EXPECT_EQ(names, (std::vector<std::string>{"config.json", "model.safetensors"}));
    } else {
      EXPECT_GT(names.size(), 4u);
      EXPECT_EQ(names.back(), "model.safetensors.index.json");
    }
    for (const std::string& name : names) {
      if (!name.ends_with(".safetensors")) continue;
      const SafetensorsFile file(directory.path() / name, ErrorCode::internal);
      EXPECT_EQ(file.metadata().at("format"), "pt");
    }
  }
}

}  // namespace
}  // namespace dew::hf
