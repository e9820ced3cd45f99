// How the devices of a mesh are dealt to processes.
#pragma once

#include <cstdint>
#include <vector>

#include "dew/base/shape.h"
#include "dew/sharding/mesh.h"
#include "dew/sharding/spec.h"

namespace dew {

// Every process holds a box of the mesh of the same size: of each atom, from the last one on, as
// much as goes into its number of devices. Where process p's devices [p * each, (p + 1) * each) are
// a box, it is that one. Example, fsdp = 8, tensor = 2 on 4 processes: tensor is inside of all,
// fsdp has an atom of 4 that crosses between processes, and one of 2 inside.
struct ProcessGrid {
  Mesh mesh;  // the same devices, with atoms that lie inside of every process or cross
  // Of each atom of the mesh that was given, those of `mesh` that it became, major first.
  std::vector<std::vector<int>> parts;
  std::vector<bool> crosses;  // of each atom of `mesh`
  std::int64_t processes = 1;

  // Where a process stands along each atom of `mesh`; -1 on those that it holds whole. Processes
  // are numbered by their places, those along the first atom the major digit.
  Dims place(std::int64_t process) const;
  // Of each device in mesh order.
  std::vector<std::int64_t> process_of_device() const;
};

// Throws ErrorCode::layout_refused unless the processes divide the devices.
ProcessGrid process_grid(const Mesh& mesh, std::int64_t processes);

}  // namespace dew
