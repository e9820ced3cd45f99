// Whether a step fits into memory at all. Sizes may be as absurd as a config allows: this comes
// before anything is planned, laid out or written.
#pragma once

#include "dew/nn/transformer.h"
#include "dew/runtime/backend.h"
#include "dew/sharding/dispatch.h"

namespace dew {

struct StepSizes {
  const models::TransformerConfig& model;  // resolved
  DType compute = DType::f32;
  bool trains = true;
  std::int64_t shards = 1;        // batch shards that this process has
  std::int64_t batch_copies = 1;  // of the batch's arrays, those that a loader prepares among them
};

// The least that a step needs beside the state, in bytes. A lower bound, so that nothing is
// refused that could run; what a plan needs is looked at when there is one.
struct StepMemory {
  double batch = 0;   // ids, labels, weights, positions, segments: 20 bytes a token
  double values = 0;  // of a micro step: of each layer its input, of one its widest arrays
};
StepMemory least_memory(const DispatchPlan& plan, const StepSizes& sizes);

// Throws ErrorCode::usage where that is more than `memory` bytes: the sizes, what they need, and
// how much would fit.
void expect_room(const DispatchPlan& plan, const StepSizes& sizes, double memory);

// What a planned step found too large, told to somebody who chose a batch: throws ErrorCode::usage
// with the rows of a micro step, and how many would fit.
[[noreturn]] void refuse_step(const DispatchPlan& plan, const StepSizes& sizes,
                              const TooLarge& too_large);

}  // namespace dew
