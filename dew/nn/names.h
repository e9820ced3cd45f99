// Every name that the models give: logical axes, which a layout maps to mesh axes, and parameters,
// which checkpoints and importers of other people's models refer to.
#pragma once

namespace dew::names {

// ---- logical axes of parameters ----
inline constexpr const char* kVocab = "vocab";
inline constexpr const char* kEmbed = "embed";  // residual width
inline constexpr const char* kHeads = "heads";
inline constexpr const char* kKv = "kv";  // heads of keys and values
inline constexpr const char* kHeadDim = "head_dim";
inline constexpr const char* kAttention = "attention";  // heads x head_dim, input of o_proj
inline constexpr const char* kMlp = "mlp";
inline constexpr const char* kPositions = "positions";  // rows of a table of learned positions
inline constexpr const char* kLayers = "layers";        // slots of a stack

// ---- logical axes of activations ----
inline constexpr const char* kBatch = "activation_batch";
inline constexpr const char* kLength = "activation_length";
inline constexpr const char* kActivationHeads = "activation_heads";
inline constexpr const char* kActivationKv = "activation_kv";
inline constexpr const char* kActivationMlp = "activation_mlp";

// ---- parameters of the whole model ----
inline constexpr const char* kTokenTable = "embed_tokens/embedding";
inline constexpr const char* kPositionTable = "embed_positions/embedding";
inline constexpr const char* kFinalNorm = "final_norm";
inline constexpr const char* kHead = "lm_head/kernel";

// ---- parameters of a layer: stack / part / projection / kind ----
inline constexpr const char* kStack = "layers";
inline constexpr const char* kAttentionNorm = "attention_norm";
inline constexpr const char* kAttentionPart = "attention";
inline constexpr const char* kAttentionOutNorm = "attention_out_norm";
inline constexpr const char* kMlpNorm = "mlp_norm";
inline constexpr const char* kMlpPart = "mlp";
inline constexpr const char* kMlpOutNorm = "mlp_out_norm";

inline constexpr const char* kQ = "q_proj";
inline constexpr const char* kK = "k_proj";
inline constexpr const char* kV = "v_proj";
inline constexpr const char* kO = "o_proj";
inline constexpr const char* kQNorm = "q_norm";
inline constexpr const char* kKNorm = "k_norm";
inline constexpr const char* kGate = "gate_proj";
inline constexpr const char* kUp = "up_proj";
inline constexpr const char* kDown = "down_proj";

inline constexpr const char* kKernel = "kernel";
inline constexpr const char* kBias = "bias";
inline constexpr const char* kScale = "scale";

// ---- values of a layer that the remat policy save_list keeps ----
inline constexpr const char* kSavedAttention = "attention/o";
inline constexpr const char* kSavedLse = "attention/lse";
inline constexpr const char* kSavedResidual = "attention/residual";

}  // namespace dew::names
