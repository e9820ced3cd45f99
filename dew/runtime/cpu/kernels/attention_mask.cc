#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "dew/runtime/cpu/kernels/attention.h"

namespace dew::cpu {
namespace {

constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

const std::int32_t* element(const KernelArgs& args, const AttentionTask& task, AttentionInput input,
                            std::int64_t row) {
  const auto* base = reinterpret_cast<const std::int32_t*>(args.operands[input]);
  return base + row * task.views[input].strides[0];
}

void range(const std::int32_t* values, std::int64_t n, std::int32_t& least, std::int32_t& most) {
  const auto [low, high] = std::minmax_element(values, values + n);
  least = *low;
  most = *high;
}

}  // namespace

AttentionMask::AttentionMask(const AttentionTask& task) : task_(task) {
  const std::int64_t numbers = 3 * task.q.padded() + 2 * task.k.padded();
  const std::size_t blocks = static_cast<std::size_t>(task.q.count) * sizeof(QueryBlock) +
                             static_cast<std::size_t>(task.k.count) * sizeof(KeyBlock);
  row_bytes_ = (static_cast<std::size_t>(numbers) * 4 + blocks + 63) / 64 * 64;
}

RowMask AttentionMask::row(std::byte* shared, std::int64_t row) const {
  RowMask m{};
  auto* next = reinterpret_cast<std::int32_t*>(shared + static_cast<std::size_t>(row) * row_bytes_);
  for (auto** numbers : {&m.low, &m.high, &m.q_segment})
    *numbers = std::exchange(next, next + task_.q.padded());
  for (auto** numbers : {&m.position, &m.k_segment})
    *numbers = std::exchange(next, next + task_.k.padded());
  m.q_blocks = reinterpret_cast<QueryBlock*>(next);
  m.k_blocks = reinterpret_cast<KeyBlock*>(m.q_blocks + task_.q.count);
  return m;
}

void AttentionMask::prepare(const KernelArgs& args, std::byte* shared,
                            std::int64_t row) const noexcept {
  const RowMask m = this->row(shared, row);
  const std::int32_t* q_position = element(args, task_, kQPositions, row);
  const std::int32_t* q_segment = element(args, task_, kQSegments, row);
  const std::int32_t* k_position = element(args, task_, kKPositions, row);
  const std::int32_t* k_segment = element(args, task_, kKSegments, row);
  std::int32_t window;
  std::memcpy(&window, args.operands[kWindow], sizeof window);
  for (std::int64_t i = 0; i < task_.q.padded(); ++i) {
    const bool real = i < task_.q.total;
    SeenPositions seen = {kMost, kLeast};
    if (real) {
      const std::int64_t at = i * task_.views[kQPositions].strides[1];
      seen = seen_positions(task_.attrs, q_position[at], window);
    }
    m.low[i] = seen.low;
    m.high[i] = seen.high;
    m.q_segment[i] = real ? q_segment[i * task_.views[kQSegments].strides[1]] : 0;
  }
  for (std::int64_t j = 0; j < task_.k.total; ++j) {
    m.position[j] = k_position[j * task_.views[kKPositions].strides[1]];
    m.k_segment[j] = k_segment[j * task_.views[kKSegments].strides[1]];
  }
  for (std::int64_t i = 0; i < task_.q.count; ++i) {
    const std::int64_t begin = task_.q.begin(i);
    m.q_blocks[i] =
        query_block(m.low + begin, m.high + begin, m.q_segment + begin, task_.q.length(i));
  }
  for (std::int64_t j = 0; j < task_.k.count; ++j) {
    const std::int64_t begin = task_.k.begin(j);
    m.k_blocks[j] = key_block(m.position + begin, m.k_segment + begin, task_.k.length(j));
  }
}

QueryBlock query_block(const std::int32_t* low, const std::int32_t* high,
                       const std::int32_t* segment, std::int64_t n) {
  QueryBlock block;
  range(low, n, block.low_min, block.low_max);
  range(high, n, block.high_min, block.high_max);
  range(segment, n, block.segment_min, block.segment_max);
  return block;
}

KeyBlock key_block(const std::int32_t* position, const std::int32_t* segment, std::int64_t n) {
  KeyBlock block;
  range(position, n, block.position_min, block.position_max);
  range(segment, n, block.segment_min, block.segment_max);
  return block;
}

SeenPositions seen_positions(const AttentionAttrs& attrs, std::int32_t position,
                             std::int32_t window) {
  const std::int64_t first = std::int64_t{position} - window + 1;
  const std::int64_t low = window > 0 ? std::max<std::int64_t>(first, kLeast) : kLeast;
  return {static_cast<std::int32_t>(low), attrs.causal ? position : kMost};
}

Sight sight(const QueryBlock& q, const KeyBlock& k) {
  const bool apart = q.segment_max < k.segment_min || k.segment_max < q.segment_min;
  if (apart || k.position_max < q.low_min || k.position_min > q.high_max) return Sight::none;
  const bool one_segment = q.segment_min == q.segment_max && k.segment_min == k.segment_max;
  const bool inside = q.low_max <= k.position_min && k.position_max <= q.high_min;
  return one_segment && inside ? Sight::all : Sight::some;
}

Run visible_run(const RowMask& mask, std::int64_t q_block, std::int64_t begin, std::int64_t end) {
  Run run;
  unsigned whole = 0;
  for (std::int64_t k = begin; k < end; ++k) {
    const Sight s = sight(mask.q_blocks[q_block], mask.k_blocks[k]);
    if (s == Sight::none) continue;
    if (run.count() == 0) run.begin = k;
    run.end = k + 1;
    if (s == Sight::all) whole |= 1u << (k - run.begin);
  }
  run.masked = ~whole & ((1u << run.count()) - 1);
  return run;
}

}  // namespace dew::cpu
