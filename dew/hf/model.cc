#include "dew/hf/model.h"

#include <algorithm>
#include <set>

#include "dew/base/format.h"
#include "dew/checkpoint/box.h"
#include "dew/hf/end_ids.h"

namespace dew::hf {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr const char* kConfig = "config.json";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kGeneration = "generation_config.json";
constexpr std::int64_t kMaxConfig = std::int64_t{1} << 22;

// Is it the pattern with some number for {}?
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t at = pattern.find("{}");
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + 2);
  if (!name.starts_with(before) || !name.ends_with(after)) return false;
  if (name.size() <= before.size() + after.size()) return false;
  const std::string_view number =
      name.substr(before.size(), name.size() - before.size() - after.size());
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool is_model_directory(const Path& directory) {
  return file_kind(directory / kConfig, kCode) != FileKind::missing;
}

Model::Model(const Path& directory)
    : path_(directory),
      config_text_(read_file(directory / kConfig, kCode, kMaxConfig, Source::regular)),
      files_([&] {
        // The config first: a family that is not known is the better thing to hear of.
        ConfigFile file(config_text_, (directory / kConfig).string());
        family_ = &find_family(file);
        config_ = read_config(*family_, file);
        return TensorFiles(directory);
      }()) {
  const std::vector<std::string> names = files_.names();
  const bool with_prefix = std::ranges::any_of(
      names, [&](const std::string& name) { return name.starts_with(family_->base_prefix); });
  prefix_ = with_prefix ? family_->base_prefix : "";
  const std::vector<TensorRow> rows = family_->rows(config_);
  tensors_ = map_tensors(rows, prefix_, models::CausalTransformer(config_));
  check_tensors();
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    for (std::size_t p = 0; p < tensors_[t].parts.size(); ++p)
      places_[tensors_[t].parts[p].ours] = {t, p};
  }
}

std::vector<std::int64_t> Model::end_ids() const {
  const ConfigText config = {config_text_, (path_ / kConfig).string()};
  const Path path = path_ / kGeneration;
  if (file_kind(path, kCode) != FileKind::regular) return hf::end_ids(config, std::nullopt);
  const std::string generation = read_file(path, kCode, kMaxConfig, Source::regular);
  return hf::end_ids(config, ConfigText{generation, path.string()});
}

void Model::check_tensors() {
  std::set<std::string> used;
  for (const TheirTensor& tensor : tensors_) {
    check_tensor(tensor);
    used.insert(tensor.name);
  }
  for (const std::string& name : files_.names()) {
    if (used.contains(name) || is_dead(name)) continue;
    if (name == kHead && config_.tie_embeddings) {
      check_tied_head(name);
      continue;
    }
    fail(kCode, format("{}: tensor {} is not one of a {} model with this config.json",
                       files_.file_of(name).string(), in_quotes(name), family_->name));
  }
}

void Model::check_tensor(const TheirTensor& tensor) const {
  const StoredTensor* found = files_.find(tensor.name);
  if (found == nullptr) {
    fail(kCode, format("'{}': tensor '{}' is missing", path_.string(), tensor.name));
  }
  const std::string where =
      format("{}: tensor '{}'", files_.file_of(tensor.name).string(), tensor.name);
  if (found->shape != tensor.shape) {
    fail(kCode, format("{} is [{}], but by config.json it is [{}]", where, join(found->shape),
                       join(tensor.shape)));
  }
  if (found->type == StoredType::f64 || !is_float(found->type)) {
    fail(kCode, format("{} is {}: only F32, F16 and BF16 are read", where, name(found->type)));
  }
}

bool Model::is_dead(std::string_view name) const {
  if (!name.starts_with(prefix_)) return false;
  const std::string_view inside = name.substr(prefix_.size());
  return std::ranges::any_of(family_->dead,
                             [&](std::string_view pattern) { return matches(pattern, inside); });
}

// A file may hold the tied head a second time, but not another one.
void Model::check_tied_head(const std::string& head) const {
  const auto table = std::ranges::find_if(tensors_, [](const TheirTensor& tensor) {
    return tensor.parts.front().ours == "embed_tokens/embedding";
  });
  const StoredTensor &a = *files_.find(head), &b = *files_.find(table->name);
  if (a.type == b.type && a.shape == b.shape &&
      std::ranges::equal(files_.bytes(head), files_.bytes(table->name))) {
    return;
  }
  fail(kCode,
       format("{}: tensor '{}' differs from '{}', but tie_word_embeddings says that they are "
              "one",
              files_.file_of(head).string(), head, table->name));
}

void Model::read(std::string_view ours, std::span<float> out) const {
  const auto place = places_.find(ours);
  DEW_CHECK(place != places_.end(), std::string(ours));
  const TheirTensor& tensor = tensors_[place->second.first];
  std::vector<float> theirs(static_cast<std::size_t>(element_count(tensor.shape)));
  files_.read(tensor.name, theirs);
  to_ours(tensor.parts[place->second.second], theirs, out);
}

}  // namespace dew::hf
