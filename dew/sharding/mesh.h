// The mesh: devices arranged in named axes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dew {

// Always these six, in this order; devices fill the mesh row-major, so later axes are neighbours.
inline constexpr std::array<const char*, 6> kMeshAxes = {"data",   "expert",   "fsdp",
                                                         "tensor", "sequence", "stage"};
enum MeshAxis : int { kData, kExpert, kFsdp, kTensor, kSequence, kStage };

// The axis of this name. Throws ErrorCode::usage, with the nearest name, if there is none; `where`
// begins the message.
MeshAxis parse_axis(std::string_view name, std::string_view where = "");

// Sizes of the axes but data, which takes the devices that are left.
struct MeshSpec {
  std::int64_t fsdp = 1, expert = 1, tensor = 1, sequence = 1, stage = 1;
  std::int64_t microbatches = 0;  // of a pipeline; 0: as many as stages
  std::int64_t replicas = 1;      // groups of hosts that the data axis spans
  bool operator==(const MeshSpec&) const = default;
};

// A factor of an axis, the smallest unit that a dimension is split by. An axis of size 1 has none,
// others have one, but tensor has two where there are fewer kv heads than its size.
struct MeshAtom {
  int axis = kData;
  std::int64_t size = 1;
  std::string name;  // "fsdp"; "tensor.0" and "tensor.1" of an axis with two
  bool operator==(const MeshAtom&) const = default;
};

struct Mesh {
  std::array<std::int64_t, 6> sizes = {1, 1, 1, 1, 1, 1};  // by kMeshAxes
  std::vector<MeshAtom> atoms = {};                        // in order of axes, major first

  std::int64_t devices() const;
  std::int64_t size(MeshAxis axis) const { return sizes[static_cast<std::size_t>(axis)]; }
  // Product of the sizes of these atoms.
  std::int64_t product(std::span<const int> atoms_of) const;
  // The atoms of an axis, major first.
  std::vector<int> atoms_of(MeshAxis axis) const;
  // Where a device stands along each atom.
  std::vector<std::int64_t> coordinates(std::int64_t device) const;
  // Which of the product(atoms_of) blocks of a dimension that these atoms split a device holds.
  std::int64_t block(std::span<const int> atoms_of, std::int64_t device) const;
  bool operator==(const Mesh&) const = default;
};

// Throws ErrorCode::layout_refused, with every factor and the device count, if a factor is below 1
// or their product does not divide `devices`, or if replicas do not divide data.
Mesh build_mesh(const MeshSpec& spec, std::int64_t devices);

// What MESH is on a command line: "fsdp=16,tensor=16", in any order, absent axes 1. Throws
// ErrorCode::usage for what it is not, an unknown axis with the nearest one. parse_mesh() leaves
// data to the devices and refuses it; parse_sizes() takes it too and gives the whole mesh.
MeshSpec parse_mesh(std::string_view text);
Mesh parse_sizes(std::string_view text);

// What DEVICES is: 1 for "cpu", 8 for "cpu:8", over all processes together. Nothing if it is
// neither.
std::optional<std::int64_t> parse_devices(std::string_view text);

// The devices in the order in which they fill the mesh, where hosts[d] is the host of device d: as
// they are, or with replicas above 1 and several hosts one group of hosts after the other, so that
// every axis but data stays inside a group. Throws ErrorCode::layout_refused if the groups would
// not be of equally many hosts and devices. REQUIRES: one host for each device.
std::vector<std::int64_t> device_order(const Mesh& mesh, std::int64_t replicas,
                                       std::span<const std::int64_t> hosts);

// The same mesh with the atom of `axis` split in two, the major one of size `major`. REQUIRES: the
// axis has one atom, and `major` divides it.
Mesh split_axis(const Mesh& mesh, MeshAxis axis, std::int64_t major);

// "{'data': 8, 'expert': 1, 'fsdp': 1, 'tensor': 1, 'sequence': 1, 'stage': 1}"
std::string to_string(const Mesh& mesh);

}  // namespace dew
