#include "dew/ir/type.h"

namespace dew {

std::string to_string(const Type& type) {
  return std::string(name(type.dtype)) + '[' + join(type.shape) + ']';
}

}  // namespace dew
