#include "dew/plan/lowering.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Seen Lowering::slice_of(const Seen& stacked, const Type& type) {
  Seen x = stacked;
  x.view.type = type;
  x.view.loop_stride = stacked.view.strides.front();
  x.view.strides.erase(x.view.strides.begin());
  return x;
}

void Lowering::lower_scan(Frame& f, const Node& node) {
  const auto& attrs = std::get<ScanAttrs>(node.attrs);
  const Program& body = *attrs.body;
  DEW_CHECK(f.loop < 0, "a scan inside a scan is not planned yet: " + body.name());
  const auto carries = at(attrs.carries), slices = at(attrs.slices);
  const int loop = static_cast<int>(draft_.plan.loops.size());
  Frame inner{body, loop, std::vector<Seen>(body.values().size())};
  std::vector<Seen> carry;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const int input = body.inputs()[i];
    Seen x = seen(f, node.operands[i]);
    wait_for_buffer(x.view.buffer, false);  // once, and not in every iteration
    if (i < carries) {
      const Seen initial = x;
      x = new_value(info_of(inner, input), -1);
      draft_.scopes.back().carried = true;
      copy(initial, x, format("carry {} in", info_of(inner, input).name));
      carry.push_back(x);
    } else if (i < carries + slices) {
      x = slice_of(x, type_of(inner, input));
    }
    inner.seen[at(input)] = x;
  }
  std::vector<Seen> stacked;
  for (int i = static_cast<int>(carries); i < node.result_count; ++i) {
    ValueInfo info = info_of(f, node.first_result + i);
    info.stacked = true;
    stacked.push_back(new_value(info, -1));
    draft_.scopes.back().carried = true;
  }
  draft_.plan.loops.push_back(
      {static_cast<int>(draft_.plan.steps.size()), 0, attrs.length, attrs.reverse});
  lower_body(inner, carry, stacked);
  LoopRange& range = draft_.plan.loops[at(loop)];
  range.last = static_cast<int>(draft_.plan.steps.size()) - 1;
  for (int i = 0; i < node.result_count; ++i) {
    const auto k = at(i);
    f.seen[at(node.first_result + i)] = k < carries ? carry[k] : stacked[k - carries];
  }
}

bool Lowering::same_place(const Seen& x, const Seen& y) {
  return x.view.buffer == y.view.buffer && x.view.strides == y.view.strides && x.atoms == y.atoms &&
         x.strides == y.strides;
}

// Results that are inputs of the body are stacked before anything overwrites them; carries are
// replaced last, through temporaries if one of them is another's old value.
void Lowering::lower_body(Frame& inner, const std::vector<Seen>& carry,
                          const std::vector<Seen>& stacked) {
  const Program& body = inner.program;
  const auto stack = [&](bool inputs) {
    for (std::size_t k = 0; k < stacked.size(); ++k) {
      const Output& output = body.outputs()[carry.size() + k];
      if (is_input_view(body, output.value) != inputs) continue;
      const Seen from = seen(inner, output.value);
      copy(from, slice_of(stacked[k], from.view.type), "stack " + output.name);
    }
  };
  stack(true);
  lower_nodes(inner);
  stack(false);
  std::vector<Seen> next;
  for (std::size_t k = 0; k < carry.size(); ++k) {
    Seen from = seen(inner, body.outputs()[k].value);
    const bool old_carry = std::ranges::any_of(
        carry, [&](const Seen& c) { return c.view.buffer == from.view.buffer; });
    if (old_carry && !same_place(from, carry[k])) {
      const Seen kept = new_memory(from.view.type, from.atoms, false, inner.loop);
      copy(from, kept, "keep carry");
      from = kept;
    }
    next.push_back(from);
  }
  for (std::size_t k = 0; k < carry.size(); ++k) {
    if (!same_place(next[k], carry[k])) copy(next[k], carry[k], "carry " + body.outputs()[k].name);
  }
  wait_for_loop(inner.loop);
}

bool Lowering::is_input_view(const Program& p, int id) {
  for (;;) {
    const int n = p.values()[static_cast<std::size_t>(id)].node;
    if (n < 0) return true;
    const Node& node = p.nodes()[static_cast<std::size_t>(n)];
    if (!needs_no_step(node)) return false;
    if (node.operands.empty()) return true;
    id = node.operands.front();
  }
}

}  // namespace dew
