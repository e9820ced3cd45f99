// Do processes that hold the same part of a state have the same bits of it?
#pragma once

#include <cstdint>
#include <span>

#include "dew/runtime/processes.h"
#include "dew/train/stepper.h"

namespace dew {

// Throws ErrorCode::process, naming the array, the part and the processes, if not. Returns of how
// many parts there are several copies.
std::int64_t expect_equal_replicas(Processes& processes, std::span<const Stepper::Array> arrays);

}  // namespace dew
