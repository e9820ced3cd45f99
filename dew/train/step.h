// The programs of a training step, and the module that binds them to registers (train/registers.h
// has the names).
//
// A step is {cast (bf16 runs only), micro step x A', update}. Each program is written here as the
// model gives it, on whole arrays; compile() cleans, places and plans it.
#pragma once

#include <string>
#include <vector>

#include "dew/ir/module.h"
#include "dew/train/objective.h"
#include "dew/train/optimizer.h"

namespace dew {

// Sizes of a step's arrays, pads included: [micro_steps, rows, columns]; micro_steps is A', columns
// is T'.
struct StepShape {
  std::int64_t micro_steps = 1, rows = 1, columns = 1;
};

// params/NAME -> cast/NAME in the compute type, for all but vectors.
Program cast_program(std::span<const ParamSpec> params, DType compute);

// One micro step: parameters (cast/NAME where there is one), a [rows, columns] batch and scalars ->
// grad/NAME f32 and the metrics loss, nll, correct. With `accumulate` it also takes those and
// returns the sums.
Program micro_program(const LMObjective& objective, const StepShape& shape, DType compute,
                      bool accumulate);

// One batch of an evaluation: parameters and batch -> eval_nll, eval_correct, sums over weights as
// given; `accumulate` as above.
Program eval_program(const LMObjective& objective, const StepShape& shape, DType compute,
                     bool accumulate);

// The forward pass of one micro step: parameters and batch, as evaluations have them -> logits
// f32[rows, columns, vocab], as the loss sees them.
Program logits_program(const LMObjective& objective, const StepShape& shape, DType compute);

// Call lists "train" and "eval". An evaluation runs over a step's arrays, all micro steps of them.
// compute: f32 or bf16.
Module training_module(const LMObjective& objective, const Optimizer& optimizer,
                       const StepShape& shape, DType compute);
// The same and lists "gradient", a step without its update that leaves the gradients whole for the
// host, and "logits". REQUIRES: shape.micro_steps is 1.
Module probing_module(const LMObjective& objective, const Optimizer& optimizer,
                      const StepShape& shape, DType compute);
// The list "eval" alone, with no state but parameters.
Module evaluation_module(const LMObjective& objective, const StepShape& shape, DType compute);

// An array that outlives steps: the register's name, the number of its parameter, and whether it
// starts as that parameter does (init_part) or as zeros.
struct StateArray {
  std::string name;
  std::size_t param = 0;
  bool starts_as_parameter = true;
};
std::vector<StateArray> state_arrays(std::span<const ParamSpec> params, const Optimizer& optimizer);

}  // namespace dew
