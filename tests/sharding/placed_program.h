// One program as a module with its inputs placed, and what devices make of it by three judges.
#pragma once

#include <mutex>
#include <random>

#include "dew/runtime/comm/threads_test_support.h"
#include "tests/sharding/machines.h"

namespace dew::sharding_test {

// Every way to place an array of this shape on the mesh: each atom nowhere, on a dimension (in any
// order among those there), or, if `sums`, as a partial sum.
inline std::vector<Spec> all_specs(const Mesh& mesh, const Dims& shape, bool sums) {
  std::vector<Spec> out{whole_spec(shape.size())};
  for (int a = 0; a < static_cast<int>(mesh.atoms.size()); ++a) {
    const std::vector<Spec> before = out;
    for (Spec spec : before) {
      for (auto& dim : spec.dims) {
        for (std::size_t place = 0; place <= dim.size(); ++place) {
          const auto added = dim.insert(dim.begin() + static_cast<std::ptrdiff_t>(place), a);
          if (divides(mesh, shape, spec)) out.push_back(spec);
          dim.erase(added);
        }
      }
      spec.partial |= bit(a);
      if (sums) out.push_back(spec);
    }
  }
  return out;
}

// A program, the specs of its inputs, and the dimensions that its pins ask for: a pin's first name
// is a key of `pins`.
struct PlacedProgram {
  Program program{"placed"};
  std::vector<Array> inputs;
  std::vector<Spec> specs;
  std::map<std::string, DimAtoms> pins;

  Value input(Type type, Array array, Spec spec, bool weight = false) {
    const std::string name = "x" + std::to_string(inputs.size());
    inputs.push_back(std::move(array));
    specs.push_back(std::move(spec));
    return program.input(name, std::move(type), weight);
  }

  // An input that stands as parts of sums over the atoms of spec.partial: `parts` adds a leading
  // dimension, split over those atoms, which the program sums.
  Value summed_input(const Type& type, const Array& array, const Spec& spec, const Mesh& mesh,
                     std::mt19937_64& random) {
    if (spec.partial == 0) return input(type, array, spec);
    Spec of_parts{spec.dims, 0};
    std::vector<int> atoms;
    for (int a = 0; spec.partial >> a != 0; ++a) {
      if (has(spec.partial, a)) atoms.push_back(a);
    }
    of_parts.dims.insert(of_parts.dims.begin(), atoms);
    Dims shape = type.shape;
    shape.insert(shape.begin(), mesh.product(atoms));
    return reduce_sum(input({type.dtype, shape}, in_parts(array, shape, random), of_parts), {0});
  }

  void pin(Value value, const DimAtoms& dims) {
    const std::string key = "p" + std::to_string(pins.size());
    AxisNames names(dims.size());
    names.front() = key;
    pins[key] = dims;
    program.pin(value, names);
  }

  // Small integers that add up to the array.
  static Array in_parts(const Array& whole, const Dims& shape, std::mt19937_64& random) {
    Array parts(shape);
    const std::size_t n = whole.data.size();
    std::copy(whole.data.begin(), whole.data.end(), parts.data.begin());
    for (std::size_t i = n; i < parts.data.size(); ++i) {
      parts.data[i] = static_cast<double>(random() % 5) - 2;
      parts.data[i % n] -= parts.data[i];
    }
    return parts;
  }
};

class Judges {
 public:
  Judges(const PlacedProgram& placed, const Mesh& mesh) : placed_(placed), mesh_(mesh) {
    const Program& p = placed.program;
    for (const int id : p.inputs()) add_register(p.values()[lockstep::at(id)].name, id, inputs_);
    for (const Output& o : p.outputs()) add_register(o.name, o.value, outputs_);
    module_.programs.push_back(p);
    CallList list{"run", {}};
    add_call(module_, list, 0);
    module_.lists.push_back(list);
    placement_.mesh = mesh;
    for (const Spec& s : placed.specs) placement_.registers.emplace_back(s);
    placement_.registers.resize(module_.registers.size());
    placement_.stacked.resize(module_.registers.size());
    placement_.pin = [pins = placed.pins](const Dims&, const AxisNames& names) {
      return pins.at(names.front());
    };
    parts_ = partition(module_, placement_);
  }

  const Partitioned& parts() const { return parts_; }
  std::string annotated() const { return dew::annotated(module_, mesh_, parts_); }

  // All devices in lockstep, in double precision; replicas are compared.
  std::vector<Array> lockstep() const {
    lockstep::Machine machine(parts_, module_, mesh_);
    return results(machine);
  }
  // The plan, by references on memory of the values' types.
  std::vector<Array> planned() const {
    PlannedMachine machine(parts_, module_, mesh_);
    return results(machine);
  }
  // All passes and the CPU's kernels.
  std::vector<Array> executed(Backend& backend) const {
    ExecutedMachine machine(module_, placement_, backend);
    return results(machine);
  }
  // The same in so many processes, which divide the devices.
  std::vector<Array> on_processes(int count) const {
    std::vector<std::vector<std::byte>> whole;
    for (const std::string& name : outputs_)
      whole.emplace_back(static_cast<std::size_t>(type_of(name).bytes()));
    std::mutex mutex;
    comm::run_processes(count, [&](comm::Job& job) {
      const auto backend = cpu_backend(1, mesh_.devices(), &job);
      ExecutedMachine machine(module_, placement_, *backend);
      for (std::size_t i = 0; i < inputs_.size(); ++i) machine.set(inputs_[i], placed_.inputs[i]);
      machine.run("run");
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        const Type& type = type_of(outputs_[i]);
        for (const Shard& s : machine.shards(outputs_[i])) {
          const Box box{s.start, s.extent};
          copy_part(box, byte_size(type.dtype), box, s.bytes, dew::whole(type.shape), whole[i]);
        }
      }
    });
    std::vector<Array> out;
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      out.push_back(load(type_of(outputs_[i]), whole[i].data()));
    return out;
  }

 private:
  void add_register(const std::string& name, int id, std::vector<std::string>& names) {
    module_.add_register(name, placed_.program.values()[lockstep::at(id)].type);
    names.push_back(name);
  }

  const Type& type_of(const std::string& name) const {
    return module_.registers[lockstep::at(module_.register_index(name))].type;
  }

  template <class Machine>
  std::vector<Array> results(Machine& machine) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) machine.set(inputs_[i], placed_.inputs[i]);
    machine.run("run");
    std::vector<Array> out;
    for (const std::string& name : outputs_) out.push_back(machine.get(name));
    return out;
  }

  const PlacedProgram& placed_;
  Mesh mesh_;
  Module module_;
  Placement placement_;
  Partitioned parts_;
  std::vector<std::string> inputs_, outputs_;
};

}  // namespace dew::sharding_test
