// The living template of docs/adding_an_op.md: an op outside the library, made and tested as one
// inside is. To add an op of your own, copy template_op.cc to dew/ops/<name>.cc and change it from
// top to bottom.
#pragma once

#include "tests/conformance/op_samples.h"

namespace dew {

// In dew/ops/ops.h the row is declared by a name in DEW_OTHER_OPS, the builder by hand with its
// contract:

extern const OpDef running_sum_op;

// y[.., i] = x[.., 0] + .. + x[.., i] over the last dimension.
Value running_sum(Value x);

// Its row of tests/conformance/op_samples.cc.
void sample_running_sum(SampleMaker& m);

}  // namespace dew
