// The parts of head_loss that are not products, on blocks of logits [rows, columns] (dense):
// columns are a range of the vocabulary that begins with id `first`.
#pragma once

#include <cstdint>

namespace dew::cpu {

struct LogitBlock {
  float* z = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t first = 0;
  float cap = 0;  // logits become cap tanh(z / cap); 0: they stay
};

// One number a row, for one range.
struct LogitStats {
  float* most = nullptr;           // greatest logit
  float* sum = nullptr;            // of exp(z - most)
  std::int32_t* winner = nullptr;  // first id with the greatest logit; -1 if all are NaN
};

// Caps the logits in place and measures them.
void measure_logits(const LogitBlock& block, const LogitStats& stats);

// Joins the stats of `ranges` ranges, each `stride` numbers behind the last, of `rows` rows: lse
// and winner.
void merge_stats(const LogitStats& stats, std::int64_t ranges, std::int64_t stride,
                 std::int64_t rows, float* lse, std::int32_t* winner);

// What the gradient of one row's logits is made of: p = exp(z - lse), dz = (factor p - weight [id
// is label]) slope, where slope is that of the cap.
struct RowGradient {
  const float* lse = nullptr;     // one for each row
  const float* factor = nullptr;  // weight (1 + 2 z_loss lse)
  const float* weight = nullptr;
  const std::int32_t* label = nullptr;
};

// From (capped) logits to their gradients: f32 in place if `to_bf16` is null, else rounded and
// stored there. Rows from `real` on become 0.
void logit_gradients(const LogitBlock& block, const RowGradient& row, std::int64_t real,
                     void* to_bf16);

}  // namespace dew::cpu
