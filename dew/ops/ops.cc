#include "dew/ops/ops.h"

namespace dew {

std::span<const OpDef* const> all_ops() {
#define DEW_ADDRESS(name) &name##_op,
  static constexpr const OpDef* kOps[] = {DEW_POINTWISE_OPS(DEW_ADDRESS) DEW_OTHER_OPS(DEW_ADDRESS)
                                              DEW_COLLECTIVE_OPS(DEW_ADDRESS)};
#undef DEW_ADDRESS
  return kOps;
}

}  // namespace dew
