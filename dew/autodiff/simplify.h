// Rewrites that gradients make worth while.
#pragma once

#include "dew/ir/program.h"

namespace dew {

// Leaves out what does nothing (times one, plus zero, a reshape, transpose, slice or conversion to
// the same), and lets scatter_add_rows add to what its result was to be added to.
Program simplify(const Program& program);

// add(x, r), where x is an input and r a stacked result of a scan that nothing else uses: x becomes
// a stacked operand of the scan, whose body adds its part. So a gradient accumulator is updated
// layer by layer, in place.
Program accumulate_in_scans(const Program& program);

}  // namespace dew
