#include "dew/sharding/spec.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

const MeshAtom& atom_of(const Mesh& mesh, int atom) {
  return mesh.atoms[static_cast<std::size_t>(atom)];
}

// Names of the axes in a list of atoms, whole axes as one: {"tensor", "fsdp"}, {"tensor:(1)8"}.
std::vector<std::string> user_names(const Mesh& mesh, const std::vector<int>& atoms) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < atoms.size();) {
    const int axis = atom_of(mesh, atoms[i]).axis;
    const std::string name = kMeshAxes[static_cast<std::size_t>(axis)];
    const std::vector<int> all = mesh.atoms_of(static_cast<MeshAxis>(axis));
    // A run of atoms that are neighbours on their axis is one part of it.
    std::size_t end = i + 1;
    while (end < atoms.size() && atoms[end] == atoms[end - 1] + 1 &&
           atom_of(mesh, atoms[end]).axis == axis)
      ++end;
    if (end - i == all.size()) {
      out.push_back(name);
    } else {
      std::int64_t before = 1, size = 1;
      for (const int a : all) before *= a < atoms[i] ? atom_of(mesh, a).size : 1;
      for (std::size_t k = i; k < end; ++k) size *= atom_of(mesh, atoms[k]).size;
      out.push_back(format("{}:({}){}", name, before, size));
    }
    i = end;
  }
  return out;
}

}  // namespace

Spec whole_spec(std::size_t rank) { return {DimAtoms(rank), 0}; }

AtomMask atoms_in(const DimAtoms& dims) {
  AtomMask mask = 0;
  for (const std::vector<int>& atoms : dims) {
    for (const int a : atoms) mask |= bit(a);
  }
  return mask;
}

Dims local_shape(const Mesh& mesh, const Dims& shape, const Spec& spec) {
  DEW_CHECK(divides(mesh, shape, spec),
            format("{} does not divide [{}]", to_string(mesh, spec), join(shape)));
  Dims out = shape;
  for (std::size_t d = 0; d < out.size(); ++d) out[d] /= mesh.product(spec.dims[d]);
  return out;
}

bool divides(const Mesh& mesh, const Dims& shape, const Spec& spec) {
  if (shape.size() != spec.dims.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] % mesh.product(spec.dims[d]) != 0) return false;
  }
  return true;
}

std::vector<int> distinct_atoms(const Spec& spec) {
  const std::vector<int> first = spec.dims.empty() ? std::vector<int>{} : spec.dims.front();
  const AtomMask all = atoms_in(spec.dims) | spec.partial;
  std::vector<int> out;
  for (int a = 0; all >> a != 0; ++a) {
    if (has(all, a) && std::ranges::find(first, a) == first.end()) out.push_back(a);
  }
  out.insert(out.end(), first.begin(), first.end());
  return out;
}

std::vector<int> memory_order(const Spec& spec, bool stacked) {
  if (!stacked || spec.dims.size() < 2) return distinct_atoms(spec);
  Spec layer = spec;
  layer.dims.erase(layer.dims.begin());
  return distinct_atoms(layer);
}

std::string to_string(const Mesh& mesh, const Spec& spec) {
  const auto set = [&](const std::vector<int>& atoms) {
    std::string text;
    for (const int a : atoms) text += (text.empty() ? "" : ",") + atom_of(mesh, a).name;
    return "{" + text + "}";
  };
  std::string text = "[";
  for (std::size_t d = 0; d < spec.dims.size(); ++d)
    text += (d == 0 ? "" : ",") + (spec.dims[d].empty() ? std::string("-") : set(spec.dims[d]));
  text += "]";
  std::vector<int> partial;
  for (int a = 0; spec.partial >> a != 0; ++a) {
    if (has(spec.partial, a)) partial.push_back(a);
  }
  return partial.empty() ? text : text + " partial" + set(partial);
}

std::string to_user_string(const Mesh& mesh, const Spec& spec) {
  std::size_t rank = spec.dims.size();
  while (rank > 0 && spec.dims[rank - 1].empty()) --rank;
  std::string text;
  for (std::size_t d = 0; d < rank; ++d) {
    std::string entry;
    const std::vector<std::string> names = user_names(mesh, spec.dims[d]);
    for (const std::string& name : names)
      entry += format("{}'{}'", entry.empty() ? "" : ", ", name);
    if (names.empty()) entry = "None";
    if (names.size() > 1) entry = format("({})", entry);
    if (d > 0) text += ", ";
    text += entry;
  }
  return "P(" + text + (rank == 1 ? ",)" : ")");
}

}  // namespace dew
