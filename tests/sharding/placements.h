// Placements of a training module for tests: every parameter by a rule or at random, the batch by
// rows.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>

#include "dew/autodiff/simplify.h"
#include "dew/ir/rewrite.h"
#include "dew/partition/partition.h"
#include "dew/train/registers.h"
#include "dew/train/step.h"

namespace dew::sharding_test {

// Logical axis -> mesh axes, in the order in which they split.
using Rules = std::map<std::string, std::vector<MeshAxis>>;

inline const Rules& parameter_rules() {
  static const Rules rules = {
      {"vocab", {kTensor, kFsdp}}, {"mlp", {kTensor}}, {"attention", {kTensor}}, {"embed", {kFsdp}},
      {"heads", {kTensor}},        {"kv", {kTensor}},  {"head_dim", {kFsdp}}};
  return rules;
}

// The module after the passes that compile() runs before it places programs.
inline Module optimized(Module module) {
  for (Program& p : module.programs)
    p = without_dead_code(accumulate_in_scans(simplify(without_duplicates(p))));
  return module;
}

inline const Rules& activation_rules() {
  static const Rules rules = {{"activation_batch", {kData, kExpert, kFsdp}},
                              {"activation_length", {kSequence}},
                              {"activation_heads", {kTensor}},
                              {"activation_kv", {kTensor}},
                              {"activation_mlp", {kTensor}}};
  return rules;
}

// Atoms that do not divide are left out.
inline DimAtoms dims_by(const Mesh& mesh, const Rules& rules, const Dims& shape,
                        const AxisNames& names) {
  DimAtoms dims(shape.size());
  std::set<int> used;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto rule = rules.find(names[d]);
    if (rule == rules.end()) continue;
    std::int64_t left = shape[d];
    for (const MeshAxis axis : rule->second) {
      for (const int a : mesh.atoms_of(axis)) {
        const std::int64_t n = mesh.atoms[static_cast<std::size_t>(a)].size;
        if (left % n != 0 || !used.insert(a).second) continue;
        left /= n;
        dims[d].push_back(a);
      }
    }
  }
  return dims;
}

// Random atoms on random dimensions (not on a stack's).
inline DimAtoms random_dims(const Mesh& mesh, const Dims& shape, std::size_t first_dim,
                            std::mt19937& random) {
  DimAtoms dims(shape.size());
  Dims left = shape;
  for (int a = 0; a < static_cast<int>(mesh.atoms.size()); ++a) {
    const std::size_t d = random() % (shape.size() + 1);
    const std::int64_t n = mesh.atoms[static_cast<std::size_t>(a)].size;
    if (d < first_dim || d >= shape.size() || left[d] % n != 0) continue;
    left[d] /= n;
    dims[d].push_back(a);
  }
  return dims;
}

// With `random`, every parameter and moment is placed at random.
inline Placement training_placement(const Module& module, const LMObjective& objective,
                                    const Optimizer& optimizer, const Mesh& mesh,
                                    std::mt19937* random = nullptr) {
  Placement placement{.mesh = mesh};
  placement.registers.resize(module.registers.size());
  placement.stacked.resize(module.registers.size());
  placement.pin = [mesh](const Dims& shape, const AxisNames& names) {
    return dims_by(mesh, activation_rules(), shape, names);
  };
  for (const StateArray& state : state_arrays(objective.params(), optimizer)) {
    const ParamSpec& param = objective.params()[state.param];
    const std::size_t first = param.stack.empty() ? 0 : 1;
    const DimAtoms dims = random != nullptr
                              ? random_dims(mesh, param.type.shape, first, *random)
                              : dims_by(mesh, parameter_rules(), param.type.shape, param.axes);
    const auto r = static_cast<std::size_t>(module.register_index(state.name));
    placement.registers[r] = Spec{dims, 0};
  }
  for (const ParamSpec& param : objective.params()) {
    for (std::size_t r = 0; r < module.registers.size(); ++r) {
      if (module.registers[r].name.ends_with("/" + param.name))
        placement.stacked[r] = !param.stack.empty();
    }
  }
  std::vector<int> rows;
  for (const MeshAxis axis : {kData, kExpert, kFsdp}) {
    for (const int a : mesh.atoms_of(axis)) rows.push_back(a);
  }
  for (const char* name : {registers::kIds, registers::kLabels, registers::kWeights,
                           registers::kPositions, registers::kSegments, registers::kRowIds}) {
    const auto r = static_cast<std::size_t>(module.register_index(name));
    Spec spec = whole_spec(module.registers[r].type.shape.size());
    spec.dims[1] = rows;
    placement.registers[r] = spec;
    placement.stacked[r] = true;
  }
  return placement;
}

}  // namespace dew::sharding_test
