// Grids and rows for the tests of cluster plans.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dew/sharding/cluster.h"

namespace dew {

using Numbers = std::vector<std::int64_t>;

// Axes in the order given; batch axes and sequence by their names.
inline DeviceGrid grid_of(const std::vector<GridAxis>& axes) {
  DeviceGrid grid{.axes = axes};
  for (const char* name : {"data", "expert", "fsdp"}) {
    if (std::ranges::find(axes, name, &GridAxis::name) != axes.end()) grid.batch.push_back(name);
  }
  std::int64_t devices = 1;
  for (const GridAxis& axis : axes) {
    if (axis.name == "seq") grid.sequence.push_back("seq");
    devices *= axis.size;
  }
  grid.processes = consecutive_processes(devices, 1);
  return grid;
}

inline DeviceGrid with_processes(DeviceGrid grid, Numbers processes) {
  grid.processes = std::move(processes);
  return grid;
}

// Process p holds devices each * p and the following ones.
inline DeviceGrid in_order(DeviceGrid grid, std::int64_t each = 4) {
  grid.processes = consecutive_processes(std::ssize(grid.processes), each);
  return grid;
}

// 16 x 16 devices on 8 x 8 processes of 2 x 2.
inline DeviceGrid tiled(DeviceGrid grid) {
  for (std::int64_t d = 0; d < 256; ++d)
    grid.processes[static_cast<std::size_t>(d)] = d / 32 * 8 + d % 16 / 2;
  return grid;
}

inline Numbers rows_of(const ClusterPlan& plan, std::int64_t process,
                       RowPart part = RowPart::whole) {
  Numbers rows;
  for (const RowRange& range : plan.rows(process, part)) {
    for (std::int64_t row = range.begin; row < range.end; ++row) rows.push_back(row);
  }
  return rows;
}

// {first..last}
inline Numbers run(std::int64_t first, std::int64_t last) {
  Numbers rows(static_cast<std::size_t>(last - first + 1));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

inline const std::vector<GridAxis> kSeed = {{"fsdp", 16}, {"tensor", 16}},
                                   kFsdp256 = {{"fsdp", 256}},
                                   kStages = {{"stage", 4}, {"fsdp", 16}, {"tensor", 4}},
                                   kData4 = {{"data", 4}, {"fsdp", 16}, {"tensor", 4}};

}  // namespace dew
