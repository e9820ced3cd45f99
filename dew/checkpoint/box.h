// Boxes of a tensor: the parts in which it is stored and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dew/base/shape.h"
#include "dew/base/text.h"

namespace dew {

// Elements [start, start + extent) in every dimension. Example: rows 2 and 3 of a (4,5) tensor are
// {{2,0},{2,5}}, printed "[2:4,0:5]". A scalar's only box has no dimensions.
struct Box {
  Dims start, extent;

  std::int64_t elements() const { return element_count(extent); }
  bool operator==(const Box&) const = default;
};

Box whole(const Dims& shape);
std::string to_string(const Box& box);

// None if a size is negative or the bytes of such an array do not fit into 63 bits.
std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape,
                                          std::int64_t element_bytes);

// Does the box lie in an array of this shape? False for other ranks, too. Any numbers are allowed.
bool lies_in(const Box& box, const Dims& shape);

// What two boxes of one array have in common; none if that has no elements.
std::optional<Box> intersect(const Box& a, const Box& b);

// Why the boxes do not cover an array of `shape` exactly once, or empty text if they do. A box that
// does not lie in the array, or is empty, is such a reason. REQUIRES: checked_bytes(shape, 1).
std::string tiling_problem(const Dims& shape, std::span<const Box> boxes);

// Copies the elements of `part` from the row-major array of box `from` into that of box `to`.
// REQUIRES: `part` lies in both; the sizes of the spans are those of the boxes.
void copy_part(const Box& part, std::int64_t element_bytes, const Box& from,
               std::span<const std::byte> source, const Box& to, std::span<std::byte> target);

}  // namespace dew
