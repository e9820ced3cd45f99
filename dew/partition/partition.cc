#include "dew/partition/partition.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ir/print.h"
#include "dew/ir/rewrite.h"
#include "dew/partition/device_program.h"

namespace dew {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class ModuleWalk {
 public:
  ModuleWalk(const Module& module, const Placement& placement)
      : module_(module),
        context_{placement, Resharder(placement.mesh)},
        specs_(placement.registers),
        stacked_(placement.stacked) {
    specs_.resize(module.registers.size());
    stacked_.resize(module.registers.size(), false);
    out_.module = module;
  }

  Partitioned run() {
    std::vector<bool> done(module_.programs.size(), false);
    for (const CallList& list : module_.lists) {
      for (const Call& call : list.calls) {
        if (!done[at(call.program)]) walk(call);
        done[at(call.program)] = true;
      }
    }
    place_registers();
    out_.collectives = std::move(context_.collectives);
    out_.detours = std::move(context_.detours);
    out_.values = std::move(context_.values);
    return std::move(out_);
  }

 private:
  // What a call leaves in a register is read by another call, or by the host.
  bool read_later(int reg) const {
    for (const CallList& list : module_.lists) {
      for (const Call& call : list.calls) {
        if (std::ranges::find(call.inputs, reg) != call.inputs.end()) return true;
      }
    }
    return false;
  }

  Spec input_spec(const Call& call, std::size_t i) const {
    const int reg = call.inputs[i];
    const Register& r = module_.registers[at(reg)];
    Spec spec = specs_[at(reg)] ? *specs_[at(reg)] : whole_spec(r.type.shape.size());
    if (call.sliced[i]) {
      DEW_CHECK(spec.dims.front().empty(), r.name + " is split along its slices");
      spec.dims.erase(spec.dims.begin());
    }
    return spec;
  }

  // Sums that the last programs finish: see DeviceProgram.
  bool leaves_sums(const Call& call) const {
    return std::ranges::any_of(call.outputs, [&](int reg) {
      return specs_[at(reg)] ? specs_[at(reg)]->partial != 0 : read_later(reg);
    });
  }

  void walk(const Call& call) {
    const Program& program = module_.programs[at(call.program)];
    KnownBodies bodies;
    DeviceProgram device(context_, bodies, program, leaves_sums(call), 1, program.name());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Spec spec = input_spec(call, i);
      if (!specs_[at(call.inputs[i])]) specs_[at(call.inputs[i])] = spec;
      device.input(spec, stacked_[at(call.inputs[i])] && !call.sliced[i]);
    }
    device.walk();
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      const int reg = call.outputs[i];
      std::optional<Spec>& spec = specs_[at(reg)];
      if (!spec) {
        spec = device.output(i).spec;
        stacked_[at(reg)] = device.output(i).stacked;
        // The host reads whole numbers, and scalars cost next to nothing.
        if (spec->dims.empty() || !read_later(reg)) spec->partial = 0;
      }
      DEW_CHECK(
          device.output(i).stacked == stacked_[at(reg)] || *spec == whole_spec(spec->dims.size()),
          module_.registers[at(reg)].name + " is no stack, or what is written to it is none");
      device.output(i, *spec);
    }
    out_.module.programs[at(call.program)] = without_dead_code(device.take());
    verify(out_.module.programs[at(call.program)]);
  }

  void place_registers() {
    for (std::size_t r = 0; r < specs_.size(); ++r) {
      Register& reg = out_.module.registers[r];
      if (!specs_[r]) specs_[r] = whole_spec(reg.type.shape.size());
      reg.type.shape = local_shape(context_.placement.mesh, reg.type.shape, *specs_[r]);
      out_.registers.push_back(*specs_[r]);
    }
    out_.stacked = stacked_;
  }

  const Module& module_;
  WalkContext context_;
  std::vector<std::optional<Spec>> specs_;
  std::vector<bool> stacked_;
  Partitioned out_;
};

}  // namespace

Partitioned partition(const Module& module, const Placement& placement) {
  return ModuleWalk(module, placement).run();
}

std::string to_string(const Mesh& mesh, const Detour& d) {
  return format(
      "{} %{} is brought from {} to {} by way of {}: a device holds {} bytes for a while, and {} "
      "before and after",
      d.program, d.value, to_string(mesh, d.from), to_string(mesh, d.to), to_string(mesh, d.widest),
      d.bytes, d.ends);
}

std::string annotated(const Module& module, const Mesh& mesh, const Partitioned& parts) {
  std::string text;
  for (const Program& top : module.programs) {
    if (!parts.values.contains(top.name())) continue;  // nothing calls it
    text += print(top, [&](const Program& p, int id) {
      const PlacedValue& value = parts.values.at(values_name(top.name(), p)).at(at(id));
      const std::string made = to_string(mesh, value.made);
      return value.kept == value.made ? made : made + " -> " + to_string(mesh, value.kept);
    });
  }
  return text;
}

}  // namespace dew
