// What the implementations of dot share: the step as loops, and how results are cut into pieces.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "dew/runtime/cpu/kernel.h"
#include "dew/runtime/cpu/kernels/dot_dims.h"

namespace dew::cpu {

struct DotTask {
  DotLoops loops;
  DType in = DType::f32, out = DType::f32;
  bool accumulate = false;
  int a = 0, b = 1, c = 2;  // numbers of the operands in KernelArgs
};

// `size` in equal chunks, the last one smaller.
struct Chunks {
  std::int64_t size = 0, chunk = 1;

  Chunks() = default;
  Chunks(std::int64_t total, std::int64_t parts, std::int64_t unit) : size(total) {
    const std::int64_t per_part = (total + parts - 1) / std::max<std::int64_t>(parts, 1);
    chunk = std::clamp<std::int64_t>((per_part + unit - 1) / unit * unit, 1,
                                     std::max<std::int64_t>(total, 1));
  }
  std::int64_t count() const { return (size + chunk - 1) / chunk; }
  std::int64_t begin(std::int64_t i) const { return i * chunk; }
  std::int64_t length(std::int64_t i) const { return std::min(chunk, size - i * chunk); }
  bool is_last(std::int64_t i) const { return length(i) != chunk; }  // has a size of its own
  std::int64_t last_length() const { return length(count() - 1); }
};

// Addresses of a batch's first elements, from those of the operands.
struct DotAddresses {
  std::byte *a, *b, *c;
};
DotAddresses move_by(DotAddresses at, std::span<const DotLoop> loops, std::int64_t index, DType in,
                     DType out);

// One side has at most this many vectors: the work is reading the other side once.
inline constexpr std::int64_t kSkinny = 4;

std::unique_ptr<Kernel> make_dot_tiles(const DotTask& task);
// Null if the shape is not for it.
std::unique_ptr<Kernel> make_dot_skinny(const DotTask& task);

}  // namespace dew::cpu
