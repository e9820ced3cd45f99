// Dimensions of arrays. Everything is row-major: the last dimension is contiguous.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dew {

// Sizes, strides, or numbers of dimensions.
using Dims = std::vector<std::int64_t>;

// Product of the sizes; 1 for a scalar, 0 as soon as one size is 0.
std::int64_t element_count(std::span<const std::int64_t> sizes);

// Row-major strides in elements: (2,3,4) -> (12,4,1).
Dims row_major_strides(std::span<const std::int64_t> sizes);

// "8,64"; empty text for a scalar.
std::string join(std::span<const std::int64_t> values);

bool contains(std::span<const std::int64_t> values, std::int64_t value);

// Calls visit(index) for every multi-index of `sizes` in row-major order.
template <class Visit>
void for_each_index(std::span<const std::int64_t> sizes, Visit visit) {
  if (element_count(sizes) == 0) return;
  Dims index(sizes.size(), 0);
  for (;;) {
    visit(static_cast<const Dims&>(index));
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace dew
