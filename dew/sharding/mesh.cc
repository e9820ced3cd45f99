#include "dew/sharding/mesh.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/nearest.h"

namespace dew {

MeshAxis parse_axis(std::string_view name, std::string_view where) {
  const auto found = std::ranges::find(kMeshAxes, name);
  if (found != kMeshAxes.end()) return static_cast<MeshAxis>(found - kMeshAxes.begin());
  const std::vector<std::string_view> names(kMeshAxes.begin(), kMeshAxes.end());
  fail(ErrorCode::usage, format("{}'{}' is no mesh axis, the nearest is '{}'; there are {}", where,
                                name, nearest(name, names), fmt::join(kMeshAxes, ", ")));
}

std::int64_t Mesh::devices() const {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) n *= size;
  return n;
}

std::int64_t Mesh::product(std::span<const int> atoms_of) const {
  std::int64_t n = 1;
  for (const int a : atoms_of) n *= atoms[static_cast<std::size_t>(a)].size;
  return n;
}

std::vector<int> Mesh::atoms_of(MeshAxis axis) const {
  std::vector<int> out;
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    if (atoms[a].axis == axis) out.push_back(static_cast<int>(a));
  }
  return out;
}

std::vector<std::int64_t> Mesh::coordinates(std::int64_t device) const {
  std::vector<std::int64_t> out(atoms.size());
  for (std::size_t a = atoms.size(); a-- > 0;) {
    out[a] = device % atoms[a].size;
    device /= atoms[a].size;
  }
  return out;
}

Mesh build_mesh(const MeshSpec& spec, std::int64_t devices) {
  const std::int64_t given[] = {spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage};
  std::int64_t rest = std::max<std::int64_t>(devices, 0);
  bool fits = devices >= 1;
  for (const std::int64_t n : given) {
    fits = fits && n >= 1 && rest % n == 0;
    rest = fits ? rest / n : rest;
  }
  if (!fits) {
    fail(ErrorCode::layout_refused,
         format("mesh expert={}, fsdp={}, tensor={}, sequence={}, stage={} does not divide {} "
                "device{}",
                spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage, devices,
                devices == 1 ? "" : "s"),
         "every factor is at least 1 and their product divides the number of devices; data takes "
         "what is left");
  }
  if (spec.replicas < 1 || rest % spec.replicas != 0) {
    fail(ErrorCode::layout_refused,
         format("replicas = {} does not divide the data axis, which has size {} ({} devices)",
                spec.replicas, rest, devices));
  }
  Mesh mesh;
  mesh.sizes = {rest, spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage};
  for (int a = 0; a < static_cast<int>(kMeshAxes.size()); ++a) {
    const std::int64_t size = mesh.sizes[static_cast<std::size_t>(a)];
    if (size > 1) mesh.atoms.push_back({a, size, kMeshAxes[static_cast<std::size_t>(a)]});
  }
  return mesh;
}

Mesh split_axis(const Mesh& mesh, MeshAxis axis, std::int64_t major) {
  const std::vector<int> whole = mesh.atoms_of(axis);
  DEW_CHECK(whole.size() == 1, "an axis is split once, where its size is above 1");
  const std::int64_t size = mesh.size(axis);
  DEW_CHECK(major >= 1 && size % major == 0, "the major part divides the axis");
  if (major == 1 || major == size) return mesh;
  Mesh out = mesh;
  const std::string name = kMeshAxes[static_cast<std::size_t>(axis)];
  const auto at = out.atoms.begin() + whole.front();
  *at = {axis, major, name + ".0"};
  out.atoms.insert(at + 1, {axis, size / major, name + ".1"});
  return out;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (std::size_t a = 0; a < kMeshAxes.size(); ++a) {
    text +=
        (a == 0 ? "{'" : ", '") + std::string(kMeshAxes[a]) + "': " + std::to_string(mesh.sizes[a]);
  }
  return text + "}";
}

}  // namespace dew
