// The gradient of a scan: a forward scan that also returns residuals, and a backward scan that uses
// them.
#pragma once

#include <span>
#include <vector>

#include "dew/autodiff/grad.h"

namespace dew {

// Appends both scans for node `node` of `program`; returns the cotangents of its operands (invalid
// where `needs` is false).
std::vector<Value> scan_gradient(Program& program, int node, std::span<const Value> cotangents,
                                 const std::vector<bool>& needs, Remat remat);

}  // namespace dew
