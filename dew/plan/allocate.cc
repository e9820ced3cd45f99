#include <algorithm>
#include <numeric>

#include "dew/plan/passes.h"

namespace dew {
namespace {

constexpr std::int64_t kAlign = 64;

// A buffer that is not local to a loop's iteration is live during the whole loop in which it is
// touched.
void find_lifetimes(Draft& draft) {
  Plan& plan = draft.plan;
  for (Buffer& b : plan.buffers) {
    b.first_step = static_cast<int>(plan.steps.size());
    b.last_step = -1;
  }
  std::size_t next_loop = 0;
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    while (next_loop < plan.loops.size() && plan.loops[next_loop].last < s) ++next_loop;
    const bool in_loop = next_loop < plan.loops.size() && plan.loops[next_loop].first <= s;
    const auto touch = [&](const View& v) {
      Buffer& b = plan.buffers[static_cast<std::size_t>(v.buffer)];
      const bool whole_loop = in_loop && draft.scopes[static_cast<std::size_t>(v.buffer)].loop < 0;
      b.first_step = std::min(b.first_step, whole_loop ? plan.loops[next_loop].first : s);
      b.last_step = std::max(b.last_step, whole_loop ? plan.loops[next_loop].last : s);
    };
    for (const View& v : plan.steps[static_cast<std::size_t>(s)].inputs) touch(v);
    for (const View& v : plan.steps[static_cast<std::size_t>(s)].outputs) touch(v);
  }
}

}  // namespace

// Biggest first, each at the lowest offset that is free during its life.
void allocate(Draft& draft) {
  find_lifetimes(draft);
  Plan& plan = draft.plan;
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].kind == BufferKind::arena && plan.buffers[b].last_step >= 0)
      order.push_back(b);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t b) { return plan.buffers[b].type.bytes(); });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t b : order) {
    Buffer& buffer = plan.buffers[b];
    const std::int64_t bytes = (buffer.type.bytes() + kAlign - 1) / kAlign * kAlign;
    std::int64_t offset = 0;
    for (const std::size_t o : placed) {
      const Buffer& other = plan.buffers[o];
      if (other.last_step < buffer.first_step || other.first_step > buffer.last_step) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, (other.offset + other.type.bytes() + kAlign - 1) / kAlign * kAlign);
    }
    buffer.offset = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
    const auto at = std::ranges::upper_bound(placed, offset, {},
                                             [&](std::size_t p) { return plan.buffers[p].offset; });
    placed.insert(at, b);
  }
}

Plan make_plan(const Program& program, std::span<const int> replaces, const MeshPart& part,
               Replicas replicas) {
  Draft draft = lower(program, part, replicas);
  share_buffers(draft, replaces);
  allocate(draft);
  return std::move(draft.plan);
}

}  // namespace dew
