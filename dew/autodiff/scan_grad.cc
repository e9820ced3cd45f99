#include "dew/autodiff/scan_grad.h"

#include <algorithm>
#include <map>
#include <set>

#include "dew/autodiff/sweep.h"
#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"

namespace dew {
namespace {

// One scan node taken apart. Body inputs and operands come in the same order: carries, slices,
// constants.
struct ScanParts {
  const ScanAttrs attrs;
  std::vector<int> operands;
  std::size_t carries, slices;

  bool is_carry(std::size_t i) const { return i < carries; }
  bool is_slice(std::size_t i) const { return i >= carries && i < carries + slices; }
};

ScanParts take_apart(const Node& node) {
  const auto& attrs = std::get<ScanAttrs>(node.attrs);
  return {attrs, node.operands, static_cast<std::size_t>(attrs.carries),
          static_cast<std::size_t>(attrs.slices)};
}

// The forward body followed by its gradient, in one program. The forward part keeps its value
// numbers.
struct Joint {
  Program program;
  int forward_values = 0;  // values below this number are the forward body's
  std::vector<int>
      cotangent_inputs;  // one for each body output, -1 if that output has no cotangent
  std::vector<int> input_cotangents;  // value for each body input, -1 if it has none
};

// A carry's cotangent has one type in every iteration, that of the body's input; a stacked
// result's comes from outside.
Type incoming_type(const ScanParts& scan, const Program& body, std::size_t i, Value cotangent) {
  const auto value = [&](int id) -> const ValueInfo& {
    return body.values()[static_cast<std::size_t>(id)];
  };
  if (i < scan.carries) return cotangent_type(value(body.inputs()[i]));
  const Type& type = value(body.outputs()[i].value).type;
  return {cotangent.valid() ? cotangent.dtype() : type.dtype, type.shape};
}

// Float carries always take part: a cotangent may reach them in a later iteration only.
bool takes_part(const ScanParts& scan, const std::vector<bool>& needs, std::size_t i) {
  if (!scan.is_carry(i)) return needs[i];
  const Program& body = *scan.attrs.body;
  return is_float(body.values()[static_cast<std::size_t>(body.inputs()[i])].type.dtype);
}

Joint join_with_gradient(const ScanParts& scan, std::span<const Value> cotangents,
                         const std::vector<bool>& needs, Remat remat) {
  Joint joint{.program = *scan.attrs.body, .cotangent_inputs = {}, .input_cotangents = {}};
  Program& p = joint.program;
  joint.forward_values = static_cast<int>(p.values().size());
  std::vector<Value> wrt;
  const std::vector<int> inputs = p.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (takes_part(scan, needs, i)) wrt.push_back(p.value(inputs[i]));
  }
  Sweep sweep(p, wrt,
              [&](int node, std::span<const Value> inner, const std::vector<bool>& inner_needs) {
                return scan_gradient(p, node, inner, inner_needs, remat);
              });
  const std::vector<Output> outputs = p.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Type type = incoming_type(scan, p, i, cotangents[i]);
    const bool wanted = i < scan.carries ? takes_part(scan, needs, i) : cotangents[i].valid();
    if (!wanted) {
      joint.cotangent_inputs.push_back(-1);
      continue;
    }
    const Value g = p.input(format("cotangent/{}", outputs[i].name), type);
    p.set_like(g, outputs[i].value);
    joint.cotangent_inputs.push_back(g.id);
    sweep.contribute(p.value(outputs[i].value), g);
  }
  sweep.run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value total = takes_part(scan, needs, i) ? sweep.total(inputs[i]) : Value{};
    joint.input_cotangents.push_back(total.id);
  }
  return joint;
}

// Which forward values the backward body reads as residuals; the rest of what it uses, it makes
// again.
class ResidualChoice {
 public:
  ResidualChoice(const ScanParts& scan, const Joint& joint, Remat remat)
      : joint_(joint), remat_(remat) {
    for (std::size_t i = scan.carries;
         i < joint.program.inputs().size() && i < scan.operands.size(); ++i) {
      given_.insert(joint.program.inputs()[i]);  // slices and constants are passed again
    }
    for (const int id : used_by_gradient()) wanted_.insert(id);
    if (remat == Remat::none) {
      choose_all_but_cheap();
    } else {
      choose_named();
    }
  }

  const std::set<int>& saved() const { return saved_; }
  bool given(int id) const { return given_.contains(id); }

 private:
  const ValueInfo& info(int id) const {
    return joint_.program.values()[static_cast<std::size_t>(id)];
  }
  const Node& node_of(int id) const {
    return joint_.program.nodes()[static_cast<std::size_t>(info(id).node)];
  }
  bool carry_input(int id) const { return info(id).node < 0 && !given(id); }

  // Forward values that nodes of the backward part use directly.
  std::vector<int> used_by_gradient() const {
    std::vector<int> used;
    for (const Node& node : joint_.program.nodes()) {
      if (node.first_result < joint_.forward_values) continue;
      for (const int id : node.operands) {
        if (id < joint_.forward_values) used.push_back(id);
      }
    }
    return used;
  }

  void choose_all_but_cheap() {
    for (const int id : wanted_) {
      if (!given(id) && !cheap(id)) saved_.insert(id);
    }
    // Ascending, so that operands are decided before what is made from them.
    available_.assign(static_cast<std::size_t>(joint_.forward_values), 0);
    for (int id = 0; id < joint_.forward_values; ++id) {
      if (wanted_.contains(id) && !given(id) && !makeable(id)) saved_.insert(id);
      available_[static_cast<std::size_t>(id)] = given(id) || saved_.contains(id) || makeable(id);
    }
  }

  // Everything wanted is reachable from the carried values, the named ones and what is given.
  void choose_named() {
    for (int id = 0; id < joint_.forward_values; ++id) {
      if (carry_input(id) ||
          (remat_ == Remat::save_list && info(id).node >= 0 && !info(id).name.empty()))
        saved_.insert(id);
    }
  }

  bool cheap(int id) const {
    if (info(id).node < 0) return false;
    const OpDef& op = *node_of(id).op;
    return op.has(kPointwise) || op.has(kView) || op.has(kNorm) || node_of(id).operands.empty();
  }

  // Can be made by cheap ops from values that can: saved and given ones, or such again.
  bool makeable(int id) const {
    if (!cheap(id)) return false;
    return std::ranges::all_of(node_of(id).operands, [&](int operand) {
      return available_[static_cast<std::size_t>(operand)] != 0;
    });
  }

  const Joint& joint_;
  Remat remat_;
  std::set<int> given_, wanted_, saved_;
  std::vector<char> available_;  // by forward value
};

// Builds the backward body: takes what it can as inputs and copies the nodes that its results need.
class BackwardBody {
 public:
  BackwardBody(const ScanParts& scan, const Joint& joint, const ResidualChoice& residuals)
      : scan_(scan),
        joint_(joint),
        residuals_(residuals),
        body_(scan.attrs.body->name() + "_grad"),
        clone_(joint.program, body_) {
    body_.set_likes_of(scan.attrs.body->name());
    mark_needed();
  }

  // Joint value numbers of the body's inputs, by group, in order; accumulators are numbered by body
  // input instead.
  std::vector<int> carry_cotangents, residual_slices, forward_slices, cotangent_slices,
      forward_constants;
  std::vector<std::size_t> accumulated,
      sliced;  // forward body inputs whose cotangents come out as carries, as slices

  Program build() {
    declare_inputs();
    for (const Node& node : joint_.program.nodes()) {
      if (node_needed(node)) copy(node);
    }
    declare_outputs();
    finish_likes();
    return std::move(body_);
  }

 private:
  const ValueInfo& info(int id) const {
    return joint_.program.values()[static_cast<std::size_t>(id)];
  }

  bool node_needed(const Node& node) const {
    for (int i = 0; i < node.result_count; ++i) {
      if (needed_.contains(node.first_result + i) &&
          !residuals_.saved().contains(node.first_result + i))
        return true;
    }
    return false;
  }

  // Everything that the cotangents of inputs are made from, back to saved and given values.
  void mark_needed() {
    std::vector<int> stack;
    for (const int id : joint_.input_cotangents) {
      if (id >= 0) stack.push_back(id);
    }
    while (!stack.empty()) {
      const int id = stack.back();
      stack.pop_back();
      if (!needed_.insert(id).second || info(id).node < 0) continue;
      if (residuals_.saved().contains(id)) continue;
      for (const int operand :
           joint_.program.nodes()[static_cast<std::size_t>(info(id).node)].operands)
        stack.push_back(operand);
    }
  }

  void input(int id, const std::string& name) {
    clone_.map(id, body_.input(name, info(id).type, info(id).weight));
    likes_.push_back(id);
  }

  void declare_inputs() {
    const std::vector<int>& inputs = joint_.program.inputs();
    const std::size_t forward_inputs = scan_.operands.size();
    const std::vector<int>& from_outside = joint_.cotangent_inputs;
    for (std::size_t i = 0; i < scan_.carries; ++i) {
      if (from_outside[i] < 0) continue;
      carry_cotangents.push_back(from_outside[i]);
      input(from_outside[i], info(from_outside[i]).name);
    }
    for (std::size_t i = 0; i < forward_inputs; ++i) {
      if (scan_.is_carry(i) || joint_.input_cotangents[i] < 0) continue;
      (scan_.is_slice(i) ? sliced : accumulated).push_back(i);
    }
    for (const std::size_t i : accumulated) {
      const ValueInfo& of = info(inputs[i]);
      accumulators_.push_back(body_.input("sum/" + of.name, cotangent_type(of)));
      body_.set_like(accumulators_.back(), inputs[i]);
    }
    for (const int id : residuals_.saved()) {
      if (!needed_.contains(id)) continue;
      residual_slices.push_back(id);
      input(id, format("residual/{}", id));
    }
    const auto pass_again = [&](std::size_t first, std::size_t last, std::vector<int>& group) {
      for (std::size_t i = first; i < last; ++i) {
        if (!needed_.contains(inputs[i])) continue;
        group.push_back(inputs[i]);
        input(inputs[i], info(inputs[i]).name);
      }
    };
    pass_again(scan_.carries, scan_.carries + scan_.slices, forward_slices);
    for (std::size_t i = scan_.carries; i < from_outside.size(); ++i) {
      if (from_outside[i] < 0) continue;
      cotangent_slices.push_back(from_outside[i]);
      input(from_outside[i], info(from_outside[i]).name);
    }
    pass_again(scan_.carries + scan_.slices, forward_inputs, forward_constants);
  }

  // A node may be made again for one result while another one is saved: the saved one stays the
  // residual.
  void copy(const Node& node) {
    std::map<int, Value> kept;
    for (int i = 0; i < node.result_count; ++i) {
      if (clone_.has(node.first_result + i))
        kept[node.first_result + i] = clone_[node.first_result + i];
    }
    clone_.clone_node(node);
    for (const auto& [id, value] : kept) clone_.map(id, value);
    for (int i = 0; i < node.result_count; ++i) {
      if (!kept.contains(node.first_result + i)) likes_.push_back(node.first_result + i);
    }
  }

  void declare_outputs() {
    for (std::size_t i = 0; i < scan_.carries; ++i) {
      if (joint_.cotangent_inputs[i] < 0) continue;
      body_.output(format("carry/{}", i), cotangent_of(i));
    }
    for (std::size_t k = 0; k < accumulated.size(); ++k) {
      const Value sum = add(accumulators_[k], cotangent_of(accumulated[k]));
      body_.set_like(sum, joint_.program.inputs()[accumulated[k]]);
      body_.output(format("sum/{}", accumulated[k]), sum);
    }
    for (const std::size_t i : sliced) body_.output(format("slice/{}", i), cotangent_of(i));
  }

  Value cotangent_of(std::size_t input) {
    const int id = joint_.input_cotangents[input];
    if (id >= 0) return clone_[id];
    return constant(body_, cotangent_type(info(joint_.program.inputs()[input])), 0.0);
  }

  // Likes and hints name values of the forward body, whose numbers the joint program shares.
  void finish_likes() {
    for (const int id : likes_) {
      const auto in_forward = [&](int other) {
        return other >= 0 && other < joint_.forward_values;
      };
      // A forward value made again takes its own place.
      if (id < joint_.forward_values) body_.set_like(clone_[id], id);
      if (in_forward(info(id).like)) body_.set_like(clone_[id], info(id).like);
      if (in_forward(info(id).hint)) body_.set_hint(clone_[id], info(id).hint);
    }
  }

  const ScanParts& scan_;
  const Joint& joint_;
  const ResidualChoice& residuals_;
  Program body_;
  Cloner clone_;
  std::set<int> needed_;
  std::vector<Value> accumulators_;
  std::vector<int> likes_;
};

// The scan once more, with residuals as further stacked results; returns them by forward value
// number.
std::map<int, Value> append_forward(Program& program, const ScanParts& scan,
                                    const std::vector<int>& residuals) {
  auto body = std::make_shared<Program>(*scan.attrs.body);
  const std::size_t before = body->outputs().size();
  for (const int id : residuals) body->output(format("residual/{}", id), body->value(id));
  ScanAttrs attrs = scan.attrs;
  attrs.body = body;
  std::vector<Value> operands;
  for (const int id : scan.operands) operands.push_back(program.value(id));
  const std::vector<Value> results = program.add(scan_op, operands, attrs);
  std::map<int, Value> stacked;
  for (std::size_t i = 0; i < residuals.size(); ++i) stacked[residuals[i]] = results[before + i];
  return stacked;
}

// Operands of the backward scan, in the order of its body's inputs.
std::vector<Value> backward_operands(Program& program, const ScanParts& scan, const Joint& joint,
                                     const BackwardBody& back, std::span<const Value> cotangents,
                                     const std::map<int, Value>& residuals) {
  const std::vector<int>& inputs = joint.program.inputs();
  std::map<int, Value> outer;  // joint value -> operand
  for (std::size_t i = 0; i < scan.operands.size(); ++i)
    outer[inputs[i]] = program.value(scan.operands[i]);
  for (std::size_t i = 0; i < joint.cotangent_inputs.size(); ++i) {
    const int id = joint.cotangent_inputs[i];
    if (id < 0) continue;
    outer[id] =
        cotangents[i].valid()
            ? cotangents[i]
            : constant(program, joint.program.values()[static_cast<std::size_t>(id)].type, 0.0);
  }
  std::vector<Value> out;
  for (const int id : back.carry_cotangents) out.push_back(outer.at(id));
  for (const std::size_t i : back.accumulated) {
    out.push_back(constant(
        program, cotangent_type(program.values()[static_cast<std::size_t>(scan.operands[i])]),
        0.0));
  }
  for (const int id : back.residual_slices) out.push_back(residuals.at(id));
  for (const int id : back.forward_slices) out.push_back(outer.at(id));
  for (const int id : back.cotangent_slices) out.push_back(outer.at(id));
  for (const int id : back.forward_constants) out.push_back(outer.at(id));
  return out;
}

}  // namespace

std::vector<Value> scan_gradient(Program& program, int node, std::span<const Value> cotangents,
                                 const std::vector<bool>& needs, Remat remat) {
  const ScanParts scan = take_apart(program.nodes()[static_cast<std::size_t>(node)]);
  const Joint joint = join_with_gradient(scan, cotangents, needs, remat);
  const ResidualChoice residuals(scan, joint, remat);
  BackwardBody back(scan, joint, residuals);
  auto body = std::make_shared<Program>(back.build());
  const std::map<int, Value> stacked = append_forward(program, scan, back.residual_slices);
  const std::vector<Value> operands =
      backward_operands(program, scan, joint, back, cotangents, stacked);
  ScanAttrs attrs{
      .body = body,
      .carries = static_cast<std::int64_t>(back.carry_cotangents.size() + back.accumulated.size()),
      .slices = static_cast<std::int64_t>(back.residual_slices.size() + back.forward_slices.size() +
                                          back.cotangent_slices.size()),
      .length = scan.attrs.length,
      .reverse = !scan.attrs.reverse};
  const std::vector<Value> results = program.add(scan_op, operands, attrs);

  std::vector<Value> out(scan.operands.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < scan.carries; ++i) {
    if (joint.cotangent_inputs[i] >= 0) out[i] = results[next++];
  }
  for (const std::size_t i : back.accumulated) out[i] = results[next++];
  for (const std::size_t i : back.sliced) out[i] = results[next++];
  return out;
}

}  // namespace dew
