#include "dew/sharding/process_grid.h"

#include <numeric>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// How much of each atom one process holds. Where `each` divides the product of all sizes, nothing
// of it is left in the end: of any prime, every atom takes as much as it can.
std::vector<std::int64_t> sizes_inside(const Mesh& mesh, std::int64_t each) {
  std::vector<std::int64_t> inside(mesh.atoms.size());
  for (std::size_t a = mesh.atoms.size(); a-- > 0;) {
    inside[a] = std::gcd(each, mesh.atoms[a].size);
    each /= inside[a];
  }
  return inside;
}

// Names of axes that are cut into several atoms: tensor.0, tensor.1, ...
void number_atoms(Mesh& mesh) {
  for (int axis = kData; axis <= kStage; ++axis) {
    const std::vector<int> atoms = mesh.atoms_of(static_cast<MeshAxis>(axis));
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      const std::string name = kMeshAxes[at(axis)];
      mesh.atoms[at(atoms[i])].name = atoms.size() == 1 ? name : format("{}.{}", name, i);
    }
  }
}

}  // namespace

ProcessGrid process_grid(const Mesh& mesh, std::int64_t processes) {
  const std::int64_t devices = mesh.devices();
  if (processes < 1 || devices % processes != 0) {
    fail(ErrorCode::layout_refused,
         format("{} devices cannot be dealt evenly to {} processes", devices, processes),
         "the number of devices must be a multiple of the number of processes");
  }
  const std::vector<std::int64_t> inside = sizes_inside(mesh, devices / processes);
  ProcessGrid grid{.mesh = mesh, .parts = {}, .crosses = {}, .processes = processes};
  grid.mesh.atoms.clear();
  for (std::size_t a = 0; a < mesh.atoms.size(); ++a) {
    grid.parts.emplace_back();
    const auto add = [&](std::int64_t size, bool crosses) {
      if (size == 1) return;
      grid.parts.back().push_back(static_cast<int>(grid.mesh.atoms.size()));
      grid.mesh.atoms.push_back({mesh.atoms[a].axis, size, {}});
      grid.crosses.push_back(crosses);
    };
    add(mesh.atoms[a].size / inside[a], true);
    add(inside[a], false);
  }
  number_atoms(grid.mesh);
  return grid;
}

Dims ProcessGrid::place(std::int64_t process) const {
  Dims place(crosses.size(), -1);
  for (std::size_t a = crosses.size(); a-- > 0;) {
    if (!crosses[a]) continue;
    place[a] = process % mesh.atoms[a].size;
    process /= mesh.atoms[a].size;
  }
  return place;
}

std::vector<std::int64_t> ProcessGrid::process_of_device() const {
  std::vector<std::int64_t> out;
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    const std::vector<std::int64_t> where = mesh.coordinates(device);
    std::int64_t number = 0;
    for (std::size_t a = 0; a < crosses.size(); ++a) {
      if (crosses[a]) number = number * mesh.atoms[a].size + where[a];
    }
    out.push_back(number);
  }
  return out;
}

}  // namespace dew
