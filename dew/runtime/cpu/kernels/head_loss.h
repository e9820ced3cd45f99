// head_loss: how tokens and vocabulary are cut, the products, and where everything lies.
//
// Tokens of weight 0 are left out first: chunks are cut from the list of the others. A chunk's
// logits, all of them, stay in shared scratch, in blocks [chunk, range of the vocabulary]; they are
// measured as they are made and become gradients in place (or in bf16 in the worker's scratch) just
// before the two products that use them. Phases of a chunk:
//
//   logits     a range each: z = h table^T; maximum, sum of exponentials and winner of every row
//   merge      rows: lse and winner over all ranges; what the gradients of a row need
//   gradients  a segment of ranges each: dz; d_table of the range += dz^T h; a part of d_h += dz
//   table turn       rows: the parts of d_h, added in order, to their tokens; and the next chunk's
//   h, copied side by side
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dew/ir/attrs.h"
#include "dew/runtime/cpu/kernel.h"
#include "dew/runtime/cpu/kernels/attention.h"

namespace dew::cpu {

struct HeadTask {
  std::int64_t rows = 0, columns = 0, width = 0, vocab = 0;
  HeadAttrs attrs;
  DType dtype = DType::f32;    // of h and table
  DType product = DType::f32;  // of what is multiplied
  bool accumulate = false;     // d_table +=
  std::vector<View> views;     // inputs, then outputs
  std::size_t outputs = 4;     // number of the first output's operand

  std::int64_t tokens() const { return rows * columns; }

  // All follow from sizes alone.
  Blocks chunks;    // of tokens
  Blocks ranges;    // of the vocabulary
  Blocks segments;  // of ranges
  Blocks strips;    // of a chunk's rows, for what is done row by row
  // A chunk that is at most half full is multiplied in quarters.
  std::int64_t quarter() const { return chunks.size % 64 == 0 ? chunks.size / 4 : chunks.size; }
  bool pack_table = false;  // ranges of the table are copied before they are multiplied
};

// Empty, or why the step is not taken.
std::string head_task(const Step& step, HeadTask& task);

// A product for each number of tokens (chunk, quarter) and size of range (full, last).
class HeadProducts {
 public:
  HeadProducts() = default;
  template <class Shape>
  HeadProducts(const HeadTask& task, Shape shape) {
    for (std::size_t i = 0; i < 4; ++i) {
      const bool quarter = i >= 2, last = i % 2 == 1;
      const std::int64_t n = task.ranges.length(last ? task.ranges.count - 1 : 0);
      const std::int64_t tokens = quarter ? task.quarter() : task.chunks.size;
      if ((quarter && tokens == task.chunks.size) || (last && n == task.ranges.size)) continue;
      products_[i].emplace(shape(tokens, n));
    }
  }
  const Product& of(bool quarter, bool last) const {
    const std::size_t i = (quarter && products_[2] ? 2u : 0u) + (last ? 1u : 0u);
    return *products_[i];
  }
  std::size_t scratch_bytes() const;
  std::string implementation() const { return products_[0] ? products_[0]->implementation() : ""; }

 private:
  std::optional<Product> products_[4];
};

}  // namespace dew::cpu
