// Text that shows people where an array lives.
#pragma once

#include <cstdint>
#include <string>

#include "dew/base/shape.h"
#include "dew/sharding/mesh.h"
#include "dew/sharding/spec.h"

namespace dew {

// The spec, and what the first so many devices hold, a line each (slices as Python writes them):
//
//   spec: P('fsdp',)
//     cpu:0: rows slice(0, 32, None), local shape (32, 64)
//
// REQUIRES: the spec divides the shape and has no partial sums. The same of draw_blocks().
std::string describe(const Mesh& mesh, const Spec& spec, const Dims& shape,
                     std::int64_t devices = 3);

// A matrix cut into its blocks, each with the devices that hold it: fsdp=2, tensor=4 draws
//
//   +-------+-------+-------+-------+
//   | CPU 0 | CPU 1 | CPU 2 | CPU 3 |
//   +-------+-------+-------+-------+
//   | CPU 4 | CPU 5 | CPU 6 | CPU 7 |
//   +-------+-------+-------+-------+
//
// Of an array with more dimensions the two are drawn that are split; ErrorCode::usage if there are
// more. A vector lies down. Only the first and last blocks of many are drawn. `color` gives each
// block its own (ANSI escapes, for terminals).
std::string draw_blocks(const Mesh& mesh, const Spec& spec, const Dims& shape, bool color = false);

}  // namespace dew
