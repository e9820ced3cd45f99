#include "dew/plan/lowering.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Dims joined(const Dims& a, const Dims& b) {
  Dims out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

}  // namespace

Seen Lowering::member_numbers(const GroupAttrs& group) {
  const Type counted{DType::i32, {group.members}};
  Seen x{.view = {stored_constant(&iota_op, Fill{counted, 0}, counted), counted, {1}},
         .atoms = {},
         .strides = {}};
  GroupAttrs along_first = group;
  along_first.dims = {0};
  x = own_part_view(std::move(x), along_first, atom_sizes_);
  x.view.type.shape.clear();
  x.view.strides.clear();
  return own(std::move(x));
}

// Collectives that send but compute nothing: with all members' parts in one memory they are other
// views of it, after a copy where the parts do not lie in a row.
Seen Lowering::moved(Frame& f, const Node& node, Seen x) {
  const auto& group = std::get<GroupAttrs>(node.attrs);
  if (node.op == &own_part_op) return own(own_part_view(std::move(x), group, atom_sizes_));
  if (node.op == &all_to_all_op) return moved_to_all(f, node, std::move(x));
  x = brought_in(f, x, crossing(group.atoms), step_of(node).name);
  if (node.op == &all_gather_op) return gathered(f, x, group);
  std::optional<Seen> out = permuted_view(x, group, atom_sizes_);
  if (!out) out = permuted_view(members_in_a_row(f, x, group), group, atom_sizes_);
  DEW_CHECK(out.has_value(), "permute of parts that do not lie in a row");
  return own(std::move(*out));
}

Seen Lowering::gathered(Frame& f, const Seen& x, const GroupAttrs& group) {
  std::optional<Seen> out = gathered_view(x, group, atom_sizes_);
  if (!out) out = gathered_view(in_a_row(f, x, group), group, atom_sizes_);
  DEW_CHECK(out.has_value(), "a gather of parts that do not lie in a row");
  return *out;
}

// Parts of one dimension are gathered, another one is cut. Processes send one another only what the
// receiver keeps, if the group's atoms that cross stand first; all that they have otherwise.
Seen Lowering::moved_to_all(Frame& f, const Node& node, Seen x) {
  const auto& group = std::get<GroupAttrs>(node.attrs);
  const Dims across = crossing(group.atoms);
  GroupAttrs cut = group;
  cut.dims = {group.dims[1]};
  const auto crosses_here = [&](std::int64_t a) { return crosses(a); };
  if (!across.empty() && std::ranges::is_partitioned(group.atoms, crosses_here)) {
    x = sent_to_all(f, x, across, group.dims[1], step_of(node).name);
    std::erase_if(cut.atoms, crosses_here);
    cut.members = product_of_sizes(cut.atoms);
  } else {
    x = brought_in(f, x, across, step_of(node).name);
  }
  x = gathered(f, x, group);
  return cut.atoms.empty() ? x : own(own_part_view(std::move(x), cut, atom_sizes_));
}

// A part of the dimension `cut` for each member of `across`, and theirs for this one.
Seen Lowering::sent_to_all(Frame& f, const Seen& x, const Dims& across, std::int64_t cut,
                           const std::string& name) {
  const GroupAttrs parts{
      .atoms = across, .members = product_of_sizes(across), .dims = {cut}, .to = {}};
  const Seen from = dense(f, own_part_view(x, parts, atom_sizes_), joined(across, x.atoms));
  Seen to = new_memory(from.view.type, from.atoms, false, f.loop);
  exchange(f, start_all_to_all_op, across, expanded(from, from.atoms, false, atom_sizes_),
           expanded(to, to.atoms, false, atom_sizes_), name);
  return to;
}

// The parts of all members of `across`, which become atoms like those inside of a process.
Seen Lowering::brought_in(Frame& f, const Seen& x, const Dims& across, const std::string& name) {
  if (across.empty()) return x;
  const Seen from = dense(f, x);
  Seen to = new_memory(from.view.type, joined(across, from.atoms), false, f.loop);
  exchange(f, start_all_gather_op, across, expanded(from, from.atoms, false, atom_sizes_),
           expanded(to, to.atoms, false, atom_sizes_), name);
  return to;
}

// A copy in which the members' parts of a dimension follow one another.
Seen Lowering::in_a_row(Frame& f, const Seen& x, const GroupAttrs& group) {
  Dims rest;
  for (const std::int64_t a : x.atoms) {
    if (!contains(group.atoms, a)) rest.push_back(a);
  }
  Type whole = x.view.type;
  whole.shape[at(group.dims.front())] *= group.members;
  GroupAttrs parts = group;
  parts.dims = {group.dims.front()};
  Seen made = own_part_view(new_memory(whole, rest, lies_stacked(x), f.loop), parts, atom_sizes_);
  arrange(f, x, made, "gather");
  return made;
}

// A copy in which the members are numbered by one stride.
Seen Lowering::members_in_a_row(Frame& f, const Seen& x, const GroupAttrs& group) {
  Dims atoms;
  for (const std::int64_t a : x.atoms) {
    if (!contains(group.atoms, a)) atoms.push_back(a);
  }
  atoms.insert(atoms.end(), group.atoms.begin(), group.atoms.end());
  return dense(f, x, atoms);
}

// First over the devices of this process, then over processes.
void Lowering::lower_sum(Frame& f, const Node& node) {
  const auto& group = std::get<GroupAttrs>(node.attrs);
  const Dims across = crossing(group.atoms);
  const std::string name = step_of(node).name;
  Seen x = sum_here(f, node, group);
  if (node.op == &reduce_scatter_op) x = own_part_view(std::move(x), group, atom_sizes_);
  f.seen[at(node.first_result)] = across.empty()              ? x
                                  : node.op == &all_reduce_op ? reduced(f, x, across, name)
                                                              : scattered(f, x, across, name);
}

// A sum over devices is a sum over the dimensions of a group's atoms.
Seen Lowering::sum_here(Frame& f, const Node& node, const GroupAttrs& group) {
  Seen x = seen(f, node.operands[0]);
  if (crossing(group.atoms).size() == group.atoms.size()) return x;
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
  push(std::move(step));
  return sum;
}

Seen Lowering::reduced(Frame& f, const Seen& x, const Dims& across, const std::string& name) {
  const bool in_place = is_dense(expanded(x, x.atoms, lies_stacked(x), atom_sizes_));
  const Seen from = in_place ? x : dense(f, x);
  const bool stacked = lies_stacked(from);
  Seen to = new_memory(from.view.type, from.atoms, stacked, f.loop);
  exchange(f, start_all_reduce_op, across, expanded(from, from.atoms, stacked, atom_sizes_),
           expanded(to, to.atoms, stacked, atom_sizes_), name);
  return to;
}

// `x` has a part for each member.
Seen Lowering::scattered(Frame& f, const Seen& x, const Dims& across, const std::string& name) {
  Dims rest = x.atoms;
  std::erase_if(rest, [&](std::int64_t a) { return contains(across, a); });
  const Seen from = dense(f, x, joined(across, rest));
  Seen to = new_memory(from.view.type, rest, false, f.loop);
  exchange(f, start_reduce_scatter_op, across, expanded(from, from.atoms, false, atom_sizes_),
           expanded(to, rest, false, atom_sizes_), name);
  return to;
}

// With all parts of the vocabulary in one memory the op needs no reductions of its own: it sees the
// whole table, and labels that count from its beginning, as the first member has them.
GroupAttrs Lowering::take_whole_vocabulary(Frame& f, const Node& node, HeadAttrs& head,
                                           std::vector<Seen>& in, std::vector<Type>& out,
                                           std::vector<Dims>& out_atoms) {
  GroupAttrs group{.atoms = head.atoms, .members = head.members, .dims = {0}, .to = {}};
  const Dims across = crossing(group.atoms);
  in[1] = gathered(f, brought_in(f, in[1], across, step_of(node).name), group);
  if (across.empty()) {
    for (const std::int64_t a : group.atoms) remove_atom(in[2], a);
  } else {
    in[2] = labels_of_all(f, node.operands[2]);
  }
  if (head.gradients) {
    out[5].shape[0] *= group.members;
    std::erase_if(out_atoms[5], [&](std::int64_t a) { return contains(group.atoms, a); });
  }
  head.atoms.clear();
  head.members = 1;
  return group;
}

// Labels as they were before each member took off where its part of the vocabulary begins.
Seen Lowering::labels_of_all(Frame& f, int counted) {
  const int n = info_of(f, counted).node;
  DEW_CHECK(n >= 0 && f.program.nodes()[at(n)].op == &sub_op,
            format("{}: %{} are no labels less a number", f.program.name(), counted));
  return seen(f, f.program.nodes()[at(n)].operands[0]);
}

// ---- between processes ----

Dims Lowering::crossing(const Dims& atoms) const {
  Dims out;
  for (const std::int64_t a : atoms) {
    if (crosses(a)) out.push_back(a);
  }
  std::ranges::sort(out);
  return out;
}

std::int64_t Lowering::product_of_sizes(const Dims& atoms) const {
  std::int64_t product = 1;
  for (const std::int64_t a : atoms) product *= atom_sizes_[at(a)];
  return product;
}

Seen Lowering::own(Seen x) const {
  for (const std::int64_t a : crossing(x.atoms)) {
    x.view.offset += part_.place[at(a)] * x.stride(a);
    remove_atom(x, a);
  }
  return x;
}

void Lowering::exchange(Frame& f, const OpDef& op, const Dims& across, const View& from,
                        const View& to, const std::string& name) {
  Step start;
  start.op = &op;
  start.attrs =
      GroupAttrs{.atoms = across, .members = product_of_sizes(across), .dims = {}, .to = {}};
  start.inputs = {from};
  start.outputs = {to};
  start.name = name + " start";
  start.exchange = exchanges_++;
  Step wait = start;
  wait.op = &wait_op;
  wait.name = name + " wait";
  push(std::move(start));
  pending_.push_back({std::move(wait), {}, f.loop});
}

// A copy of what an exchange brings is made behind its wait, wherever that is.
void Lowering::arrange(const Frame& f, const Seen& from, const Seen& made, std::string name) {
  Step step = copy_step(from, made, std::move(name));
  const int read = step.inputs.front().buffer;
  const auto pending = std::ranges::find_if(
      pending_, [&](const Pending& p) { return p.loop == f.loop && p.brings(read); });
  if (pending == pending_.end()) return push(std::move(step));
  pending->copies.push_back(std::move(step));
}

bool Lowering::Pending::brings(int buffer) const {
  const auto writes = [buffer](const Step& s) { return s.outputs.front().buffer == buffer; };
  return writes(wait) || std::ranges::any_of(copies, writes);
}

void Lowering::finish(Pending& pending) {
  draft_.plan.steps.push_back(std::move(pending.wait));
  for (Step& copy : pending.copies) draft_.plan.steps.push_back(std::move(copy));
}

// Nobody may write what is being sent, nor look at what is being received.
void Lowering::wait_for_buffer(int buffer, bool written) {
  for (std::size_t i = 0; i < pending_.size();) {
    const bool sent = written && pending_[i].wait.inputs.front().buffer == buffer;
    if (sent || pending_[i].brings(buffer)) {
      finish(pending_[i]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void Lowering::wait_for_loop(int loop) {
  for (Pending& p : pending_) {
    if (p.loop == loop) finish(p);
  }
  std::erase_if(pending_, [loop](const Pending& p) { return p.loop == loop; });
}

}  // namespace dew
