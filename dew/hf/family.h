// The families of published models: each is a configuration of the transformer, and a table of its
// tensors. A new one is one entry in family.cc with its two functions.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dew/hf/config_file.h"
#include "dew/hf/tensor_map.h"
#include "dew/nn/transformer.h"

namespace dew::hf {

struct Family {
  std::string_view model_type;    // in config.json: "llama"
  std::string_view name;          // "Llama"
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view base;          // "LlamaModel": the same without a head of its own
  std::string_view base_prefix;   // of tensor names: "model."
  models::TransformerConfig (*config)(ConfigFile& file);
  std::vector<TensorRow> (*rows)(const models::TransformerConfig& config);
  // Buffers that files of the family may hold and nothing reads; {} for the number of the layer.
  std::span<const std::string_view> dead = {};
};

std::span<const Family> families();

// The family that config.json names. Refuses what is none of them, mixtures of experts by name.
const Family& find_family(ConfigFile& file);

// The config as the family reads it, with nothing left over that could mean something; checked.
models::TransformerConfig read_config(const Family& family, ConfigFile& file);

// ---- gpt2.cc ----
models::TransformerConfig gpt2_config(ConfigFile& file);
std::vector<TensorRow> gpt2_rows(const models::TransformerConfig& config);

// ---- llama.cc: Llama and what descends from it ----
models::TransformerConfig llama_config(ConfigFile& file);
models::TransformerConfig mistral_config(ConfigFile& file);
models::TransformerConfig qwen2_config(ConfigFile& file);
models::TransformerConfig qwen3_config(ConfigFile& file);
models::TransformerConfig gemma2_config(ConfigFile& file);
models::TransformerConfig phi3_config(ConfigFile& file);
models::TransformerConfig olmo2_config(ConfigFile& file);
std::vector<TensorRow> llama_rows(const models::TransformerConfig& config);
std::vector<TensorRow> gemma2_rows(const models::TransformerConfig& config);
std::vector<TensorRow> phi3_rows(const models::TransformerConfig& config);
std::vector<TensorRow> olmo2_rows(const models::TransformerConfig& config);

}  // namespace dew::hf
