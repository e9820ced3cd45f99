// What a run may go on from.
#pragma once

#include <memory>
#include <string>

#include "dew/checkpoint/directory.h"
#include "dew/data/windows.h"
#include "dew/nn/transformer.h"
#include "dew/runtime/processes.h"

namespace dew {

// automatic: go on from the newest complete checkpoint, if there are any; damaged ones are passed
// over with a warning, and that all are damaged is an error. must: the newest one is there and
// undamaged, or it is an error. never: begin anew.
enum class Resume { automatic, never, must };

// The data of a run at a position.
DataState data_state(const WindowData& data, std::int64_t position);

// The checkpoint to go on from, null if there is none: process 0 looks what there is, every process
// verifies its share of the bytes, and what any finds wrong counts for all. `warn` gets a line, in
// process 0, for each newer one that is passed over.
std::unique_ptr<CheckpointReader> find_checkpoint(
    Processes& processes, const Path& directory, Resume resume,
    const std::function<void(const std::string&)>& warn);

// Throws ErrorCode::checkpoint, naming all that differs, unless a checkpoint is of a run with this
// seed, model and data.
void expect_same_run(const CheckpointReader& reader, std::uint64_t seed,
                     const models::TransformerConfig& model, const WindowData& data);

}  // namespace dew
