// Type of a value, and the array in which the reference interpreter computes.
#pragma once

#include <string>
#include <vector>

#include "dew/base/dtype.h"
#include "dew/base/shape.h"

namespace dew {

struct Type {
  DType dtype = DType::f32;
  Dims shape;

  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  std::int64_t elements() const { return element_count(shape); }
  std::int64_t bytes() const { return elements() * byte_size(dtype); }
  bool operator==(const Type&) const = default;
};

// "f32[8,64]", "i32[]".
std::string to_string(const Type& type);

// A row-major array of doubles. Integers and booleans are held exactly (no program has integers
// beyond 32 bits); floats are not rounded to their storage type: the reference judges arithmetic,
// not rounding.
struct Array {
  Dims shape;
  std::vector<double> data;

  Array() = default;
  explicit Array(Dims sizes, double fill = 0.0)
      : shape(std::move(sizes)), data(static_cast<std::size_t>(element_count(shape)), fill) {}
  bool operator==(const Array&) const = default;
};

}  // namespace dew
