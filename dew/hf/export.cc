#include "dew/hf/export.h"

#include <algorithm>
#include <cmath>

#include "dew/base/dtype.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/checkpoint/safetensors.h"
#include "dew/hf/end_ids.h"
#include "dew/hf/write_config.h"

namespace dew::hf {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;

models::TransformerConfig plain(models::TransformerConfig c) {
  c = models::resolved(c);
  c.remat = "none";
  c.dropout = 0;
  if (c.attention_scale == 0) c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    windows.push_back(
        c.window_pattern.empty()
            ? c.window
            : c.window_pattern[static_cast<std::size_t>(layer) % c.window_pattern.size()]);
  }
  c.window = 0;
  c.window_pattern = windows;
  return c;
}

// Where there is a key for the type of the weights, that; both have been in use.
void set_dtype(OrderedJson& json, DType dtype) {
  const std::string key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json[key] = dtype == DType::f32 ? "float32" : "bfloat16";
}

// With rope a run on shorter or longer rows does not make another function.
Target keep_origin(const models::TransformerConfig& config, std::string_view origin,
                   const ExportOptions& options) {
  const std::string where = "the config.json that the model was made from";
  ConfigFile file(origin, where);
  Target target = {.family = &find_family(file), .config = {}};
  models::TransformerConfig theirs = read_config(*target.family, file);
  const bool longer = config.positions == "rope" && config.max_seq_len > theirs.max_seq_len;
  if (config.positions == "rope") theirs.max_seq_len = config.max_seq_len;
  if (!same_function(theirs, config)) {
    file.refuse("it describes another model than the checkpoint holds");
  }
  OrderedJson json = OrderedJson::parse(
      options.eos_id ? with_end_id({origin, where}, *options.eos_id) : std::string(origin));
  if (longer) json["max_position_embeddings"] = config.max_seq_len;
  set_dtype(json, options.dtype);
  target.config = json.dump(2) + "\n";
  return target;
}

// The text with what every config says.
std::string finished(const std::string& text, const Family& family, const ExportOptions& options) {
  OrderedJson json = {{"architectures", {family.architecture}}};
  json.update(OrderedJson::parse(text));
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = options.eos_id ? OrderedJson(*options.eos_id) : OrderedJson();
  set_dtype(json, options.dtype);
  return json.dump(2) + "\n";
}

// Does the family say all of the model?
bool has(const Family& family, const models::TransformerConfig& config, const std::string& text) {
  try {
    ConfigFile file(text, "config.json");
    return same_function(read_config(family, file), config);
  } catch (const Error&) {  // a size that no file of the family can have
    return false;
  }
}

// ---- weights ----

struct ShardPlan {
  std::string file;
  std::vector<const TheirTensor*> tensors;
  std::int64_t bytes = 0;
};

std::int64_t bytes_of(const TheirTensor& tensor, DType dtype) {
  return element_count(tensor.shape) * byte_size(dtype);
}

std::vector<ShardPlan> plan_shards(const std::vector<TheirTensor>& tensors,
                                   const ExportOptions& options) {
  std::vector<ShardPlan> shards(1);
  for (const TheirTensor& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor, options.dtype);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > options.shard_bytes)
      shards.emplace_back();
    shards.back().tensors.push_back(&tensor);
    shards.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

void write_tensor(SafetensorsWriter& writer, std::span<const float> values, DType dtype) {
  if (dtype == DType::f32) return writer.write(std::as_bytes(values));
  std::vector<bf16> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), [](float x) { return bf16(x); });
  writer.write(std::as_bytes(std::span(rounded)));
}

void write_shard(const Path& path, const ShardPlan& shard, const FindOurs& find, DType dtype) {
  std::vector<StoredTensor> headers;
  for (const TheirTensor* tensor : shard.tensors) {
    headers.push_back({.name = tensor->name, .type = stored_type(dtype), .shape = tensor->shape});
  }
  // transformers reads no file that does not say so.
  SafetensorsWriter writer(path, kCode, std::move(headers), {{"format", "pt"}});
  std::vector<float> values;
  for (const TheirTensor* tensor : shard.tensors) {
    values.resize(static_cast<std::size_t>(element_count(tensor->shape)));
    make_theirs(*tensor, find, values);
    write_tensor(writer, values, dtype);
  }
  writer.finish();
}

std::string index_text(const std::vector<ShardPlan>& shards) {
  std::int64_t bytes = 0;
  OrderedJson map = OrderedJson::object();
  for (const ShardPlan& shard : shards) {
    bytes += shard.bytes;
    for (const TheirTensor* tensor : shard.tensors) map[tensor->name] = shard.file;
  }
  return OrderedJson{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

}  // namespace

bool same_function(const models::TransformerConfig& a, const models::TransformerConfig& b) {
  return plain(a) == plain(b);
}

Target find_target(const models::TransformerConfig& config, std::string_view origin,
                   const ExportOptions& options) {
  DEW_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16, "export");
  if (!origin.empty()) return keep_origin(config, origin, options);
  for (const Family& family : families()) {
    const auto text = write_config(family.model_type, models::resolved(config));
    if (!text || !has(family, config, *text)) continue;
    return {.family = &family, .config = finished(*text, family, options)};
  }
  std::vector<std::string_view> names;
  for (const Family& family : families()) names.push_back(family.name);
  fail(kCode,
       format("no Hugging Face family has all options of this model; there are {}",
              fmt::join(names, ", ")),
       "docs/hugging_face.md says what each of them is");
}

void write_model(const Path& directory, const Target& target,
                 const models::TransformerConfig& config, const FindOurs& find,
                 const ExportOptions& options) {
  const std::vector<TensorRow> rows = target.family->rows(models::resolved(config));
  const std::vector<TheirTensor> tensors =
      map_tensors(rows, target.family->base_prefix, models::CausalTransformer(config));
  const std::vector<ShardPlan> shards = plan_shards(tensors, options);
  for (const ShardPlan& shard : shards)
    write_shard(directory / shard.file, shard, find, options.dtype);
  if (shards.size() > 1) {
    write_file_atomic(directory / "model.safetensors.index.json", index_text(shards), kCode);
  }
  write_file_atomic(directory / "config.json", target.config, kCode);
}

}  // namespace dew::hf
