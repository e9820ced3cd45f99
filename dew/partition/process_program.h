// From the program of one device to that of one process, which holds a box of devices.
#pragma once

#include "dew/partition/partition.h"
#include "dew/sharding/process_grid.h"

namespace dew {

// The same programs, which say of every value over which atoms the devices inside of a process hold
// different bits. Groups and the registers' specs name all atoms of grid.mesh. What devices send
// and compute does not depend on the number of processes.
// REQUIRES: `parts` is of the mesh that the grid was made for.
Partitioned for_process(Partitioned parts, const ProcessGrid& grid);

}  // namespace dew
