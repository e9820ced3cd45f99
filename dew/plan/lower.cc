#include <algorithm>
#include <map>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/plan/fuse.h"
#include "dew/plan/passes.h"

namespace dew {
namespace {

View whole(int buffer, const Type& type) {
  return {buffer, type, row_major_strides(type.shape), 0, 0};
}

// Strides after a reshape, if the old strides allow it without a copy.
bool reshape_strides(const View& v, const Dims& shape, Dims& out) {
  out.assign(shape.size(), 0);
  std::size_t i = 0;  // of the old dimensions
  for (std::size_t j = 0; j < shape.size();) {
    // Take runs of old and new dimensions of equal product.
    std::size_t i_end = i + 1, j_end = j + 1;
    if (i >= v.type.shape.size()) {
      if (shape[j] != 1) return false;
      out[j++] = 1;
      continue;
    }
    std::int64_t old_size = v.type.shape[i], new_size = shape[j];
    while (old_size != new_size) {
      if (old_size < new_size) {
        if (i_end == v.type.shape.size()) return false;
        old_size *= v.type.shape[i_end++];
      } else {
        if (j_end == shape.size()) return false;
        new_size *= shape[j_end++];
      }
    }
    for (std::size_t d = i; d + 1 < i_end; ++d) {
      if (v.strides[d] != v.strides[d + 1] * v.type.shape[d + 1]) return false;
    }
    std::int64_t stride = v.strides[i_end - 1];
    for (std::size_t d = j_end; d-- > j;) {
      out[d] = stride;
      stride *= shape[d];
    }
    i = i_end;
    j = j_end;
  }
  return true;
}

// One program (top level or body) on its way into the plan.
struct Frame {
  const Program& program;
  int loop = -1;
  std::vector<View> views;  // of values lowered so far; buffer -1: not yet
  std::vector<bool> absorbed = absorbed_conversions(program);
};

class Lowering {
 public:
  explicit Lowering(const Program& program)
      : top_{program, -1, std::vector<View>(program.values().size())} {
    draft_.plan.name = program.name();
  }

  Draft run() {
    const Program& p = top_.program;
    for (std::size_t i = 0; i < p.inputs().size(); ++i) {
      const int id = p.inputs()[i];
      const int buffer = new_buffer(type_of(top_, id), -1);
      draft_.plan.buffers.back().kind = BufferKind::input;
      draft_.plan.buffers.back().index = static_cast<int>(i);
      top_.views[static_cast<std::size_t>(id)] = whole(buffer, type_of(top_, id));
    }
    lower_nodes(top_);
    for (std::size_t i = 0; i < p.outputs().size(); ++i) {
      const View from = view(top_, p.outputs()[i].value);
      const int buffer = new_buffer(from.type, -1);
      draft_.plan.buffers.back().kind = BufferKind::output;
      draft_.plan.buffers.back().index = static_cast<int>(i);
      copy(from, whole(buffer, from.type), "output " + p.outputs()[i].name);
    }
    return std::move(draft_);
  }

 private:
  static const Type& type_of(const Frame& f, int id) {
    return f.program.values()[static_cast<std::size_t>(id)].type;
  }

  int new_buffer(const Type& type, int loop) {
    Buffer buffer;
    buffer.type = type;
    draft_.plan.buffers.push_back(buffer);
    draft_.scopes.push_back({.loop = loop, .carried = false});
    return static_cast<int>(draft_.plan.buffers.size()) - 1;
  }

  void copy(const View& from, const View& to, std::string name) {
    Step step;
    step.inputs = {from};
    step.outputs = {to};
    step.name = std::move(name);
    draft_.plan.steps.push_back(std::move(step));
  }

  // How value `id` is seen; views and constants are lowered when first asked for.
  View view(Frame& f, int id) {
    View& known = f.views[static_cast<std::size_t>(id)];
    if (known.buffer >= 0) return known;
    const ValueInfo& info = f.program.values()[static_cast<std::size_t>(id)];
    DEW_CHECK(info.node >= 0, format("{}: input {} is not bound", f.program.name(), info.name));
    const Node& node = f.program.nodes()[static_cast<std::size_t>(info.node)];
    if (f.absorbed[static_cast<std::size_t>(info.node)]) return known = view(f, node.operands[0]);
    DEW_CHECK(needs_no_step(node),
              format("{}: %{} is used before it is made", f.program.name(), id));
    View made = node.operands.empty() ? constant_view(node, info.type) : look(f, node, info.type);
    return f.views[static_cast<std::size_t>(id)] = made;
  }

  // Splat constants are one element, repeated.
  View constant_view(const Node& node, const Type& type) {
    const bool splat = node.op == &constant_op;
    Attrs attrs = node.attrs;
    Type stored = type;
    if (splat) {
      stored.shape.clear();
      std::get<Fill>(attrs).type = stored;
    }
    for (std::size_t b = 0; b < draft_.plan.buffers.size(); ++b) {
      const Buffer& other = draft_.plan.buffers[b];
      if (other.kind == BufferKind::constant && other.op == node.op && other.attrs == attrs) {
        return constant_seen_as(static_cast<int>(b), type, splat);
      }
    }
    const int buffer = new_buffer(stored, -1);
    Buffer& made = draft_.plan.buffers.back();
    made.kind = BufferKind::constant;
    made.op = node.op;
    made.attrs = attrs;
    return constant_seen_as(buffer, type, splat);
  }

  static View constant_seen_as(int buffer, const Type& type, bool splat) {
    View v = whole(buffer, type);
    if (splat) v.strides.assign(type.shape.size(), 0);
    return v;
  }

  View look(Frame& f, const Node& node, const Type& type) {
    View v = view(f, node.operands.front());
    if (node.op == &reshape_op) {
      Dims strides;
      if (!reshape_strides(v, type.shape, strides)) {
        v = dense(f, v);
        strides = row_major_strides(type.shape);
      }
      v.strides = strides;
    } else if (node.op == &broadcast_op) {
      const Dims& dims = std::get<NewShape>(node.attrs).dims;
      Dims strides(type.shape.size(), 0);
      for (std::size_t d = 0; d < dims.size(); ++d)
        strides[static_cast<std::size_t>(dims[d])] = v.strides[d];
      v.strides = strides;
    } else if (node.op == &transpose_op) {
      const Dims& order = std::get<Permutation>(node.attrs).order;
      Dims strides;
      for (const std::int64_t d : order) strides.push_back(v.strides[static_cast<std::size_t>(d)]);
      v.strides = strides;
    } else {
      DEW_CHECK(node.op == &slice_op, format("{} is not known as a view", node.op->name));
      const Dims& start = std::get<SliceDims>(node.attrs).start;
      for (std::size_t d = 0; d < start.size(); ++d) v.offset += start[d] * v.strides[d];
    }
    v.type = type;
    return v;
  }

  // The same elements, row-major without gaps; a copy if they are not.
  View dense(Frame& f, const View& v) {
    if (is_dense(v)) return v;
    View made = whole(new_buffer(v.type, f.loop), v.type);
    copy(v, made, "dense");
    return made;
  }

  void lower_nodes(Frame& f) {
    for (const Unit& unit : fuse(f.program)) {
      const Node& first = f.program.nodes()[static_cast<std::size_t>(unit.nodes.front())];
      if (unit.pointwise) {
        lower_group(f, unit);
      } else if (first.op == &scan_op) {
        lower_scan(f, first);
      } else {
        lower_node(f, first);
      }
    }
  }

  View new_result(Frame& f, int id) {
    const View v = whole(new_buffer(type_of(f, id), f.loop), type_of(f, id));
    return f.views[static_cast<std::size_t>(id)] = v;
  }

  void lower_node(Frame& f, const Node& node) {
    Step step{
        .op = node.op, .attrs = node.attrs, .group = {}, .inputs = {}, .outputs = {}, .name = {}};
    step.name = format("%{} {}", node.first_result, node.op->name);
    for (const int id : node.operands) {
      const View v = view(f, id);
      // Products and copies read any strides; a base of zeros is repeated; all other kernels read
      // rows.
      const bool any_strides =
          node.op == &dot_op || (node.op->has(kAccumulates) && step.inputs.empty());
      const bool repeats = std::ranges::find(v.strides, 0) != v.strides.end();
      step.inputs.push_back(any_strides && (node.op != &dot_op || !repeats) ? v : dense(f, v));
    }
    for (int i = 0; i < node.result_count; ++i)
      step.outputs.push_back(new_result(f, node.first_result + i));
    draft_.plan.steps.push_back(std::move(step));
  }

  void lower_group(Frame& f, const Unit& unit) {
    Step step = GroupBuilder(*this, f, unit).build();
    if (!step.outputs.empty()) draft_.plan.steps.push_back(std::move(step));  // else: dead code
  }

  // A group's registers are its inputs in order of first use, then its ops.
  class GroupBuilder {
   public:
    GroupBuilder(Lowering& lowering, Frame& f, const Unit& unit)
        : lowering_(lowering), f_(f), unit_(unit) {}

    Step build() {
      const Program& p = f_.program;
      const Node& first = p.nodes()[static_cast<std::size_t>(unit_.nodes.front())];
      step_.group.shape = type_of(f_, first.first_result).shape;
      for (const int n : unit_.nodes) {
        for (const int id : p.nodes()[static_cast<std::size_t>(n)].operands) add_input(id);
      }
      int next = static_cast<int>(step_.inputs.size());
      for (const int n : unit_.nodes)
        registers_[p.nodes()[static_cast<std::size_t>(n)].first_result] = next++;
      for (const int n : unit_.nodes) add_op(p.nodes()[static_cast<std::size_t>(n)]);
      add_outputs();
      step_.name = format("%{} fused", first.first_result);
      return std::move(step_);
    }

   private:
    bool made_here(int id) const {
      const int n = f_.program.values()[static_cast<std::size_t>(id)].node;
      return n >= 0 && std::ranges::binary_search(unit_.nodes, n);
    }

    void add_input(int id) {
      if (made_here(id) || registers_.contains(id)) return;
      View v = lowering_.view(f_, id);
      if (v.type.shape != step_.group.shape) {  // rank 0 stands for all
        v.type.shape = step_.group.shape;
        v.strides.assign(step_.group.shape.size(), 0);
      }
      registers_[id] = static_cast<int>(step_.inputs.size());
      step_.group.inputs.push_back(v.type.dtype);
      step_.inputs.push_back(v);
    }

    void add_op(const Node& node) {
      MicroOp op{.op = node.op,
                 .attrs = node.attrs,
                 .registers = {},
                 .dtype = type_of(f_, node.first_result).dtype};
      for (const int id : node.operands) op.registers.push_back(registers_.at(id));
      step_.group.ops.push_back(std::move(op));
    }

    // Results that something outside of the group reads.
    void add_outputs() {
      const Program& p = f_.program;
      std::vector<bool> used(p.values().size(), false);
      for (std::size_t n = 0; n < p.nodes().size(); ++n) {
        if (std::ranges::binary_search(unit_.nodes, static_cast<int>(n))) continue;
        for (const int id : p.nodes()[n].operands) used[static_cast<std::size_t>(id)] = true;
      }
      for (const Output& o : p.outputs()) used[static_cast<std::size_t>(o.value)] = true;
      for (const int n : unit_.nodes) {
        const int id = p.nodes()[static_cast<std::size_t>(n)].first_result;
        if (!used[static_cast<std::size_t>(id)]) continue;
        step_.group.outputs.push_back(registers_.at(id));
        step_.outputs.push_back(lowering_.new_result(f_, id));
      }
    }

    Lowering& lowering_;
    Frame& f_;
    const Unit& unit_;
    Step step_;
    std::map<int, int> registers_;
  };

  // What a body input looks like from inside a loop.
  static View slice_of(const View& stacked, const Type& type) {
    View v = stacked;
    v.type = type;
    v.loop_stride = stacked.strides.front();
    v.strides.erase(v.strides.begin());
    return v;
  }

  void lower_scan(Frame& f, const Node& node) {
    const auto& attrs = std::get<ScanAttrs>(node.attrs);
    const Program& body = *attrs.body;
    DEW_CHECK(f.loop < 0, "a scan inside a scan is not planned yet: " + body.name());
    const auto carries = static_cast<std::size_t>(attrs.carries),
               slices = static_cast<std::size_t>(attrs.slices);
    const int loop = static_cast<int>(draft_.plan.loops.size());
    Frame inner{body, loop, std::vector<View>(body.values().size())};
    std::vector<View> carry;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const int input = body.inputs()[i];
      const View outer = view(f, node.operands[i]);
      View seen = outer;
      if (i < carries) {
        seen = whole(new_buffer(outer.type, -1), outer.type);
        draft_.scopes.back().carried = true;
        copy(outer, seen,
             format("carry {} in", body.values()[static_cast<std::size_t>(input)].name));
        carry.push_back(seen);
      } else if (i < carries + slices) {
        seen = slice_of(outer, type_of(inner, input));
      }
      inner.views[static_cast<std::size_t>(input)] = seen;
    }
    std::vector<View> stacked;
    for (int i = static_cast<int>(carries); i < node.result_count; ++i) {
      const Type& type = type_of(f, node.first_result + i);
      stacked.push_back(whole(new_buffer(type, -1), type));
      draft_.scopes.back().carried = true;
    }
    draft_.plan.loops.push_back(
        {static_cast<int>(draft_.plan.steps.size()), 0, attrs.length, attrs.reverse});
    lower_body(inner, carry, stacked);
    LoopRange& range = draft_.plan.loops[static_cast<std::size_t>(loop)];
    range.last = static_cast<int>(draft_.plan.steps.size()) - 1;
    for (int i = 0; i < node.result_count; ++i) {
      const auto k = static_cast<std::size_t>(i);
      f.views[static_cast<std::size_t>(node.first_result + i)] =
          k < carries ? carry[k] : stacked[k - carries];
    }
  }

  // Results that are inputs of the body are stacked before anything overwrites them; carries are
  // replaced last, through temporaries if one of them is another's old value.
  void lower_body(Frame& inner, const std::vector<View>& carry, const std::vector<View>& stacked) {
    const Program& body = inner.program;
    const auto stack = [&](bool inputs) {
      for (std::size_t k = 0; k < stacked.size(); ++k) {
        const int id = body.outputs()[carry.size() + k].value;
        if (is_input_view(body, id) != inputs) continue;
        const View from = view(inner, id);
        copy(from, slice_of(stacked[k], from.type),
             "stack " + body.outputs()[carry.size() + k].name);
      }
    };
    stack(true);
    lower_nodes(inner);
    stack(false);
    std::vector<View> next;
    for (std::size_t k = 0; k < carry.size(); ++k) {
      View from = view(inner, body.outputs()[k].value);
      const bool old_carry =
          std::ranges::any_of(carry, [&](const View& c) { return c.buffer == from.buffer; });
      const bool itself = from.buffer == carry[k].buffer && from.strides == carry[k].strides;
      if (old_carry && !itself) {
        const View kept = whole(new_buffer(from.type, inner.loop), from.type);
        copy(from, kept, "keep carry");
        from = kept;
      }
      next.push_back(from);
    }
    for (std::size_t k = 0; k < carry.size(); ++k) {
      const bool same = next[k].buffer == carry[k].buffer && next[k].strides == carry[k].strides;
      if (!same) copy(next[k], carry[k], "carry " + body.outputs()[k].name);
    }
  }

  static bool is_input_view(const Program& p, int id) {
    for (;;) {
      const int n = p.values()[static_cast<std::size_t>(id)].node;
      if (n < 0) return true;
      const Node& node = p.nodes()[static_cast<std::size_t>(n)];
      if (!needs_no_step(node)) return false;
      if (node.operands.empty()) return true;
      id = node.operands.front();
    }
  }

  Draft draft_;
  Frame top_;
};

}  // namespace

bool is_dense(const View& view) {
  std::int64_t expected = 1;
  for (std::size_t d = view.type.shape.size(); d-- > 0;) {
    if (view.type.shape[d] != 1 && view.strides[d] != expected) return false;
    expected *= view.type.shape[d];
  }
  return true;
}

Draft lower(const Program& program) { return Lowering(program).run(); }

}  // namespace dew
