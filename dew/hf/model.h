// A Hugging Face model directory: config.json and safetensors files, read as a model of ours.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/file.h"
#include "dew/hf/family.h"
#include "dew/hf/tensor_files.h"
#include "dew/hf/tensor_map.h"

namespace dew::hf {

// Has it a config.json? Nothing more is looked at.
bool is_model_directory(const Path& directory);

// Opening reads the config and the headers of all files, and compares them: each tensor of the
// family's table is there with its shape as f32, f16 or bf16, and no other is. All faults are
// ErrorCode::checkpoint and name the file and the key or tensor.
class Model {
 public:
  explicit Model(const Path& directory);

  const Path& path() const { return path_; }
  const Family& family() const { return *family_; }
  const models::TransformerConfig& config() const { return config_; }
  // Their tensors, with the names that they have in the files.
  const std::vector<TheirTensor>& tensors() const { return tensors_; }
  const std::string& config_text() const { return config_text_; }  // config.json as it is
  // Ids that end a text (hf/end_ids.h); generation_config.json is read for it.
  std::vector<std::int64_t> end_ids() const;

  // A parameter of ours as f32, by its outside name "layers_3/mlp/up_proj/kernel".
  void read(std::string_view ours, std::span<float> out) const;

 private:
  void check_tensors();
  void check_tensor(const TheirTensor& tensor) const;
  bool is_dead(std::string_view name) const;
  void check_tied_head(const std::string& head) const;

  Path path_;
  std::string config_text_;
  const Family* family_ = nullptr;
  models::TransformerConfig config_;
  TensorFiles files_;
  std::string prefix_;  // base prefix, or empty where the files have names without it
  std::vector<TheirTensor> tensors_;
  // Where each of ours is: numbers of a tensor and of its part.
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> places_;
};

}  // namespace dew::hf
