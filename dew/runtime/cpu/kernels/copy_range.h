// Strided views as a sequence of elements in row-major order, and moving any range of that sequence
// between memory and a tile of 32-bit elements in L1. Kernels compute on tiles, so each is written
// once for all dtypes, shapes and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dew/plan/plan.h"

namespace dew::cpu {

inline constexpr int kMaxRank = 8;
inline constexpr std::int64_t kTransposeSide = 64;

// The dimensions of a view, neighbours merged where their strides allow: a dense view has one
// dimension of stride 1, a row vector repeated over rows has two of strides (0, 1).
struct Strided {
  DType dtype = DType::f32;
  int rank = 1;  // at least 1
  std::int64_t elements = 0;
  std::int64_t sizes[kMaxRank] = {}, strides[kMaxRank] = {};

  std::int64_t inner() const { return sizes[rank - 1]; }
  std::int64_t step() const { return strides[rank - 1]; }
  bool dense() const { return rank == 1 && (step() == 1 || elements <= 1); }
  bool uniform() const { return rank == 1 && step() == 0; }  // all elements are one
  bool dense32() const { return dense() && byte_size(dtype) == 4; }
};

// Empty if more than kMaxRank dimensions remain.
std::optional<Strided> strided(const Dims& shape, const Dims& strides, DType dtype);
std::optional<Strided> strided(const View& view);

// Walks the runs (pieces of the innermost dimension) of a range of elements.
class Runs {
 public:
  Runs(const Strided& s, std::int64_t begin) : s_(s) {
    for (int d = s.rank - 1; d >= 0; --d) {
      index_[d] = begin % s.sizes[d];
      begin /= s.sizes[d];
      offset_ += index_[d] * s.strides[d];
    }
  }

  std::int64_t offset() const { return offset_; }  // of the current element, in elements
  std::int64_t left() const { return s_.inner() - index_[s_.rank - 1]; }  // in the current run

  void advance(std::int64_t n) {  // REQUIRES: n <= left()
    int d = s_.rank - 1;
    index_[d] += n;
    offset_ += n * s_.strides[d];
    while (index_[d] == s_.sizes[d] && d > 0) {
      index_[d] = 0;
      offset_ += s_.strides[d - 1] - s_.sizes[d] * s_.strides[d];
      ++index_[--d];
    }
  }

 private:
  const Strided& s_;
  std::int64_t index_[kMaxRank] = {};
  std::int64_t offset_ = 0;
};

// f32, i32 and u32 move as they are; bf16 becomes f32 and is rounded to nearest even on the way
// back; pred becomes a mask of 32 bits and goes back to 0 or 1. Nothing outside the range is read
// or written.
struct RangeIo {
  void (*load)(const Strided& s, const std::byte* base, std::int64_t begin, std::size_t n,
               float* to);
  void (*store)(const Strided& s, std::byte* base, std::int64_t begin, std::size_t n,
                const float* from);
  // to[r * to_stride + c] = from[c * from_stride + r] for r < rows, c < columns, both at most
  // kTransposeSide: elements of so many bytes (1, 2, 4).
  void (*transpose)(std::int64_t bytes, const std::byte* from, std::int64_t from_stride,
                    std::byte* to, std::int64_t to_stride, std::int64_t rows, std::int64_t columns);
};

// For the best instruction set of this machine.
const RangeIo& range_io();

// Elements [begin, begin + n) as 32-bit elements: in place if they lie side by side in memory, else
// copied to `tile`.
inline const float* read_range(const RangeIo& io, const Strided& s, const std::byte* base,
                               std::int64_t begin, std::size_t n, float* tile) {
  if (s.dense32()) return reinterpret_cast<const float*>(base) + begin;
  if (s.step() == 1 && byte_size(s.dtype) == 4) {
    const Runs runs(s, begin);
    if (runs.left() >= static_cast<std::int64_t>(n))
      return reinterpret_cast<const float*>(base) + runs.offset();
  }
  io.load(s, base, begin, n, tile);
  return tile;
}

// Where a kernel shall put elements that `write_range` then brings home: in place if it can, else
// `tile`.
inline float* write_target(const Strided& s, std::byte* base, std::int64_t begin, float* tile) {
  return s.dense32() ? reinterpret_cast<float*>(base) + begin : tile;
}

inline void write_range(const RangeIo& io, const Strided& s, std::byte* base, std::int64_t begin,
                        std::size_t n, const float* from) {
  if (!s.dense32()) io.store(s, base, begin, n, from);
}

// Cuts `elements` into at most 64 pieces of about `target` elements, multiples of `unit`.
struct Pieces {
  std::int64_t size = 1;
  int count = 1;
};
Pieces cut_pieces(std::int64_t elements, std::int64_t target, std::int64_t unit);

}  // namespace dew::cpu
