// Arrays of doubles to and from bytes of an element type.
#pragma once

#include <cstddef>

#include "dew/ir/type.h"

namespace dew {

// Writes all elements, rounded to nearest (floats) or truncated (integers); pred is 0 or 1.
void store(const Array& array, DType dtype, std::byte* out);

Array load(const Type& type, const std::byte* bytes);

}  // namespace dew
