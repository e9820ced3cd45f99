// What a step of a plan must at least do, from its shapes alone.
#pragma once

#include "dew/plan/plan.h"

namespace dew {

struct StepCost {
  // Additions and multiplications of the op's products (an attention with a causal mask: of the
  // visible half), or one for each element and op of a fused group; 0 where neither says much.
  double flops = 0;
  double bytes = 0;  // of its inputs and outputs, each element once
};

// Of one run of the step, at all its positions.
StepCost cost_of(const Step& step);

}  // namespace dew
