// The batch of `dew probe`, as other frameworks hold one.
#pragma once

#include "dew/base/file.h"
#include "dew/data/batch.h"
#include "dew/nn/transformer.h"
#include "dew/sharding/dispatch.h"

namespace dew::cli {

// A safetensors file with integers `input_ids` and `labels` [rows, length], and perhaps
// `positions` and `segment_ids`; other tensors are not looked at. A label counts at the position
// before its own and not at all where it is -100. One micro step. Throws ErrorCode::data, with the
// tensor and the value, on whatever the model cannot take: other types and shapes, no row, no
// label that counts, ids or positions that the model does not have.
StepBatch read_probe_batch(const Path& path, const models::TransformerConfig& model);

// Where a row stands in the arrays of a plan of one micro step.
std::int64_t physical_row(const DispatchPlan& plan, std::int64_t row);

// The same rows where a plan of one micro step has them, pads between. REQUIRES: the plan is of as
// many rows of that length.
StepBatch spread(const StepBatch& batch, const DispatchPlan& plan);

}  // namespace dew::cli
