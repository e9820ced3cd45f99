#include "dew/base/shape.h"

#include <algorithm>

namespace dew {

std::int64_t element_count(std::span<const std::int64_t> sizes) {
  std::int64_t n = 1;
  for (std::int64_t s : sizes) n *= s;
  return n;
}

Dims row_major_strides(std::span<const std::int64_t> sizes) {
  Dims strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d > 1; --d) strides[d - 2] = strides[d - 1] * sizes[d - 1];
  return strides;
}

std::string join(std::span<const std::int64_t> values) {
  std::string text;
  for (std::int64_t v : values) {
    if (!text.empty()) text += ',';
    text += std::to_string(v);
  }
  return text;
}

bool contains(std::span<const std::int64_t> values, std::int64_t value) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace dew
