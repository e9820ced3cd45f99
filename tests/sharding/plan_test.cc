// Plans of partitioned steps, all devices' parts in one memory: run with the references, they give
// what one device gives.
#include <gtest/gtest.h>

#include "dew/partition/lockstep_test_support.h"
#include "dew/plan/plan_runner_test.h"
#include "dew/plan/seen.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

Dims atom_sizes(const Mesh& mesh) {
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
      const Plan plan = make_plan(p, replaces, sizes_);
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

class PlannedStep {
 public:
  explicit PlannedStep(const Case& c)
      : objective_(CausalTransformer(c.config), {.seq_len = kColumns, .z_loss = 0.02}),
        module_(optimized(
            training_module(objective_, optimizer_, {c.micro_steps, c.rows, kColumns}, c.compute))),
        before_(start(objective_, optimizer_, c)),
        after_(before_) {
    for (const char* name : {"c1", "c2"}) {
      before_.erase(name);
      after_.erase(name);
    }
    plain::run_list(module_, "train", after_);
    plain::run_list(module_, "eval", after_);
  }

  void expect_same(const Mesh& mesh, std::mt19937* random = nullptr) {
    const Placement placement = training_placement(module_, objective_, optimizer_, mesh, random);
    const Partitioned parts = partition(module_, placement);
    PlannedMachine machine(parts, module_, mesh);
    for (const auto& [name, array] : before_) machine.set(name, array);
    machine.run("train");
    machine.run("eval");
    for (const auto& [name, array] : after_) {
      double scale = 1e-3;
      for (const double v : array.data) scale = std::max(scale, std::abs(v));
      EXPECT_LT(plain::worst_difference(machine.get(name).data, array.data) / scale, 1e-4)
          << name << " on " << to_string(mesh);
    }
  }

 private:
  // Not adamw: it makes steps of one size from gradients that are zero but for rounding (of the key
  // biases).
  const Optimizer optimizer_ = {.name = "sgd", .momentum = 0.5, .clip_norm = 0.5, .ema_decay = 0.9};
  LMObjective objective_;
  Module module_;
  Arrays before_, after_;
};

TEST(Plans, OfLlamaLikeSteps) {
  PlannedStep step({llama_like()});
  for (const Mesh& mesh : meshes()) step.expect_same(mesh);
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
}

TEST(Plans, OfGptLikeSteps) {
  PlannedStep step({gpt_like(), 12, 2});
  for (const Mesh& mesh : meshes()) step.expect_same(mesh);
}

TEST(Plans, OfRandomLayouts) {
  std::mt19937 random(3);
  PlannedStep step({llama_like()});
  for (int i = 0; i < 6; ++i) {
    const std::vector<Mesh> all = meshes();
    step.expect_same(all[3 + random() % (all.size() - 3)], &random);
  }
}

}  // namespace
}  // namespace dew
