// Directories of models: which are read, and what is said of the others.
#include "dew/hf/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "dew/base/file_test_support.h"
#include "dew/base/json.h"

namespace dew::hf {
namespace {

using testing::HasSubstr;

struct Tensor {
  Dims shape;
  std::vector<float> values;
  StoredType type = StoredType::f32;
};
using Tensors = std::map<std::string, Tensor>;

void write_tensors(const Path& path, const Tensors& tensors) {
  std::vector<StoredTensor> headers;
  for (const auto& [name, t] : tensors)
    headers.push_back({.name = name, .type = t.type, .shape = t.shape});
  SafetensorsWriter writer(path, ErrorCode::internal, std::move(headers));
  for (const auto& [name, t] : tensors) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(t.values));
    writer.write(bytes.first(static_cast<std::size_t>(element_count(t.shape) * byte_size(t.type))));
  }
  writer.finish();
}

// A Llama of one layer whose elements are numbered through.
class HfModel : public testing::Test {
 protected:
  HfModel() {
    float next = 0;
    const auto add = [&](const std::string& name, const Dims& shape) {
      Tensor& t = tensors_[name];
      t.shape = shape;
      for (std::int64_t i = 0; i < element_count(shape); ++i) t.values.push_back(next++);
    };
    add("model.embed_tokens.weight", {5, 6});
    const std::string layer = "model.layers.0.";
    add(layer + "input_layernorm.weight", {6});
    add(layer + "post_attention_layernorm.weight", {6});
    add(layer + "self_attn.q_proj.weight", {8, 6});
    add(layer + "self_attn.k_proj.weight", {4, 6});
    add(layer + "self_attn.v_proj.weight", {4, 6});
    add(layer + "self_attn.o_proj.weight", {6, 8});
    for (const char* name : {"gate_proj", "up_proj"})
      add(layer + "mlp." + name + ".weight", {3, 6});
    add(layer + "mlp.down_proj.weight", {6, 3});
    add("model.norm.weight", {6});
    add("lm_head.weight", {5, 6});
  }

  // Under other names: `prefix` in place of "model.".
  void rename(const std::string& prefix) {
    Tensors renamed;
    for (const auto& [name, t] : tensors_)
      renamed[name.starts_with("model.") ? prefix + name.substr(6) : name] = t;
    tensors_ = renamed;
  }
  Path write() {
    write_text(directory_ / "config.json", config_.dump());
    write_tensors(directory_ / "model.safetensors", tensors_);
    return directory_.path();
  }
  std::string refusal() {
    write();
    return refusal_as_is();
  }
  std::string refusal_as_is() {
    return error_of(ErrorCode::checkpoint, [&] { Model model(directory_.path()); });
  }
  // The files of two halves, and an index.
  void write_shards() {
    write_text(directory_ / "config.json", config_.dump());
    Tensors halves[2];
    Json map;
    std::size_t i = 0;
    for (const auto& [name, t] : tensors_) {
      const std::size_t half = i++ % 2;
      halves[half][name] = t;
      map[name] = half == 0 ? "a.safetensors" : "b.safetensors";
    }
    write_tensors(directory_ / "a.safetensors", halves[0]);
    write_tensors(directory_ / "b.safetensors", halves[1]);
    index_ = {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
    write_index();
  }
  void write_index() { write_text(directory_ / "model.safetensors.index.json", index_.dump()); }

  TemporaryDirectory directory_;
  Tensors tensors_;
  Json index_;
  Json config_ = {{"model_type", "llama"},    {"vocab_size", 5},          {"hidden_size", 6},
                  {"num_hidden_layers", 1},   {"num_attention_heads", 4}, {"head_dim", 2},
                  {"num_key_value_heads", 2}, {"intermediate_size", 3}};
};

std::vector<float> read(const Model& model, const std::string& name, std::size_t size) {
  std::vector<float> values(size);
  model.read(name, values);
  return values;
}

TEST_F(HfModel, ReadsEveryOrder) {
  const Model model(write());
  EXPECT_EQ(model.config().num_kv_heads, 2);
  EXPECT_EQ(read(model, "embed_tokens/embedding", 30),
            tensors_["model.embed_tokens.weight"].values);
  EXPECT_EQ(read(model, "lm_head/kernel", 30), tensors_["lm_head.weight"].values);
  EXPECT_EQ(read(model, "final_norm/scale", 6), tensors_["model.norm.weight"].values);
  const std::vector<float>& k = tensors_["model.layers.0.self_attn.k_proj.weight"].values;
  const std::vector<float> ours = read(model, "layers_0/attention/k_proj/kernel", 24);
  for (std::size_t out = 0; out < 4; ++out) {
    for (std::size_t in = 0; in < 6; ++in) EXPECT_EQ(ours[in * 4 + out], k[out * 6 + in]);
  }
}

TEST_F(HfModel, NamesWithoutPrefixAndShards) {
  rename("");
  write_shards();
  const Model model(directory_.path());
  EXPECT_EQ(read(model, "final_norm/scale", 6), tensors_["norm.weight"].values);
  EXPECT_EQ(model.tensors().front().name, "embed_tokens.weight");
}

TEST_F(HfModel, OtherFloats) {
  for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
    for (auto& [name, t] : tensors_) {
      t.type = type;
      t.values.assign(t.values.size(), 0.0f);  // whose first half is zeros of two bytes
    }
    const Model model(write());
    EXPECT_EQ(read(model, "final_norm/scale", 6), std::vector<float>(6, 0.0f));
  }
}

TEST_F(HfModel, BuffersThatNothingReads) {
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{1}, {1}};
  Model model(write());
  tensors_["model.layers.x.self_attn.rotary_emb.inv_freq"] = {{1}, {1}};
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.x.self_attn.rotary_emb.inv_freq' is not one"));
}

// Whether the config ties the head, and what the file has of it.
TEST_F(HfModel, TiedAndUntiedHeads) {
  Model untied(write());
  config_["tie_word_embeddings"] = true;
  EXPECT_THAT(refusal(), HasSubstr("'lm_head.weight' differs from 'model.embed_tokens.weight'"));
  tensors_["lm_head.weight"].values = tensors_["model.embed_tokens.weight"].values;
  Model copied(write());
  EXPECT_TRUE(copied.config().tie_embeddings);
  tensors_.erase("lm_head.weight");
  Model tied(write());
  config_["tie_word_embeddings"] = false;
  EXPECT_THAT(refusal(), HasSubstr("tensor 'lm_head.weight' is missing"));
}

TEST_F(HfModel, TensorsThatDoNotFit) {
  const Tensors good = tensors_;
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  tensors_["foo"] = {{1}, {1}};
  EXPECT_THAT(refusal(), HasSubstr("tensor 'foo' is not one of a Llama model"));
  tensors_ = good;
  tensors_["model.layers.0.self_attn.q_proj.bias"] = {{8}, std::vector<float>(8)};
  EXPECT_THAT(refusal(), HasSubstr("q_proj.bias' is not one of a Llama"));
  tensors_ = good;
  tensors_["model.layers.1.input_layernorm.weight"] = {{6}, std::vector<float>(6)};
  EXPECT_THAT(refusal(), HasSubstr("'model.layers.1.input_layernorm.weight' is not one"));
  tensors_ = good;
  tensors_.erase(q);
  EXPECT_THAT(refusal(), HasSubstr("tensor '" + q + "' is missing"));
  tensors_ = good;
  tensors_[q].shape = {6, 8};
  EXPECT_THAT(refusal(), HasSubstr(q + "' is [6,8], but by config.json it is [8,6]"));
  tensors_ = good;
  tensors_["model.norm.weight"] = {{6}, std::vector<float>(12), StoredType::f64};
  EXPECT_THAT(refusal(), HasSubstr("'model.norm.weight' is F64: only F32, F16 and BF16"));
  tensors_["model.norm.weight"] = {{6}, std::vector<float>(12), StoredType::i32};
  EXPECT_THAT(refusal(), HasSubstr("is I32"));
}

TEST_F(HfModel, FilesThatDoNotFit) {
  write();
  std::filesystem::remove(directory_ / "model.safetensors");
  EXPECT_THAT(refusal_as_is(), HasSubstr("has no weights: neither model.safetensors nor"));
  write_text(directory_ / "model.safetensors", "short");
  EXPECT_THAT(refusal_as_is(), HasSubstr("model.safetensors"));
  write_shards();
  EXPECT_THAT(refusal_as_is(), HasSubstr("has both"));
  std::filesystem::remove(directory_ / "model.safetensors");
  Model model(directory_.path());
  const Json good = index_;
  index_["weight_map"]["norm2"] = "a.safetensors";
  write_index();
  EXPECT_THAT(refusal_as_is(), HasSubstr("tensor 'norm2' is not in 'a.safetensors'"));
  index_ = good;
  index_["weight_map"].erase("lm_head.weight");
  write_index();
  EXPECT_THAT(refusal_as_is(), HasSubstr("tensor 'lm_head.weight' is not in model.safetensors."));
  index_ = good;
  index_["weight_map"]["lm_head.weight"] = "b.safetensors";
  write_index();
  EXPECT_THAT(refusal_as_is(), HasSubstr("tensor 'lm_head.weight' is not in 'b.safetensors'"));
  for (const char* name : {"../a.safetensors", "/etc/passwd", "", "sub/a.safetensors"}) {
    index_["weight_map"]["lm_head.weight"] = name;
    write_index();
    EXPECT_THAT(refusal_as_is(), HasSubstr("is no name of a file beside it")) << name;
  }
  index_["weight_map"]["lm_head.weight"] = 3;
  write_index();
  EXPECT_THAT(refusal_as_is(), HasSubstr("'lm_head.weight' must be a string"));
  index_ = Json::object();
  write_index();
  EXPECT_THAT(refusal_as_is(), HasSubstr("'weight_map' is missing"));
  index_ = good;
  write_index();
  std::filesystem::copy_file(directory_ / "a.safetensors", directory_ / "b.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_as_is(), HasSubstr("already"));
  std::filesystem::remove(directory_ / "b.safetensors");
  EXPECT_THAT(refusal_as_is(), HasSubstr("b.safetensors"));
}

}  // namespace
}  // namespace dew::hf
