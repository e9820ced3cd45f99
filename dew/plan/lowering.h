// Programs to steps over buffers, with every value in a buffer of its own: what lower.cc and the
// files beside it share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dew/ops/ops.h"
#include "dew/plan/fuse.h"
#include "dew/plan/passes.h"
#include "dew/plan/seen.h"

namespace dew {

class Lowering {
 public:
  Lowering(const Program& program, MeshPart part, Replicas replicas);

  Draft run();

 private:
  // One program (top level or body) on its way into the plan.
  struct Frame {
    const Program& program;
    int loop = -1;
    std::vector<Seen> seen;  // of values lowered so far; buffer -1: not yet
    std::vector<bool> absorbed = absorbed_conversions(program);
  };
  class GroupBuilder;

  // An exchange that was started and that nobody has waited for.
  struct Pending {
    Step wait;
    std::vector<Step> copies;  // of what it brings, in an order that others ask for
    int loop = -1;

    bool brings(int buffer) const;
  };

  static const ValueInfo& info_of(const Frame& f, int id) {
    return f.program.values()[static_cast<std::size_t>(id)];
  }
  static const Type& type_of(const Frame& f, int id) { return info_of(f, id).type; }
  static Step step_of(const Node& node);

  // ---- steps and memory (lower.cc) ----
  // Appends a step, behind waits for the exchanges whose memory it touches.
  void push(Step step);
  int new_buffer(const Type& type, int loop);
  Seen new_memory(const Type& local, const Dims& atoms, bool stacked, int loop);
  Seen new_value(const ValueInfo& info, int loop);
  // The atoms of a step's result: those over which it differs, behind those that are stored all the
  // same.
  Dims result_atoms(const ValueInfo& info) const;
  // Compares what is stored for the devices that should hold the same as the first of them.
  void check_replicas(const ValueInfo& info, const Seen& made, const std::string& name);
  Step copy_step(const Seen& from, const Seen& to, std::string name) const;
  void copy(const Seen& from, const Seen& to, std::string name);
  // The first local dimension lies outside of the atoms.
  static bool lies_stacked(const Seen& x);

  // ---- values (lower.cc) ----
  // How value `id` is seen; what only moves and constants are lowered when first asked for.
  Seen seen(Frame& f, int id);
  Seen constant(const Node& node, const Type& type);
  int stored_constant(const OpDef* op, const Attrs& attrs, const Type& type);
  Seen look(Frame& f, const Node& node, const Type& type);
  // The same elements with atoms and dimensions in order, without gaps; a copy if they are not.
  Seen dense(Frame& f, const Seen& x) { return dense(f, x, x.atoms); }
  Seen dense(Frame& f, const Seen& x, const Dims& atoms);
  Seen copied(Frame& f, const Seen& x, const Dims& atoms);
  // All parts as one array that lies as `first` does.
  View in_order_of(Frame& f, const Seen& x, const Seen& first);

  // ---- nodes (lower.cc, lower_group.cc) ----
  void lower_nodes(Frame& f);
  void lower_dot(Frame& f, const Node& node);
  // An op with a kernel for rows that lie one after another.
  void lower_node(Frame& f, const Node& node);
  // Memory of a result: with the atoms that the step loops over outermost; element by element, in
  // the order of the operands.
  Seen new_operand(Frame& f, const Type& type, const Dims& atoms, const AtomUse& use,
                   const std::vector<Seen>& in);
  View operand_view(Frame& f, const Node& node, const Seen& x, const AtomUse& use,
                    const Seen& first, bool rows, bool base);
  void lower_group(Frame& f, const Unit& unit);

  // ---- between devices (lower_collectives.cc) ----
  Seen member_numbers(const GroupAttrs& group);
  Seen moved(Frame& f, const Node& node, Seen x);
  Seen moved_to_all(Frame& f, const Node& node, Seen x);
  Seen gathered(Frame& f, const Seen& x, const GroupAttrs& group);
  Seen in_a_row(Frame& f, const Seen& x, const GroupAttrs& group);
  Seen members_in_a_row(Frame& f, const Seen& x, const GroupAttrs& group);
  void lower_sum(Frame& f, const Node& node);
  Seen sum_here(Frame& f, const Node& node, const GroupAttrs& group);
  GroupAttrs take_whole_vocabulary(Frame& f, const Node& node, HeadAttrs& head,
                                   std::vector<Seen>& in, std::vector<Type>& out,
                                   std::vector<Dims>& out_atoms);
  Seen labels_of_all(Frame& f, int counted);

  // ---- between processes (lower_collectives.cc) ----
  bool crosses(std::int64_t atom) const { return part_.crosses(atom); }
  // Those of the atoms that cross, in ascending order.
  Dims crossing(const Dims& atoms) const;
  std::int64_t product_of_sizes(const Dims& atoms) const;
  // Of atoms that cross, this process's part.
  Seen own(Seen x) const;
  Seen brought_in(Frame& f, const Seen& x, const Dims& across, const std::string& name);
  Seen sent_to_all(Frame& f, const Seen& x, const Dims& across, std::int64_t cut,
                   const std::string& name);
  Seen reduced(Frame& f, const Seen& x, const Dims& across, const std::string& name);
  Seen scattered(Frame& f, const Seen& x, const Dims& across, const std::string& name);
  void exchange(Frame& f, const OpDef& op, const Dims& across, const View& from, const View& to,
                const std::string& name);
  void arrange(const Frame& f, const Seen& from, const Seen& made, std::string name);
  void finish(Pending& pending);
  void wait_for_buffer(int buffer, bool written);
  void wait_for_loop(int loop);

  // ---- loops (lower_scan.cc) ----
  // What a body input looks like from inside a loop.
  static Seen slice_of(const Seen& stacked, const Type& type);
  void lower_scan(Frame& f, const Node& node);
  static bool same_place(const Seen& x, const Seen& y);
  void lower_body(Frame& inner, const std::vector<Seen>& carry, const std::vector<Seen>& stacked);
  static bool is_input_view(const Program& p, int id);

  const MeshPart part_;
  const Dims& atom_sizes_;
  const Replicas replicas_;
  Draft draft_;
  std::vector<Pending> pending_;
  int exchanges_ = 0;
  Frame top_;
};

}  // namespace dew
