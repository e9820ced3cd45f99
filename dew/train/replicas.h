// Do processes that hold the same part of a state have the same bits of it?
#pragma once

#include <span>

#include "dew/runtime/processes.h"
#include "dew/train/stepper.h"

namespace dew {

// Throws ErrorCode::process, naming the array, the part and the processes, if not.
void expect_equal_replicas(Processes& processes, std::span<const Stepper::Array> arrays);

}  // namespace dew
