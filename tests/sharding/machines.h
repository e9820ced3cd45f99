// Runs partitioned modules for tests: on plans with the references, and on the CPU runtime.
#pragma once

#include <gtest/gtest.h>

#include "dew/checkpoint/box.h"
#include "dew/compile.h"
#include "dew/ir/tensor.h"
#include "dew/partition/lockstep_test_support.h"
#include "dew/plan/plan_runner_test.h"
#include "dew/plan/seen.h"
#include "dew/runtime/cpu/cpu.h"
#include "dew/train/run_module_test_support.h"

namespace dew::sharding_test {

inline Dims atom_sizes(const Mesh& mesh) {
  Dims sizes;
  for (const MeshAtom& a : mesh.atoms) sizes.push_back(a.size);
  return sizes;
}

// Registers as plans hold them: the parts of all devices in one array.
class PlannedMachine {
 public:
  PlannedMachine(const Partitioned& parts, const Module& whole, const Mesh& mesh)
      : parts_(parts), whole_(whole), devices_(mesh), sizes_(atom_sizes(mesh)) {}

  void set(const std::string& name, const Array& whole) {
    const auto r = lockstep::at(whole_.register_index(name));
    registers_[static_cast<int>(r)] =
        together(devices_.split(whole, parts_.registers[r]), info(static_cast<int>(r)));
  }

  Array get(const std::string& name) {
    const int r = whole_.register_index(name);
    const auto i = lockstep::at(r);
    return devices_.whole(apart(registers_.at(r), info(r)), parts_.registers[i],
                          whole_.registers[i].type.shape);
  }

  void run(const std::string& list) {
    const Module& m = parts_.module;
    for (const Call& call : m.lists[lockstep::at(m.list_index(list))].calls) {
      const Program& p = m.programs[lockstep::at(call.program)];
      std::vector<int> replaces;
      for (const int reg : call.outputs) {
        const auto it = std::ranges::find(call.inputs, reg);
        replaces.push_back(it == call.inputs.end() ? -1
                                                   : static_cast<int>(it - call.inputs.begin()));
      }
      const Plan plan = make_plan(p, replaces, {.atom_sizes = sizes_});
      std::vector<Array> inputs;
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const Array& x = registers_.at(call.inputs[i]);
        inputs.push_back(call.sliced[i] ? plain::slice_of(x, call.micro) : x);
      }
      const std::vector<Array> out = plan_test::PlanRunner(p, plan, replaces).run(inputs);
      for (std::size_t i = 0; i < out.size(); ++i) registers_[call.outputs[i]] = out[i];
    }
  }

 private:
  // How a register lies in memory, as partition() tells its programs.
  ValueInfo info(int r) const {
    const Module& m = parts_.module;
    ValueInfo found;
    found.type = m.registers[lockstep::at(r)].type;
    const Spec& spec = parts_.registers[lockstep::at(r)];
    found.stacked = parts_.stacked[lockstep::at(r)];
    for (const int a : memory_order(spec, found.stacked)) found.shards.push_back(a);
    return found;
  }

  template <class Visit>
  void each_element(const ValueInfo& info, Visit visit) const {
    const MemoryLayout layout = layout_of(info.type, info.shards, info.stacked, sizes_);
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      std::int64_t base = 0;
      for (std::size_t i = 0; i < info.shards.size(); ++i)
        base += devices_.number(d, Dims{info.shards[i]}) * layout.seen.strides[i];
      std::size_t element = 0;
      for_each_index(info.type.shape, [&](const Dims& index) {
        std::int64_t to = base;
        for (std::size_t k = 0; k < index.size(); ++k) to += index[k] * layout.seen.view.strides[k];
        visit(d, element++, lockstep::at(to));
      });
    }
  }

  Array together(const lockstep::PerDevice& parts, const ValueInfo& info) const {
    Array out(memory_type(info, sizes_).shape);
    each_element(info, [&](std::size_t d, std::size_t i, std::size_t to) {
      out.data[to] = parts[d].data[i];
    });
    return out;
  }

  lockstep::PerDevice apart(const Array& all, const ValueInfo& info) const {
    lockstep::PerDevice parts(devices_.count(), Array(info.type.shape));
    each_element(info, [&](std::size_t d, std::size_t i, std::size_t from) {
      parts[d].data[i] = all.data[from];
    });
    return parts;
  }

  const Partitioned& parts_;
  const Module& whole_;
  lockstep::Devices devices_;
  Dims sizes_;
  std::map<int, Array> registers_;
};

// Registers as the CPU runtime holds them.
class ExecutedMachine {
 public:
  ExecutedMachine(const Module& module, const Placement& placement, Backend& backend,
                  bool check_replicas = false)
      : whole_(module),
        executable_(
            compile(module, backend, {.placement = placement, .check_replicas = check_replicas})) {}

  void set(const std::string& name, const Array& array) {
    const int r = whole_.register_index(name);
    const Type& type = whole_.registers[static_cast<std::size_t>(r)].type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    store(array, type.dtype, bytes.data());
    for (const Shard& s : executable_->shards(r)) {
      const Box box{s.start, s.extent};
      copy_part(box, byte_size(type.dtype), dew::whole(type.shape), bytes, box, s.bytes);
    }
  }

  // Empty for sums that devices have not joined.
  Array get(const std::string& name) {
    const int r = whole_.register_index(name);
    const Type& type = whole_.registers[static_cast<std::size_t>(r)].type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    std::vector<Box> boxes;
    for (const Shard& s : executable_->shards(r)) {
      const Box box{s.start, s.extent};
      copy_part(box, byte_size(type.dtype), box, s.bytes, dew::whole(type.shape), bytes);
      boxes.push_back(box);
    }
    if (boxes.empty()) return {};
    if (type.elements() > 0) {
      EXPECT_EQ(tiling_problem(type.shape, boxes), "") << name;
    }
    return load(type, bytes.data());
  }

  void run(const std::string& list) { executable_->run(whole_.list_index(list)); }
  std::vector<Shard> shards(const std::string& name) {
    return executable_->shards(whole_.register_index(name));
  }

 private:
  Module whole_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace dew::sharding_test
