// All devices of a mesh in lockstep, each with arrays of its own, by the rows' references: the
// judge of partition(). Collectives are written out as what they mean. Devices that should hold the
// same bits are compared after every op.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dew/base/format.h"
#include "dew/ops/ops.h"
#include "dew/partition/devices_test_support.h"
#include "dew/partition/partition.h"

namespace dew::lockstep {

// "fsdp+tensor"
inline std::string axes(const Mesh& mesh, std::span<const std::int64_t> atoms) {
  std::string text;
  for (const std::int64_t a : atoms) text += (text.empty() ? "" : "+") + mesh.atoms[at(a)].name;
  return text;
}

// Bytes that a device has sent, by region ("micro_first/top 0", "micro_first/layers") and
// collective ("all_gather fsdp"; permutations, of which only some atoms move, all together).
using Traffic = std::map<std::string, std::map<std::string, double>>;

class Interpreter {
 public:
  Interpreter(const Devices& devices, std::string top, Traffic& traffic)
      : devices_(devices), top_(std::move(top)), traffic_(traffic) {}

  std::vector<PerDevice> run(const Program& p, const std::vector<PerDevice>& inputs) {
    std::vector<PerDevice> values(p.values().size());
    for (std::size_t i = 0; i < inputs.size(); ++i) values[at(p.inputs()[i])] = inputs[i];
    int loops = 0;
    for (const Node& n : p.nodes()) {
      region_ = top_ + "/" + (p.name() == top_ ? format("top {}", loops) : p.name());
      if (n.op == &scan_op) ++loops;
      std::vector<PerDevice> operands;
      for (const int id : n.operands) operands.push_back(values[at(id)]);
      std::vector<PerDevice> results = node(p, n, operands);
      for (int i = 0; i < n.result_count; ++i) {
        const ValueInfo& info = p.values()[at(n.first_result + i)];
        const std::string what = format("{} %{} {}", p.name(), n.first_result + i, n.op->name);
        for (const Array& a : results[at(i)])
          DEW_CHECK(a.shape == info.type.shape, what + ": shape");
        devices_.check_replicas(results[at(i)], info.shards, what);
        values[at(n.first_result + i)] = std::move(results[at(i)]);
      }
    }
    std::vector<PerDevice> outputs;
    for (const Output& o : p.outputs()) outputs.push_back(values[at(o.value)]);
    return outputs;
  }

 private:
  std::vector<PerDevice> node(const Program& p, const Node& n,
                              const std::vector<PerDevice>& operands) {
    if (n.op == &scan_op) return scan(std::get<ScanAttrs>(n.attrs), operands);
    if (n.op->has(kCollective)) {
      if (!operands.empty()) count(n, byte_size(types(p, n)[0].dtype), operands[0][0]);
      return {collective(n, operands)};
    }
    if (const auto* head = std::get_if<HeadAttrs>(&n.attrs); head && !head->atoms.empty())
      return head_loss(p, n, *head, operands);
    std::vector<PerDevice> out(at(n.result_count));
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      std::vector<Array> x;
      for (const PerDevice& o : operands) x.push_back(o[d]);
      append(out, n.op->reference(n.attrs, x, types(p, n)));
    }
    return out;
  }

  static std::vector<Type> types(const Program& p, const Node& n) {
    std::vector<Type> out;
    for (int i = 0; i < n.result_count; ++i) out.push_back(p.values()[at(n.first_result + i)].type);
    return out;
  }

  static void append(std::vector<PerDevice>& out, std::vector<Array> results) {
    for (std::size_t i = 0; i < results.size(); ++i) out[i].push_back(std::move(results[i]));
  }

  // By ring algorithms: a device forwards what it gathers; a reduction to parts sends each byte
  // once, but for its own part, and one to the whole twice.
  void count(const Node& n, std::int64_t element_bytes, const Array& held) {
    const auto& g = std::get<GroupAttrs>(n.attrs);
    const auto bytes = static_cast<double>(element_count(held.shape) * element_bytes);
    const auto members = static_cast<double>(g.members);
    if (n.op == &all_gather_op) {
      sent("all_gather " + axes(devices_.mesh(), g.atoms), bytes * (members - 1));
    } else if (n.op == &permute_op) {
      sent("permute", bytes);
    } else if (n.op != &own_part_op) {
      const double times = n.op == &all_reduce_op ? 2 : 1;
      sent(n.op->name + (" " + axes(devices_.mesh(), g.atoms)),
           times * bytes * (members - 1) / members);
    }
  }

  void sent(const std::string& what, double bytes) { traffic_[region_][what] += bytes; }

  std::vector<PerDevice> scan(const ScanAttrs& s, const std::vector<PerDevice>& operands) {
    const auto carries = at(s.carries), slices = at(s.slices);
    std::vector<PerDevice> carry(operands.begin(), operands.begin() + s.carries);
    std::vector<std::vector<PerDevice>> made(at(s.length));
    for (std::int64_t trip = 0; trip < s.length; ++trip) {
      const std::int64_t i = s.reverse ? s.length - 1 - trip : trip;
      std::vector<PerDevice> in = carry;
      for (std::size_t k = carries; k < operands.size(); ++k) {
        in.push_back(operands[k]);
        for (Array& x : in.back()) {
          if (k >= carries + slices) continue;
          x = cut(x, 0, s.length, i);
          x.shape.erase(x.shape.begin());
        }
      }
      std::vector<PerDevice> out = run(*s.body, in);
      made[at(i)].assign(out.begin() + s.carries, out.end());
      out.resize(carries);
      carry = std::move(out);
    }
    for (std::size_t k = 0; k < made[0].size(); ++k) carry.push_back(stack(made, k));
    return carry;
  }

  PerDevice stack(const std::vector<std::vector<PerDevice>>& made, std::size_t k) const {
    PerDevice out;
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      Array all;
      all.shape = made[0][k][d].shape;
      all.shape.insert(all.shape.begin(), static_cast<std::int64_t>(made.size()));
      for (const auto& one : made)
        all.data.insert(all.data.end(), one[k][d].data.begin(), one[k][d].data.end());
      out.push_back(std::move(all));
    }
    return out;
  }

  PerDevice collective(const Node& n, const std::vector<PerDevice>& operands) const {
    const auto& g = std::get<GroupAttrs>(n.attrs);
    PerDevice out;
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      if (n.op == &device_index_op) {
        out.push_back(Array(Dims{}, static_cast<double>(devices_.number(d, g.atoms))));
      } else {
        out.push_back(one(n, g, operands[0], d));
      }
    }
    return out;
  }

  Array one(const Node& n, const GroupAttrs& g, const PerDevice& x, std::size_t d) const {
    const std::int64_t mine = devices_.number(d, g.atoms);
    if (n.op == &own_part_op) return cut(x[d], g.dims[0], g.members, mine);
    if (n.op == &permute_op) return x[devices_.member(d, g.atoms, devices_.number(d, g.to))];
    std::vector<const Array*> group;
    for (std::int64_t m = 0; m < g.members; ++m)
      group.push_back(&x[devices_.member(d, g.atoms, m)]);
    if (n.op == &all_gather_op) return join(group, g.dims[0]);
    if (n.op == &all_to_all_op) return cut(join(group, g.dims[0]), g.dims[1], g.members, mine);
    Array sum(x[d].shape);
    for (const Array* m : group) {
      for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += m->data[i];
    }
    return n.op == &all_reduce_op ? sum : cut(sum, g.dims[0], g.members, mine);
  }

  // The op on the whole vocabulary; the table's gradient is split again.
  std::vector<PerDevice> head_loss(const Program& p, const Node& n, const HeadAttrs& head,
                                   const std::vector<PerDevice>& x) {
    // The greatest logit, the sum of exponentials and the logit of the label, of each token in f32;
    // the states' gradient.
    const auto share =
        2.0 * static_cast<double>(head.members - 1) / static_cast<double>(head.members);
    const auto tokens = static_cast<double>(element_count(x[3][0].shape));
    const std::string what = "all_reduce " + axes(devices_.mesh(), head.atoms);
    sent(what, share * tokens * 3 * 4);
    if (head.gradients) {
      const std::int64_t width = byte_size(p.values()[at(n.operands[0])].type.dtype);
      sent(what, share * static_cast<double>(element_count(x[0][0].shape) * width));
    }
    std::vector<PerDevice> out(at(n.result_count));
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      std::vector<const Array*> tables;
      for (std::int64_t m = 0; m < head.members; ++m)
        tables.push_back(&x[1][devices_.member(d, head.atoms, m)]);
      const std::size_t first = devices_.member(d, head.atoms, 0);
      std::vector<Type> wide = types(p, n);
      if (head.gradients) wide[5].shape[0] *= head.members;
      std::vector<Array> made = n.op->reference(
          n.attrs, std::vector<Array>{x[0][d], join(tables, 0), x[2][first], x[3][d]}, wide);
      if (head.gradients) made[5] = cut(made[5], 0, head.members, devices_.number(d, head.atoms));
      append(out, std::move(made));
    }
    return out;
  }

  const Devices& devices_;
  const std::string top_;
  Traffic& traffic_;
  std::string region_;
};

// Registers of all devices, and runs of call lists over them.
class Machine {
 public:
  Machine(const Partitioned& partitioned, const Module& whole, const Mesh& mesh)
      : partitioned_(partitioned), whole_(whole), devices_(mesh) {
    registers_.resize(whole.registers.size());
  }

  void set(const std::string& name, const Array& whole) {
    const auto r = at(whole_.register_index(name));
    registers_[r] = devices_.split(whole, partitioned_.registers[r]);
  }

  Array get(const std::string& name) const {
    const auto r = at(whole_.register_index(name));
    return devices_.whole(registers_[r], partitioned_.registers[r], whole_.registers[r].type.shape);
  }

  // What has been sent so far.
  const Traffic& traffic() const { return traffic_; }

  void run(const std::string& list) {
    const Module& m = partitioned_.module;
    for (const Call& call : m.lists[at(m.list_index(list))].calls) {
      const Program& program = m.programs[at(call.program)];
      std::vector<PerDevice> inputs;
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        inputs.push_back(registers_[at(call.inputs[i])]);
        DEW_CHECK(!inputs.back().empty(),
                  "nothing in register " + m.registers[at(call.inputs[i])].name);
        for (Array& x : inputs.back()) {
          if (!call.sliced[i]) continue;
          x = cut(x, 0, x.shape[0], call.micro);
          x.shape.erase(x.shape.begin());
        }
      }
      const std::vector<PerDevice> out =
          Interpreter(devices_, program.name(), traffic_).run(program, inputs);
      for (std::size_t i = 0; i < out.size(); ++i) registers_[at(call.outputs[i])] = out[i];
    }
  }

 private:
  const Partitioned& partitioned_;
  const Module& whole_;
  Devices devices_;
  std::vector<PerDevice> registers_;
  Traffic traffic_;
};

}  // namespace dew::lockstep
