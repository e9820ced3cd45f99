// Names of the registers of a training run: programs are bound to them by the names of their inputs
// and outputs, and checkpoints, digests and the trainer find arrays by them.
#pragma once

#include <string>

namespace dew::registers {

// ---- state, one array a parameter: prefix + the parameter's name ----
inline constexpr const char* kParameter = "params/";
inline constexpr const char* kFirstMoment = "opt/m/";
inline constexpr const char* kSecondMoment = "opt/v/";
inline constexpr const char* kAverage = "ema/";
inline constexpr const char* kGradient = "grad/";
inline constexpr const char* kCast = "cast/";  // copies in the compute type

inline std::string parameter(const std::string& name) { return kParameter + name; }
inline std::string gradient(const std::string& name) { return kGradient + name; }
inline std::string cast(const std::string& name) { return kCast + name; }

// ---- a step's batch: [A', rows, T'], row_ids [A', rows], columns [T'] ----
inline constexpr const char* kIds = "ids";
inline constexpr const char* kLabels = "labels";
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kPositions = "positions";
inline constexpr const char* kSegments = "segments";
inline constexpr const char* kRowIds = "row_ids";
inline constexpr const char* kColumns = "columns";

// ---- a step's scalars ----
inline constexpr const char* kInvWeight =
    "inv_weight";  // 1/W, W the weight of all tokens; 0 if that is 0
inline constexpr const char* kInvTokens =
    "inv_tokens";  // 1/N, N the tokens that are no pads; 0 if there are none
inline constexpr const char* kKey = "key";    // the run's, u32[2]
inline constexpr const char* kStep = "step";  // i32[]
inline constexpr const char* kLr = "lr";
inline constexpr const char* kC1 = "c1";
inline constexpr const char* kC2 = "c2";
inline constexpr const char* kClipNorm = "clip_norm";

// ---- results, f32[] but commit pred[] ----
inline constexpr const char* kLoss = "loss";  // these three are means over the step's weight
inline constexpr const char* kNll = "nll";
inline constexpr const char* kCorrect = "correct";
inline constexpr const char* kEvalNll = "eval_nll";  // these two are sums over tokens
inline constexpr const char* kEvalCorrect = "eval_correct";
inline constexpr const char* kGradNorm = "grad_norm";
inline constexpr const char* kLogits = "logits";  // f32[rows, T', vocab], where asked for
inline constexpr const char* kCommit = "commit";

}  // namespace dew::registers
