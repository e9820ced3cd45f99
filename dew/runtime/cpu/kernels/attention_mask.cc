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
    const std::int64_t position = real ? q_position[i * task_.views[kQPositions].strides[1]] : 0;
    const std::int64_t low =
        window > 0 ? std::max<std::int64_t>(position - window + 1, kLeast) : kLeast;
    m.low[i] = real ? static_cast<std::int32_t>(low) : kMost;
    m.high[i] = !real ? kLeast : task_.attrs.causal ? static_cast<std::int32_t>(position) : kMost;
    m.q_segment[i] = real ? q_segment[i * task_.views[kQSegments].strides[1]] : 0;
  }
  for (std::int64_t j = 0; j < task_.k.total; ++j) {
    m.position[j] = k_position[j * task_.views[kKPositions].strides[1]];
    m.k_segment[j] = k_segment[j * task_.views[kKSegments].strides[1]];
  }
  for (std::int64_t i = 0; i < task_.q.count; ++i) {
    const std::int64_t begin = task_.q.begin(i), n = task_.q.length(i);
    QueryBlock& block = m.q_blocks[i];
    range(m.low + begin, n, block.low_min, block.low_max);
    range(m.high + begin, n, block.high_min, block.high_max);
    range(m.q_segment + begin, n, block.segment_min, block.segment_max);
  }
  for (std::int64_t j = 0; j < task_.k.count; ++j) {
    const std::int64_t begin = task_.k.begin(j), n = task_.k.length(j);
    KeyBlock& block = m.k_blocks[j];
    range(m.position + begin, n, block.position_min, block.position_max);
    range(m.k_segment + begin, n, block.segment_min, block.segment_max);
  }
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
