// The parts of attention that are not products, on blocks of scores.
#pragma once

#include <cstdint>

namespace dew::cpu {

// How a product q.k becomes a score, in powers of two: scale log2(e) q.k, or with a cap, cap
// log2(e) tanh(scale / cap q.k).
struct ScoreScale {
  float scale = 1, cap = 0;  // as in the attributes; cap 0: none
};

// Which keys the rows of a block see; see RowMask.
struct ScoreMask {
  const std::int32_t *low, *high, *q_segment;  // of the rows
  const std::int32_t *position, *k_segment;    // of the columns
};

// Products in, probabilities out.
struct ScoreBlock {
  float* scores = nullptr;  // [rows, columns], dense
  std::int64_t rows = 0, columns = 0;
  std::int64_t part = 0;  // columns are parts of so many, a multiple of 16,
  unsigned masked = 0;    // of which those are masked whose bit is set; in the others all is seen
  std::int64_t keys =
      0;  // columns from here on are padding, whose probability is 0; in masked parts only
  ScoreMask mask;
  ScoreScale scale;
  void* p = nullptr;  // probabilities, [rows, columns], as the second product wants them
};

enum class Probability { f32, bf16, rounded };  // rounded: to bf16, stored as f32

// Running softmax: after all blocks, output = sums of p v, divided by `sum`, and lse = ln 2 * most
// + ln sum.
struct SoftmaxState {
  float *most, *sum;  // one for each row; -inf and 0 at first. `most` in powers of two
  float* output;      // [rows, width], rescaled when a row's maximum grows; null in the only block
  std::int64_t width, output_row;  // output_row: elements from one row to the next
};

// Inputs and results of the gradient's part.
struct GradBlock {
  const float* lse;    // one for each row: the final one; +inf for rows that see nothing
  const float* delta;  // one for each row
  float* dp;  // [rows, columns]: do.v in; gradient of q.k out if the second products are of f32
  void* ds;   // where that gradient goes
};

// For the best instruction set of this machine.
void softmax_rows(const ScoreBlock& block, const SoftmaxState& state, Probability kind);
void grad_rows(const ScoreBlock& block, const GradBlock& grad, Probability kind);

// Where results of softmax go: o = output / sum, rows `row` elements apart, f32 or bf16; and one
// lse a row. Rows that saw no key have 0 and -inf.
struct FinishedRows {
  void* o;
  std::int64_t row;
  bool bf16;
  float* lse;
};
void finish_rows(const SoftmaxState& state, std::int64_t rows, const FinishedRows& to);

}  // namespace dew::cpu
