#include "dew/checkpoint/box.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "dew/base/format.h"

namespace dew {
namespace {

// Adds `n`, or says that the sum is more than `most`.
bool add_up_to(std::int64_t& sum, std::int64_t n, std::int64_t most) {
  if (n > most - sum) return false;
  sum += n;
  return true;
}

// The dimension along which the boxes begin at the most places: few of them are then met at one.
std::size_t sweep_dimension(std::span<const Box> boxes, std::size_t rank) {
  std::size_t best = 0, most = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    std::vector<std::int64_t> starts;
    for (const Box& box : boxes) starts.push_back(box.start[d]);
    std::sort(starts.begin(), starts.end());
    const auto distinct =
        static_cast<std::size_t>(std::unique(starts.begin(), starts.end()) - starts.begin());
    if (distinct > most) most = distinct, best = d;
  }
  return best;
}

// Two boxes that have an element in common, if any.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<const Box> boxes) {
  const std::size_t rank = boxes.empty() ? 0 : boxes[0].start.size();
  if (rank == 0) {
    return boxes.size() > 1 ? std::optional(std::pair<std::size_t, std::size_t>(0, 1))
                            : std::nullopt;
  }
  const std::size_t d = sweep_dimension(boxes, rank);
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return boxes[a].start[d] < boxes[b].start[d]; });
  std::vector<std::size_t> open;  // boxes that reach the place the sweep has come to
  for (const std::size_t i : order) {
    std::erase_if(open, [&](std::size_t j) {
      return boxes[j].start[d] + boxes[j].extent[d] <= boxes[i].start[d];
    });
    for (const std::size_t j : open) {
      if (intersect(boxes[i], boxes[j])) return std::pair(std::min(i, j), std::max(i, j));
    }
    open.push_back(i);
  }
  return std::nullopt;
}

// The last dimensions that `part` fills in both boxes are one run of bytes, with the dimension
// before them. Returns how many leading dimensions are left to walk over.
std::size_t walked_dimensions(const Box& part, const Box& from, const Box& to) {
  std::size_t d = part.extent.size();
  while (d > 0) {
    --d;
    if (part.extent[d] != from.extent[d] || part.extent[d] != to.extent[d]) break;
  }
  return d;
}

}  // namespace

Box whole(const Dims& shape) { return {Dims(shape.size(), 0), shape}; }

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    text += format("{}{}:{}", d == 0 ? "" : ",", box.start[d], box.start[d] + box.extent[d]);
  }
  return text + "]";
}

std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape,
                                          std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    // A later 0 does not excuse sizes whose product is no number.
    if (size > 0 && bytes > std::numeric_limits<std::int64_t>::max() / size) return std::nullopt;
    if (size > 0) bytes *= size;
  }
  return contains(shape, 0) ? 0 : bytes;
}

bool lies_in(const Box& box, const Dims& shape) {
  if (box.start.size() != shape.size() || box.extent.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] < 0 || box.extent[d] < 0 || box.start[d] > shape[d]) return false;
    if (box.extent[d] > shape[d] - box.start[d]) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    const std::int64_t end = std::min(a.start[d] + a.extent[d], b.start[d] + b.extent[d]);
    both.start[d] = std::max(a.start[d], b.start[d]);
    both.extent[d] = end - both.start[d];
    if (both.extent[d] <= 0) return std::nullopt;
  }
  return both;
}

std::string tiling_problem(const Dims& shape, std::span<const Box> boxes) {
  const std::int64_t total = element_count(shape);
  std::int64_t covered = 0;
  for (const Box& box : boxes) {
    if (!lies_in(box, shape) || box.elements() == 0) {
      return format("piece {} is empty or does not lie in shape [{}]", to_string(box), join(shape));
    }
    if (!add_up_to(covered, box.elements(), total)) {
      return format("pieces overlap: they have more than the {} elements of shape [{}]", total,
                    join(shape));
    }
  }
  if (covered < total) return format("pieces have {} of {} elements", covered, total);
  if (const auto pair = find_overlap(boxes)) {
    return format("pieces {} and {} overlap", to_string(boxes[pair->first]),
                  to_string(boxes[pair->second]));
  }
  return {};
}

void copy_part(const Box& part, std::int64_t element_bytes, const Box& from,
               std::span<const std::byte> source, const Box& to, std::span<std::byte> target) {
  if (part.elements() == 0) return;
  const Dims from_strides = row_major_strides(from.extent);
  const Dims to_strides = row_major_strides(to.extent);
  const std::size_t walked = walked_dimensions(part, from, to);
  std::int64_t run = element_bytes, source_base = 0, target_base = 0;
  for (std::size_t d = 0; d < part.start.size(); ++d) {
    source_base += (part.start[d] - from.start[d]) * from_strides[d];
    target_base += (part.start[d] - to.start[d]) * to_strides[d];
    if (d >= walked) run *= part.extent[d];
  }
  for_each_index(std::span(part.extent).first(walked), [&](const Dims& index) {
    std::int64_t at = source_base, put = target_base;
    for (std::size_t d = 0; d < index.size(); ++d) {
      at += index[d] * from_strides[d];
      put += index[d] * to_strides[d];
    }
    std::memcpy(target.data() + put * element_bytes, source.data() + at * element_bytes,
                static_cast<std::size_t>(run));
  });
}

}  // namespace dew
