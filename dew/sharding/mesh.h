// The mesh: devices arranged in named axes. One device for now; larger meshes are refused where a
// run is set up.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dew {

// Always these six, in this order; later axes are neighbours.
inline constexpr std::array<const char*, 6> kMeshAxes = {"data",   "expert",   "fsdp",
                                                         "tensor", "sequence", "stage"};

// Sizes of the axes but data, which takes the devices that are left.
struct MeshSpec {
  std::int64_t fsdp = 1, expert = 1, tensor = 1, sequence = 1, stage = 1;
  std::int64_t microbatches = 0;  // of a pipeline; 0: as many as stages
  std::int64_t replicas = 1;      // groups of hosts that the data axis spans
  bool operator==(const MeshSpec&) const = default;
};

struct Mesh {
  std::array<std::int64_t, 6> sizes = {1, 1, 1, 1, 1, 1};  // by kMeshAxes
  bool operator==(const Mesh&) const = default;
};

// "{'data': 8, 'expert': 1, 'fsdp': 1, 'tensor': 1, 'sequence': 1, 'stage': 1}"
std::string to_string(const Mesh& mesh);

}  // namespace dew
