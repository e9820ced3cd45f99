#include <algorithm>
#include <map>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/plan/fuse.h"
#include "dew/plan/passes.h"
#include "dew/plan/seen.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One program (top level or body) on its way into the plan.
struct Frame {
  const Program& program;
  int loop = -1;
  std::vector<Seen> seen;  // of values lowered so far; buffer -1: not yet
  std::vector<bool> absorbed = absorbed_conversions(program);
};

class Lowering {
 public:
  Lowering(const Program& program, const Dims& atom_sizes, Replicas replicas)
      : atom_sizes_(atom_sizes),
        replicas_(replicas),
        top_{program, -1, std::vector<Seen>(program.values().size())} {
    draft_.plan.name = program.name();
  }

  Draft run() {
    const Program& p = top_.program;
    for (std::size_t i = 0; i < p.inputs().size(); ++i) {
      const int id = p.inputs()[i];
      top_.seen[at(id)] = new_value(info_of(top_, id), -1);
      draft_.plan.buffers.back().kind = BufferKind::input;
      draft_.plan.buffers.back().index = static_cast<int>(i);
    }
    lower_nodes(top_);
    for (std::size_t i = 0; i < p.outputs().size(); ++i) {
      const Seen from = seen(top_, p.outputs()[i].value);
      const Seen to = new_value(info_of(top_, p.outputs()[i].value), -1);
      draft_.plan.buffers.back().kind = BufferKind::output;
      draft_.plan.buffers.back().index = static_cast<int>(i);
      copy(from, to, "output " + p.outputs()[i].name);
    }
    return std::move(draft_);
  }

 private:
  static const ValueInfo& info_of(const Frame& f, int id) { return f.program.values()[at(id)]; }
  static const Type& type_of(const Frame& f, int id) { return info_of(f, id).type; }

  int new_buffer(const Type& type, int loop) {
    Buffer buffer;
    buffer.type = type;
    draft_.plan.buffers.push_back(buffer);
    draft_.scopes.push_back({.loop = loop, .carried = false});
    return static_cast<int>(draft_.plan.buffers.size()) - 1;
  }

  Seen new_memory(const Type& local, const Dims& atoms, bool stacked, int loop) {
    MemoryLayout layout = layout_of(local, atoms, stacked, atom_sizes_);
    layout.seen.view.buffer = new_buffer(layout.memory, loop);
    return std::move(layout.seen);
  }
  Seen new_value(const ValueInfo& info, int loop) {
    return new_memory(info.type, info.shards, info.stacked, loop);
  }
  // The atoms of a step's result: those over which it differs, behind those that are stored all the
  // same.
  Dims result_atoms(const ValueInfo& info) const {
    if (replicas_ == Replicas::once) return info.shards;
    Dims atoms;
    for (std::int64_t a = 0; a < std::ssize(atom_sizes_); ++a) {
      if (!contains(info.shards, a)) atoms.push_back(a);
    }
    atoms.insert(atoms.end(), info.shards.begin(), info.shards.end());
    return atoms;
  }

  // Compares what is stored for the devices that should hold the same as the first of them.
  void check_replicas(const ValueInfo& info, const Seen& made, const std::string& name) {
    if (replicas_ == Replicas::once) return;
    Dims order, distinct;
    for (const std::int64_t a : made.atoms)
      (contains(info.shards, a) ? distinct : order).push_back(a);
    if (order.empty()) return;
    Step step;
    step.op = &replicas_differ_op;
    step.attrs = Axes{{std::ssize(order)}};
    order.insert(order.end(), distinct.begin(), distinct.end());
    step.inputs = {expanded(made, order, false, atom_sizes_)};
    const Type count{DType::i32, {}};
    step.outputs = {{new_buffer(count, -1), count, {}, 0, 0, {}}};
    draft_.plan.buffers.back().kind = BufferKind::count;
    step.name = "replicas of " + name;
    draft_.plan.steps.push_back(std::move(step));
  }

  void copy(const Seen& from, const Seen& to, std::string name) {
    const bool stacked = lies_stacked(to);
    Step step;
    step.inputs = {expanded(from, to.atoms, stacked, atom_sizes_)};
    step.outputs = {expanded(to, to.atoms, stacked, atom_sizes_)};
    step.name = std::move(name);
    draft_.plan.steps.push_back(std::move(step));
  }

  // The first local dimension lies outside of the atoms.
  static bool lies_stacked(const Seen& x) {
    return !x.atoms.empty() && !x.view.strides.empty() &&
           x.view.strides.front() > x.strides.front();
  }

  // How value `id` is seen; what only moves and constants are lowered when first asked for.
  Seen seen(Frame& f, int id) {
    if (f.seen[at(id)].view.buffer >= 0) return f.seen[at(id)];
    const ValueInfo& info = info_of(f, id);
    DEW_CHECK(info.node >= 0, format("{}: input {} is not bound", f.program.name(), info.name));
    const Node& node = f.program.nodes()[at(info.node)];
    if (f.absorbed[at(info.node)]) return f.seen[at(id)] = seen(f, node.operands[0]);
    DEW_CHECK(needs_no_step(node),
              format("{}: %{} is used before it is made", f.program.name(), id));
    return f.seen[at(id)] =
               node.operands.empty() ? constant(node, info.type) : look(f, node, info.type);
  }

  // Splat constants are one element, repeated. All devices have the same ones, but for their
  // number.
  Seen constant(const Node& node, const Type& type) {
    if (node.op == &device_index_op) return member_numbers(std::get<GroupAttrs>(node.attrs));
    const bool splat = node.op == &constant_op;
    Type stored = type;
    if (splat) stored.shape.clear();
    Attrs attrs = std::get<Fill>(node.attrs);
    std::get<Fill>(attrs).type = stored;
    Seen x{.view = {stored_constant(node.op, attrs, stored), type, row_major_strides(type.shape)},
           .atoms = {},
           .strides = {}};
    if (splat) x.view.strides.assign(type.shape.size(), 0);
    return x;
  }

  Seen member_numbers(const GroupAttrs& group) {
    const Type counted{DType::i32, {group.members}};
    Seen x{.view = {stored_constant(&iota_op, Fill{counted, 0}, counted), counted, {1}},
           .atoms = {},
           .strides = {}};
    GroupAttrs along_first = group;
    along_first.dims = {0};
    x = own_part_view(std::move(x), along_first, atom_sizes_);
    x.view.type.shape.clear();
    x.view.strides.clear();
    return x;
  }

  int stored_constant(const OpDef* op, const Attrs& attrs, const Type& type) {
    for (std::size_t b = 0; b < draft_.plan.buffers.size(); ++b) {
      const Buffer& other = draft_.plan.buffers[b];
      if (other.kind == BufferKind::constant && other.op == op && other.attrs == attrs)
        return static_cast<int>(b);
    }
    const int buffer = new_buffer(type, -1);
    Buffer& made = draft_.plan.buffers.back();
    made.kind = BufferKind::constant;
    made.op = op;
    made.attrs = attrs;
    return buffer;
  }

  Seen look(Frame& f, const Node& node, const Type& type) {
    Seen x = seen(f, node.operands.front());
    if (node.op->has(kCollective)) return moved(f, node, std::move(x));
    View& v = x.view;
    if (node.op == &reshape_op) {
      std::optional<Dims> strides = reshaped_strides(v.type.shape, v.strides, type.shape);
      if (!strides) {
        x = dense(f, x);
        strides = reshaped_strides(v.type.shape, v.strides, type.shape);
      }
      v.strides = *strides;
    } else if (node.op == &broadcast_op) {
      const Dims& dims = std::get<NewShape>(node.attrs).dims;
      Dims strides(type.shape.size(), 0);
      for (std::size_t d = 0; d < dims.size(); ++d) strides[at(dims[d])] = v.strides[d];
      v.strides = strides;
    } else if (node.op == &transpose_op) {
      Dims strides;
      for (const std::int64_t d : std::get<Permutation>(node.attrs).order)
        strides.push_back(v.strides[at(d)]);
      v.strides = strides;
    } else {
      DEW_CHECK(node.op == &slice_op, format("{} is not known as a view", node.op->name));
      const Dims& start = std::get<SliceDims>(node.attrs).start;
      for (std::size_t d = 0; d < start.size(); ++d) v.offset += start[d] * v.strides[d];
    }
    v.type = type;
    return x;
  }

  // Collectives that send but compute nothing: with all devices' parts in one memory they are other
  // views of it, after a copy where the parts do not lie in a row.
  Seen moved(Frame& f, const Node& node, Seen x) {
    const auto& group = std::get<GroupAttrs>(node.attrs);
    if (node.op == &own_part_op) return own_part_view(std::move(x), group, atom_sizes_);
    const bool gathers = node.op == &all_gather_op || node.op == &all_to_all_op;
    const auto view = [&](const Seen& from) {
      return gathers ? gathered_view(from, group, atom_sizes_)
                     : permuted_view(from, group, atom_sizes_);
    };
    std::optional<Seen> out = view(x);
    if (!out) out = view(gathers ? in_a_row(f, x, group) : members_in_a_row(f, x, group));
    DEW_CHECK(out.has_value(), format("{} of parts that do not lie in a row", node.op->name));
    if (node.op == &all_to_all_op) return own_part_view(std::move(*out), group, atom_sizes_);
    return *out;
  }

  // A copy in which the members' parts of a dimension follow one another.
  Seen in_a_row(Frame& f, const Seen& x, const GroupAttrs& group) {
    Dims rest;
    for (const std::int64_t a : x.atoms) {
      if (!contains(group.atoms, a)) rest.push_back(a);
    }
    Type whole = x.view.type;
    whole.shape[at(group.dims.front())] *= group.members;
    GroupAttrs parts = group;
    parts.dims = {group.dims.front()};
    Seen made = own_part_view(new_memory(whole, rest, lies_stacked(x), f.loop), parts, atom_sizes_);
    copy(x, made, "gather");
    return made;
  }

  // A copy in which the members are numbered by one stride.
  Seen members_in_a_row(Frame& f, const Seen& x, const GroupAttrs& group) {
    Dims atoms;
    for (const std::int64_t a : x.atoms) {
      if (!contains(group.atoms, a)) atoms.push_back(a);
    }
    atoms.insert(atoms.end(), group.atoms.begin(), group.atoms.end());
    return dense(f, x, atoms);
  }

  // The same elements with atoms and dimensions in order, without gaps; a copy if they are not.
  Seen dense(Frame& f, const Seen& x) { return dense(f, x, x.atoms); }
  Seen dense(Frame& f, const Seen& x, const Dims& atoms) {
    if (is_dense(expanded(x, atoms, false, atom_sizes_))) {
      Seen same = x;
      same.view.strides = row_major_strides(x.view.type.shape);  // dimensions of 1 had any
      same.atoms = atoms;
      same.strides.clear();
      for (const std::int64_t a : atoms) same.strides.push_back(x.stride(a));
      return same;
    }
    Seen made = new_memory(x.view.type, atoms, false, f.loop);
    copy(x, made, "dense");
    return made;
  }

  void lower_nodes(Frame& f) {
    for (const Unit& unit : fuse(f.program)) {
      const Node& first = f.program.nodes()[at(unit.nodes.front())];
      if (unit.pointwise) {
        lower_group(f, unit);
      } else if (first.op == &scan_op) {
        lower_scan(f, first);
      } else if (first.op == &dot_op) {
        lower_dot(f, first);
      } else if (first.op == &all_reduce_op || first.op == &reduce_scatter_op) {
        lower_sum(f, first);
      } else {
        lower_node(f, first);
      }
    }
  }

  static Step step_of(const Node& node) {
    Step step;
    step.op = node.op;
    step.attrs = node.attrs;
    step.name = format("%{} {}", node.first_result, node.op->name);
    return step;
  }

  void lower_dot(Frame& f, const Node& node) {
    std::vector<Seen> in;
    for (const int id : node.operands) {
      const Seen x = seen(f, id);
      const bool repeats = std::ranges::find(x.view.strides, 0) != x.view.strides.end();
      in.push_back(repeats ? dense(f, x) : x);
    }
    const ValueInfo& info = info_of(f, node.first_result);
    const Seen out = new_memory(info.type, result_atoms(info), info.stacked, f.loop);
    f.seen[at(node.first_result)] = out;
    Step step = step_of(node);
    place_dot(step, in[0], in[1], out, atom_sizes_);
    draft_.plan.steps.push_back(std::move(step));
    check_replicas(info, out, draft_.plan.steps.back().name);
  }

  // A sum over devices is a sum over the dimensions of a group's atoms.
  void lower_sum(Frame& f, const Node& node) {
    const auto& group = std::get<GroupAttrs>(node.attrs);
    Seen x = seen(f, node.operands[0]);
    const bool stacked = lies_stacked(x);
    if (!is_dense(expanded(x, x.atoms, stacked, atom_sizes_))) x = dense(f, x);
    const bool outside = lies_stacked(x);
    Dims rest, summed;
    for (std::size_t i = 0; i < x.atoms.size(); ++i) {
      if (contains(group.atoms, x.atoms[i])) {
        summed.push_back(static_cast<std::int64_t>(i) + (outside ? 1 : 0));
      } else {
        rest.push_back(x.atoms[i]);
      }
    }
    Seen sum = new_memory(x.view.type, rest, outside, f.loop);
    Step step = step_of(node);
    step.op = &reduce_sum_op;
    step.attrs = Axes{summed};
    step.inputs = {expanded(x, x.atoms, outside, atom_sizes_)};
    step.outputs = {expanded(sum, rest, outside, atom_sizes_)};
    draft_.plan.steps.push_back(std::move(step));
    const bool scatters = node.op == &reduce_scatter_op;
    f.seen[at(node.first_result)] =
        scatters ? own_part_view(std::move(sum), group, atom_sizes_) : sum;
  }

  // An op with a kernel for rows that lie one after another.
  void lower_node(Frame& f, const Node& node) {
    Step step = step_of(node);
    std::vector<Seen> in;
    std::vector<Type> out;
    std::vector<Dims> out_atoms;
    for (const int id : node.operands) in.push_back(seen(f, id));
    for (int i = 0; i < node.result_count; ++i) {
      out.push_back(type_of(f, node.first_result + i));
      out_atoms.push_back(result_atoms(info_of(f, node.first_result + i)));
    }
    GroupAttrs vocabulary;
    if (auto* head = std::get_if<HeadAttrs>(&step.attrs); head && !head->atoms.empty())
      vocabulary = take_whole_vocabulary(f, *head, in, out, out_atoms);
    std::vector<Type> types;
    for (const Seen& x : in) types.push_back(x.view.type);
    const FactorRule rule = node.op->factors(step.attrs, types, out);
    const AtomUse use = use_of_atoms(rule, in, out_atoms);
    for (const std::int64_t a : use.looped) step.outer.push_back(atom_sizes_[at(a)]);
    if (auto* by = std::get_if<PadDims>(&step.attrs); by && use.elementwise) {
      // No dimension grows, so none of those that atoms add does.
      by->low.resize(by->low.size() + in[0].atoms.size(), 0);
      by->high.resize(by->high.size() + in[0].atoms.size(), 0);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool rows = has_factor_first(rule.operands[i], use.factor);
      const bool base = node.op->has(kAccumulates) && i == 0;
      step.inputs.push_back(operand_view(f, node, in[i], use, in.front(), rows, base));
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Seen made = new_operand(f, out[i], out_atoms[i], use, in);
      const bool rows = has_factor_first(rule.results[i], use.factor);
      step.outputs.push_back(use.elementwise
                                 ? expanded(made, made.atoms, lies_stacked(made), atom_sizes_)
                                 : part_at_position(made, use, rows, atom_sizes_));
      f.seen[at(node.first_result + static_cast<int>(i))] =
          vocabulary.members > 1 && i == 5 ? own_part_view(made, vocabulary, atom_sizes_) : made;
    }
    draft_.plan.steps.push_back(std::move(step));
    for (int i = 0; i < node.result_count; ++i) {
      const int id = node.first_result + i;
      check_replicas(info_of(f, id), f.seen[at(id)], format("%{} {}", id, node.op->name));
    }
  }

  static bool has_factor_first(const FactorRule::DimFactors& dims, int factor) {
    return factor >= 0 && !dims.empty() && dims.front() == std::vector<int>{factor};
  }

  // Memory of a result: with the atoms that the step loops over outermost; element by element, in
  // the order of the operands.
  Seen new_operand(Frame& f, const Type& type, const Dims& atoms, const AtomUse& use,
                   const std::vector<Seen>& in) {
    if (use.elementwise) return new_memory(type, in[0].atoms, lies_stacked(in[0]), f.loop);
    Dims order;
    for (const auto* list : {&use.looped, &use.merged}) {
      for (const std::int64_t a : *list) {
        if (contains(atoms, a)) order.push_back(a);
      }
    }
    return new_memory(type, order, false, f.loop);
  }

  View operand_view(Frame& f, const Node& node, const Seen& x, const AtomUse& use,
                    const Seen& first, bool rows, bool base) {
    if (use.elementwise) {
      if (x.view.type.rank() == 0) return x.view;
      return in_order_of(f, x, first);
    }
    // Reductions read any strides, and a base is replaced in place or copied by its kernel.
    const bool any_strides = base || node.op == &sum_squares_op || node.op == &reduce_sum_op ||
                             node.op == &reduce_max_op;
    if (any_strides && use.merged.empty()) return part_at_position(x, use, rows, atom_sizes_);
    Dims order;
    for (const std::int64_t a : use.looped) {
      if (x.has(a)) order.push_back(a);
    }
    const auto looped = static_cast<std::ptrdiff_t>(order.size());
    if (rows) order.insert(order.end(), use.merged.begin(), use.merged.end());
    // Positions may lie anywhere; what one of them reads is dense.
    const Dims inner(order.begin() + looped, order.end());
    const bool fits = is_dense(expanded(x, inner, false, atom_sizes_));
    return part_at_position(fits ? x : copied(f, x, order), use, rows, atom_sizes_);
  }

  Seen copied(Frame& f, const Seen& x, const Dims& atoms) {
    Seen made = new_memory(x.view.type, atoms, false, f.loop);
    copy(x, made, "dense");
    return made;
  }

  // All parts as one array that lies as `first` does.
  View in_order_of(Frame& f, const Seen& x, const Seen& first) {
    const bool stacked = lies_stacked(first);
    View v = expanded(x, first.atoms, stacked, atom_sizes_);
    if (is_dense(v)) return v;
    const Seen made = new_memory(x.view.type, first.atoms, stacked, f.loop);
    copy(x, made, "dense");
    return expanded(made, first.atoms, stacked, atom_sizes_);
  }

  // With all parts of the vocabulary in one memory the op needs no reductions of its own: it sees
  // the whole table, and labels that count from its beginning, as the first member has them.
  GroupAttrs take_whole_vocabulary(Frame& f, HeadAttrs& head, std::vector<Seen>& in,
                                   std::vector<Type>& out, std::vector<Dims>& out_atoms) {
    GroupAttrs group{.atoms = head.atoms, .members = head.members, .dims = {0}, .to = {}};
    std::optional<Seen> table = gathered_view(in[1], group, atom_sizes_);
    if (!table) table = gathered_view(in_a_row(f, in[1], group), group, atom_sizes_);
    in[1] = *table;
    for (const std::int64_t a : group.atoms) remove_atom(in[2], a);
    if (head.gradients) {
      out[5].shape[0] *= group.members;
      std::erase_if(out_atoms[5], [&](std::int64_t a) { return contains(group.atoms, a); });
    }
    head.atoms.clear();
    head.members = 1;
    return group;
  }

  void lower_group(Frame& f, const Unit& unit) {
    Step step = GroupBuilder(*this, f, unit).build();
    if (step.outputs.empty()) return;  // dead code
    const std::string name = step.name;
    draft_.plan.steps.push_back(std::move(step));
    for (const int n : unit.nodes) {
      const int id = f.program.nodes()[at(n)].first_result;
      if (f.seen[at(id)].view.buffer >= 0) check_replicas(info_of(f, id), f.seen[at(id)], name);
    }
  }

  // A group's registers are its inputs in order of first use, then its ops.
  class GroupBuilder {
   public:
    GroupBuilder(Lowering& lowering, Frame& f, const Unit& unit)
        : lowering_(lowering), f_(f), unit_(unit) {}

    Step build() {
      const Program& p = f_.program;
      const Node& first = p.nodes()[at(unit_.nodes.front())];
      const ValueInfo& info = info_of(f_, first.first_result);
      place(info);
      for (const int n : unit_.nodes) {
        for (const int id : p.nodes()[at(n)].operands) add_input(id);
      }
      int next = static_cast<int>(step_.inputs.size());
      for (const int n : unit_.nodes) registers_[p.nodes()[at(n)].first_result] = next++;
      for (const int n : unit_.nodes) add_op(p.nodes()[at(n)]);
      add_outputs();
      step_.name = format("%{} fused", first.first_result);
      return std::move(step_);
    }

   private:
    // The iteration space is a result's memory.
    void place(const ValueInfo& info) {
      atoms_ = lowering_.result_atoms(info);
      stacked_ = info.stacked;
      const MemoryLayout layout = layout_of(info.type, atoms_, stacked_, lowering_.atom_sizes_);
      step_.group.shape = layout.memory.shape;
    }

    bool made_here(int id) const {
      const int n = f_.program.values()[at(id)].node;
      return n >= 0 && std::ranges::binary_search(unit_.nodes, n);
    }

    void add_input(int id) {
      if (made_here(id) || registers_.contains(id)) return;
      Seen x = lowering_.seen(f_, id);
      const Type& type = type_of(f_, id);
      if (type.rank() == 0) {  // stands for all
        const Type& result = type_of(f_, f_.program.nodes()[at(unit_.nodes.front())].first_result);
        x.view.type.shape = result.shape;
        x.view.strides.assign(result.shape.size(), 0);
      }
      const View v = expanded(x, atoms_, stacked_, lowering_.atom_sizes_);
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
        const Seen made = lowering_.new_memory(type_of(f_, id), atoms_, stacked_, f_.loop);
        f_.seen[at(id)] = made;
        step_.outputs.push_back(expanded(made, atoms_, stacked_, lowering_.atom_sizes_));
      }
    }

    Lowering& lowering_;
    Frame& f_;
    const Unit& unit_;
    Step step_;
    Dims atoms_;
    bool stacked_ = false;
    std::map<int, int> registers_;
  };

  // What a body input looks like from inside a loop.
  static Seen slice_of(const Seen& stacked, const Type& type) {
    Seen x = stacked;
    x.view.type = type;
    x.view.loop_stride = stacked.view.strides.front();
    x.view.strides.erase(x.view.strides.begin());
    return x;
  }

  void lower_scan(Frame& f, const Node& node) {
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

  static bool same_place(const Seen& x, const Seen& y) {
    return x.view.buffer == y.view.buffer && x.view.strides == y.view.strides &&
           x.atoms == y.atoms && x.strides == y.strides;
  }

  // Results that are inputs of the body are stacked before anything overwrites them; carries are
  // replaced last, through temporaries if one of them is another's old value.
  void lower_body(Frame& inner, const std::vector<Seen>& carry, const std::vector<Seen>& stacked) {
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
      if (!same_place(next[k], carry[k]))
        copy(next[k], carry[k], "carry " + body.outputs()[k].name);
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

  const Dims atom_sizes_;
  const Replicas replicas_;
  Draft draft_;
  Frame top_;
};

}  // namespace

Draft lower(const Program& program, const Dims& atom_sizes, Replicas replicas) {
  return Lowering(program, atom_sizes, replicas).run();
}

}  // namespace dew
