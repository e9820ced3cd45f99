#include "dew/hf/family.h"

#include <algorithm>
#include <array>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/checkpoint/box.h"

namespace dew::hf {
namespace {

constexpr std::string_view kGpt2Dead[] = {"h.{}.attn.bias", "h.{}.attn.masked_bias"};
constexpr std::string_view kRopeDead[] = {"layers.{}.self_attn.rotary_emb.inv_freq"};

constexpr Family kFamilies[] = {
    {"gpt2", "GPT-2", "GPT2LMHeadModel", "GPT2Model", "transformer.", gpt2_config, gpt2_rows,
     kGpt2Dead},
    {"llama", "Llama", "LlamaForCausalLM", "LlamaModel", "model.", llama_config, llama_rows,
     kRopeDead},
    {"mistral", "Mistral", "MistralForCausalLM", "MistralModel", "model.", mistral_config,
     llama_rows, kRopeDead},
    {"qwen2", "Qwen2", "Qwen2ForCausalLM", "Qwen2Model", "model.", qwen2_config, llama_rows,
     kRopeDead},
    {"qwen3", "Qwen3", "Qwen3ForCausalLM", "Qwen3Model", "model.", qwen3_config, llama_rows,
     kRopeDead},
    {"gemma2", "Gemma 2", "Gemma2ForCausalLM", "Gemma2Model", "model.", gemma2_config, gemma2_rows,
     kRopeDead},
    {"phi3", "Phi-3", "Phi3ForCausalLM", "Phi3Model", "model.", phi3_config, phi3_rows, kRopeDead},
    {"olmo2", "OLMo 2", "Olmo2ForCausalLM", "Olmo2Model", "model.", olmo2_config, olmo2_rows,
     kRopeDead},
};

constexpr std::array<std::string_view, 6> kMixtures = {"mixtral", "qwen2_moe", "qwen3_moe",
                                                       "phimoe",  "olmoe",     "deepseek_v3"};

// What every config may say of files, training and generating, and not of the model's function.
// Initial values and dropout are what a run's own config says.
constexpr std::string_view kNeutral[] = {"architectures",
                                         "auto_map",
                                         "model_type",
                                         "transformers_version",
                                         "torch_dtype",
                                         "dtype",
                                         "_name_or_path",
                                         "name_or_path",
                                         "_commit_hash",
                                         "transformers.js_config",
                                         "_attn_implementation_autoset",
                                         "attn_implementation",
                                         "_attn_implementation",
                                         "unsloth_version",
                                         "unsloth_fixed",
                                         "torchscript",
                                         "return_dict",
                                         "use_bfloat16",
                                         "tf_legacy_loss",
                                         "finetuning_task",
                                         "task_specific_params",
                                         "problem_type",
                                         "id2label",
                                         "label2id",
                                         "_num_labels",
                                         "output_past",
                                         "neftune_noise_alpha",
                                         "tokenizer_class",
                                         "prefix",
                                         "chunk_size_feed_forward",
                                         "gradient_checkpointing",
                                         "pad_token_id",
                                         "sep_token_id",
                                         "unk_token_id",
                                         "decoder_start_token_id",
                                         "forced_bos_token_id",
                                         "forced_eos_token_id",
                                         "suppress_tokens",
                                         "begin_suppress_tokens",
                                         "bad_words_ids",
                                         "use_cache",
                                         "cache_implementation",
                                         "output_hidden_states",
                                         "output_attentions",
                                         "output_scores",
                                         "return_dict_in_generate",
                                         "max_length",
                                         "min_length",
                                         "do_sample",
                                         "early_stopping",
                                         "num_beams",
                                         "num_beam_groups",
                                         "diversity_penalty",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "typical_p",
                                         "repetition_penalty",
                                         "length_penalty",
                                         "no_repeat_ngram_size",
                                         "encoder_no_repeat_ngram_size",
                                         "num_return_sequences",
                                         "exponential_decay_length_penalty",
                                         "remove_invalid_values",
                                         "initializer_range",
                                         "attention_dropout",
                                         "pretraining_tp",
                                         "cross_attention_hidden_size"};

void skip_common(ConfigFile& file) {
  file.skip(kNeutral);
  file.ids("bos_token_id");  // of generating, but they must be ids
  file.ids("eos_token_id");
  for (const char* key :
       {"is_encoder_decoder", "is_decoder", "add_cross_attention", "tie_encoder_decoder"})
    file.require_flag(key, false);
}

void check_architectures(const Family& family, ConfigFile& file) {
  for (const std::string& architecture : file.texts("architectures")) {
    if (architecture == family.architecture || architecture == family.base) continue;
    file.refuse(format("the architecture {} is not supported; of {} models it is {}",
                       in_quotes(architecture), family.name, family.architecture));
  }
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& find_family(ConfigFile& file) {
  const std::string type = file.text("model_type");
  const auto found = std::ranges::find(kFamilies, type, &Family::model_type);
  if (found != std::end(kFamilies)) return *found;
  if (std::ranges::find(kMixtures, type) != kMixtures.end()) {
    file.refuse(format("model_type = {}: mixtures of experts are not built yet", in_quotes(type)));
  }
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) known.push_back(family.model_type);
  file.refuse(format("model_type = {} is not known; known are {}", in_quotes(type),
                     fmt::join(known, ", ")));
}

models::TransformerConfig read_config(const Family& family, ConfigFile& file) {
  check_architectures(family, file);
  skip_common(file);
  const models::TransformerConfig config = family.config(file);
  file.refuse_rest(family.name);
  try {
    return models::resolved(config);
  } catch (const Error& error) {  // it is a fault of the file, not of a config of ours
    file.refuse(error.what());
  }
}

}  // namespace dew::hf
