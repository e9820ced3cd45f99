#include "dew/plan/lowering.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/plan/overlap.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool has_factor_first(const FactorRule::DimFactors& dims, int factor) {
  return factor >= 0 && !dims.empty() && dims.front() == std::vector<int>{factor};
}

}  // namespace

Lowering::Lowering(const Program& program, MeshPart part, Replicas replicas)
    : part_(std::move(part)),
      atom_sizes_(part_.atom_sizes),
      replicas_(replicas),
      top_{program, -1, std::vector<Seen>(program.values().size())} {
  draft_.plan.name = program.name();
}

Draft Lowering::run() {
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
  wait_for_loop(-1);
  return std::move(draft_);
}

Step Lowering::step_of(const Node& node) {
  Step step;
  step.op = node.op;
  step.attrs = node.attrs;
  step.name = format("%{} {}", node.first_result, node.op->name);
  return step;
}

void Lowering::push(Step step) {
  for (const View& v : step.inputs) wait_for_buffer(v.buffer, false);
  for (const View& v : step.outputs) wait_for_buffer(v.buffer, true);
  draft_.plan.steps.push_back(std::move(step));
}

int Lowering::new_buffer(const Type& type, int loop) {
  Buffer buffer;
  buffer.type = type;
  draft_.plan.buffers.push_back(buffer);
  draft_.scopes.push_back({.loop = loop, .carried = false});
  return static_cast<int>(draft_.plan.buffers.size()) - 1;
}

Seen Lowering::new_memory(const Type& local, const Dims& atoms, bool stacked, int loop) {
  MemoryLayout layout = layout_of(local, atoms, stacked, atom_sizes_);
  layout.seen.view.buffer = new_buffer(layout.memory, loop);
  return std::move(layout.seen);
}

Seen Lowering::new_value(const ValueInfo& info, int loop) {
  return new_memory(info.type, info.shards, info.stacked, loop);
}

Dims Lowering::result_atoms(const ValueInfo& info) const {
  if (replicas_ == Replicas::once) return info.shards;
  Dims atoms;
  for (std::int64_t a = 0; a < std::ssize(atom_sizes_); ++a) {
    if (!contains(info.shards, a) && !crosses(a)) atoms.push_back(a);
  }
  atoms.insert(atoms.end(), info.shards.begin(), info.shards.end());
  return atoms;
}

void Lowering::check_replicas(const ValueInfo& info, const Seen& made, const std::string& name) {
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
  push(std::move(step));
}

Step Lowering::copy_step(const Seen& from, const Seen& to, std::string name) const {
  const bool stacked = lies_stacked(to);
  Step step;
  step.inputs = {expanded(from, to.atoms, stacked, atom_sizes_)};
  step.outputs = {expanded(to, to.atoms, stacked, atom_sizes_)};
  step.name = std::move(name);
  return step;
}

void Lowering::copy(const Seen& from, const Seen& to, std::string name) {
  push(copy_step(from, to, std::move(name)));
}

bool Lowering::lies_stacked(const Seen& x) {
  return !x.atoms.empty() && !x.view.strides.empty() && x.view.strides.front() > x.strides.front();
}

Seen Lowering::seen(Frame& f, int id) {
  if (f.seen[at(id)].view.buffer >= 0) return f.seen[at(id)];
  const ValueInfo& info = info_of(f, id);
  DEW_CHECK(info.node >= 0, format("{}: input {} is not bound", f.program.name(), info.name));
  const Node& node = f.program.nodes()[at(info.node)];
  if (f.absorbed[at(info.node)]) return f.seen[at(id)] = seen(f, node.operands[0]);
  DEW_CHECK(needs_no_step(node), format("{}: %{} is used before it is made", f.program.name(), id));
  return f.seen[at(id)] =
             node.operands.empty() ? constant(node, info.type) : look(f, node, info.type);
}

Seen Lowering::constant(const Node& node, const Type& type) {
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

int Lowering::stored_constant(const OpDef* op, const Attrs& attrs, const Type& type) {
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

Seen Lowering::look(Frame& f, const Node& node, const Type& type) {
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

Seen Lowering::dense(Frame& f, const Seen& x, const Dims& atoms) {
  if (is_dense(expanded(x, atoms, false, atom_sizes_))) {
    Seen same = x;
    same.view.strides = row_major_strides(x.view.type.shape);  // dimensions of 1 had any
    same.atoms = atoms;
    same.strides.clear();
    for (const std::int64_t a : atoms) same.strides.push_back(x.stride(a));
    return same;
  }
  Seen made = new_memory(x.view.type, atoms, false, f.loop);
  arrange(f, x, made, "dense");
  return made;
}

void Lowering::lower_nodes(Frame& f) {
  for (const auto& [unit, moves] : order_items(f.program, fuse(f.program), part_)) {
    if (moves >= 0) {
      seen(f, f.program.nodes()[at(moves)].first_result);
      continue;
    }
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

void Lowering::lower_dot(Frame& f, const Node& node) {
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
  push(std::move(step));
  check_replicas(info, out, draft_.plan.steps.back().name);
}

void Lowering::lower_node(Frame& f, const Node& node) {
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
    vocabulary = take_whole_vocabulary(f, node, *head, in, out, out_atoms);
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
        vocabulary.members > 1 && i == 5 ? own(own_part_view(made, vocabulary, atom_sizes_)) : made;
  }
  push(std::move(step));
  for (int i = 0; i < node.result_count; ++i) {
    const int id = node.first_result + i;
    check_replicas(info_of(f, id), f.seen[at(id)], format("%{} {}", id, node.op->name));
  }
}

Seen Lowering::new_operand(Frame& f, const Type& type, const Dims& atoms, const AtomUse& use,
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

View Lowering::operand_view(Frame& f, const Node& node, const Seen& x, const AtomUse& use,
                            const Seen& first, bool rows, bool base) {
  if (use.elementwise) {
    if (x.view.type.rank() == 0) return x.view;
    return in_order_of(f, x, first);
  }
  // Reductions read any strides, and a base is replaced in place or copied by its kernel.
  const bool any_strides =
      base || node.op == &sum_squares_op || node.op == &reduce_sum_op || node.op == &reduce_max_op;
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

Seen Lowering::copied(Frame& f, const Seen& x, const Dims& atoms) {
  Seen made = new_memory(x.view.type, atoms, false, f.loop);
  arrange(f, x, made, "dense");
  return made;
}

View Lowering::in_order_of(Frame& f, const Seen& x, const Seen& first) {
  const bool stacked = lies_stacked(first);
  View v = expanded(x, first.atoms, stacked, atom_sizes_);
  if (is_dense(v)) return v;
  const Seen made = new_memory(x.view.type, first.atoms, stacked, f.loop);
  arrange(f, x, made, "dense");
  return expanded(made, first.atoms, stacked, atom_sizes_);
}

Draft lower(const Program& program, const MeshPart& part, Replicas replicas) {
  return Lowering(program, part, replicas).run();
}

}  // namespace dew
