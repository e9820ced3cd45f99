// Optimizers are programs: the update of a step is built of ops like the model, so it is placed,
// planned and run like it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dew/nn/module.h"

namespace dew {

// Names are the keys of the section [optimizer] of a config.
struct Optimizer {
  std::string name = "adamw";  // adamw, lion, sgd
  double lr = 1e-3;            // before the schedule
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, weight_decay = 1e-4;
  double momentum = 0.9;  // sgd
  double clip_norm = 0;   // largest norm of all gradients together; 0 = any
  double ema_decay = 0;   // of an average of the parameters; 0 = none
  // What weight_decay applies to: "no_embeddings" (matrices but embeddings and head), "matrices"
  // (those too; a stack's dimension does not count, biases never do), "all".
  std::string decay = "no_embeddings";

  bool operator==(const Optimizer&) const = default;
};

Optimizer adamw(double lr);
Optimizer lion(double lr);
Optimizer sgd(double lr, double momentum = 0.9);

// Throws ErrorCode::usage, with the values and what would work.
void validate(const Optimizer& optimizer);

bool decays(const Optimizer& optimizer, const ParamSpec& param);

// An array of state for each parameter, of its type and placement, in the register prefix +
// parameter name.
struct StateSlot {
  std::string prefix;        // "opt/m/", "opt/v/", "ema/"
  bool starts_as_parameter;  // or as zeros
};
std::vector<StateSlot> state_slots(const Optimizer& optimizer);

// Factors that undo the zeros that moments start from, at the n-th committed update (n = 1, 2,
// ...).
struct BiasCorrection {
  double c1 = 1, c2 = 1;
};
BiasCorrection bias_correction(const Optimizer& optimizer, std::int64_t update);

// Inputs: params/NAME, grad/NAME and the state of each parameter; f32[] scalars loss (of the step),
// inv_weight (1/W, 0 for a step without a weighted token), lr, clip_norm (0 = off) and, for adamw,
// c1 and c2 of the bias correction. Outputs: parameters and state under the same names; grad_norm
// f32[] before clipping; commit pred[]: false, and then every parameter and state keeps its bits,
// unless loss and gradient are finite and the step has weight.
Program update_program(const Optimizer& optimizer, std::span<const ParamSpec> params);

}  // namespace dew
