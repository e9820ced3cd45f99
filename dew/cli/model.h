// MODEL on the command line: a run directory, a checkpoint directory inside it, or a Hugging Face
// model directory.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/checkpoint/reader.h"
#include "dew/hf/model.h"
#include "dew/train/config.h"
#include "dew/train/stepper.h"

namespace dew::cli {

// How --help describes it.
inline constexpr const char* kModelHelp =
    "a run directory, a checkpoint directory inside it, or a Hugging Face model directory";

// The tokenizer that a Hugging Face directory carries, and the end token of its config.
TokenizerState tokenizer_of(const hf::Model& model);

class Model {
 public:
  // Opens it: config and headers. Throws ErrorCode::checkpoint, naming what was found instead.
  // Warns on standard error of each newer checkpoint of a run that is passed over.
  explicit Model(const Path& path);

  const models::TransformerConfig& config() const { return config_.model; }
  // That of the run. Around a model that no run has made, defaults: rows of max_seq_len tokens, at
  // most 1024, 8 at a time.
  const TrainConfig& run_config() const { return config_; }

  const CheckpointReader* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  const hf::Model* hugging_face() const { return hf_ ? &*hf_ : nullptr; }
  TokenizerState tokenizer() const {
    return checkpoint_ ? checkpoint_->info().tokenizer : tokenizer_of(*hf_);
  }
  // Ids that end a text, the first of them also what begins one: the tokenizer's end token, and
  // those of a Hugging Face model that it is or was made from. As large as they may be.
  std::vector<std::int64_t> end_ids() const;
  // One of the files that it carries; none if there is none of that name.
  std::optional<std::string> carried_file(const std::string& name) const;

  // Of the published model that it is or was made from: kOriginFile for its config.json, or
  // kGenerationFile. None if there is no such model, or it has no such file.
  std::optional<std::string> origin_file(const std::string& name) const;

  // Throws ErrorCode::usage, with the keys that differ, if a run of that config would not be of
  // this model. Dropout, remat and, with rope, max_seq_len may differ.
  void require_model_of(const TrainConfig& config, const std::string& path) const;

  // Its parameters into a stepper of this model. The rest of the state stays as it is.
  void load(Stepper& stepper) const;

  // One of its parameters as f32, by its outside name "layers_3/mlp/up_proj/kernel".
  void read_parameter(const std::string& name, std::span<float> out) const;

  // Arrays of a stepper, one for each parameter, as the model's own format has them: under the
  // names and in the shapes of a Hugging Face model if it is one.
  struct OwnTensor {
    std::string name;
    Dims shape;
    std::span<const float> elements;  // valid until the next one
  };
  void visit_own(const std::vector<Stepper::Array>& arrays,
                 const std::function<void(const OwnTensor&)>& visit) const;

 private:
  std::optional<CheckpointReader> checkpoint_;
  std::optional<hf::Model> hf_;
  TrainConfig config_;
};

}  // namespace dew::cli
