// The products of attention with few queries, on runs of keys that are read once, as they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dew/base/dtype.h"

namespace dew::cpu {

// `count` keys of all heads, or their values. Query rows are ordered by kv head: `rows` of each.
struct KeyRun {
  const std::byte* data = nullptr;  // f32 or bf16, elements of a head side by side
  DType dtype = DType::f32;
  std::int64_t key_stride = 0, head_stride = 0;  // elements
  std::int64_t count = 0, kv_heads = 0, rows = 0, width = 0;
  std::int64_t columns = 0;  // of scores: elements from one query row to the next
};

// scores[r, j] = q[r] . key[j], q [kv_heads * rows, width] dense; columns from count on are left
// alone.
void few_scores(const KeyRun& keys, const float* q, float* scores);
// out[r] += sum over j of p[r, j] value[j], out [kv_heads * rows, width] dense.
void few_values(const KeyRun& values, const float* p, float* out);
// out += factor x
void add_scaled(const float* x, float factor, std::int64_t n, float* out);

}  // namespace dew::cpu
