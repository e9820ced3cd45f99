#include "dew/cli/model.h"

#include <algorithm>
#include <map>

#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"
#include "dew/cli/cli.h"
#include "dew/cli/model_files.h"
#include "dew/hf/end_ids.h"
#include "dew/hf/export.h"
#include "dew/train/console.h"
#include "dew/train/registers.h"

namespace dew::cli {
namespace {

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// A model that no run has made comes without data: rows as long as it takes, within reason.
TrainConfig around(models::TransformerConfig model) {
  constexpr std::int64_t kLongest = 1024, kRows = 8;
  TrainConfig config;
  config.model = std::move(model);
  config.data.seq_len =
      config.model.max_seq_len > 0 ? std::min(config.model.max_seq_len, kLongest) : kLongest;
  config.data.stride = config.data.seq_len;
  config.data.global_batch = kRows;
  return config;
}

// What is wrong with a checkpoint's config is wrong with the checkpoint.
TrainConfig config_of(const CheckpointReader& reader) {
  const std::string where = reader.path().string();
  if (reader.info().config.empty()) return around(parse_model(reader.info().model, where));
  try {
    return parse_config(reader.info().config, where);
  } catch (const Error& error) {
    fail(ErrorCode::checkpoint, error.what(), error.hint());
  }
}

// Of the model that the checkpoint's was made from, if it is one that was published.
std::vector<std::int64_t> end_ids_of_origin(const CheckpointReader& reader) {
  if (!reader.has_file(kOriginFile)) return {};
  const std::string config = reader.read_extra_file(kOriginFile);
  const auto where = [&](const char* name) { return (reader.path() / name).string(); };
  if (!reader.has_file(kGenerationFile))
    return hf::end_ids({config, where(kOriginFile)}, std::nullopt);
  const std::string generation = reader.read_extra_file(kGenerationFile);
  return hf::end_ids({config, where(kOriginFile)},
                     hf::ConfigText{generation, where(kGenerationFile)});
}

}  // namespace

TokenizerState tokenizer_of(const hf::Model& model) {
  TokenizerState state;
  for (const char* name : {kTokenizerFile, "vocab.json", "tokenizer.model"}) {
    if (file_kind(model.path() / name, ErrorCode::checkpoint) != FileKind::regular) continue;
    state.name = name;
    break;
  }
  for (const std::int64_t id : model.end_ids()) {
    if (!state.eos_id && id < model.config().vocab_size) state.eos_id = id;
  }
  return state;
}

Model::Model(const Path& path) {
  if (hf::is_model_directory(path)) {
    hf_.emplace(path);
    config_ = around(hf_->config());
    return;
  }
  Console console(stderr, stderr_options({}));
  checkpoint_.emplace(
      resolve_checkpoint(path, [&](const std::string& line) { console.warning(line); }));
  config_ = config_of(*checkpoint_);
}

std::vector<std::int64_t> Model::end_ids() const {
  if (hf_) return hf_->end_ids();
  std::vector<std::int64_t> ids;
  if (const auto own = tokenizer().eos_id) ids.push_back(*own);
  for (const std::int64_t id : end_ids_of_origin(*checkpoint_)) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

std::optional<std::string> Model::carried_file(const std::string& name) const {
  if (checkpoint_) {
    return checkpoint_->has_file(name) ? std::optional(checkpoint_->read_extra_file(name))
                                       : std::nullopt;
  }
  const Path path = hf_->path() / name;
  if (file_kind(path, ErrorCode::checkpoint) != FileKind::regular) return std::nullopt;
  return read_file(path, ErrorCode::checkpoint, kMaxTokenizerBytes);
}

std::optional<std::string> Model::origin_file(const std::string& name) const {
  return hf_ && name == kOriginFile ? std::optional(hf_->config_text()) : carried_file(name);
}

void Model::require_model_of(const TrainConfig& config, const std::string& path) const {
  models::TransformerConfig wanted = models::resolved(config.model), own = config_.model;
  if (own.positions == "rope") own.max_seq_len = wanted.max_seq_len;
  if (hf::same_function(own, wanted)) return;
  TrainConfig as_own = config, as_wanted = config;
  as_own.model = own;
  as_wanted.model = wanted;
  std::vector<std::string> keys, settings;
  for (const ConfigChange& change : config_changes(as_own, as_wanted)) {
    keys.push_back(format("{} is {}, here {}", change.key, change.before, change.now));
    settings.push_back(format("'{}={}'", change.key, change.before));  // as a shell takes it
  }
  fail(ErrorCode::usage,
       format("run.init_from '{}' is another model: {}", path, fmt::join(keys, "; ")),
       format("{}", fmt::join(settings, " ")));
}

void Model::load(Stepper& stepper) const {
  if (checkpoint_) return stepper.restore_parameters(*checkpoint_);
  std::vector<float> whole;
  for (const Stepper::Array& array : stepper.parameters()) {
    whole.resize(static_cast<std::size_t>(element_count(array.shape)));
    hf_->read(array.name, whole);
    array.assign(std::as_bytes(std::span(whole)));
  }
}

void Model::read_parameter(const std::string& name, std::span<float> out) const {
  if (hf_) return hf_->read(name, out);
  const TensorRecord* tensor = checkpoint_->find(registers::parameter(name));
  if (tensor == nullptr || tensor->dtype != DType::f32 ||
      element_count(tensor->shape) != std::ssize(out)) {
    fail(ErrorCode::checkpoint, format("'{}' has no parameter '{}' of {} elements",
                                       checkpoint_->path().string(), name, out.size()));
  }
  checkpoint_->read(*tensor, std::as_writable_bytes(out));
}

void Model::visit_own(const std::vector<Stepper::Array>& arrays,
                      const std::function<void(const OwnTensor&)>& visit) const {
  std::map<std::string, const Stepper::Array*> by_name;
  for (const Stepper::Array& a : arrays) by_name[a.name] = &a;
  std::vector<std::byte> ours;
  const auto find = [&](const std::string& name) {
    ours = by_name.at(name)->whole();
    return floats(ours);
  };
  if (checkpoint_) {
    for (const Stepper::Array& a : arrays) visit({a.name, a.shape, find(a.name)});
    return;
  }
  std::vector<float> theirs;
  for (const hf::TheirTensor& tensor : hf_->tensors()) {
    theirs.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    hf::make_theirs(tensor, find, theirs);
    visit({tensor.name, tensor.shape, theirs});
  }
}

}  // namespace dew::cli
