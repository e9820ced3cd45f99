// Who needs which rows: a DispatchPlan on devices that belong to processes. Pure arithmetic, so it
// also answers for a cluster that one does not have.
//
// A process needs the rows of the batch shards that its devices hold, found by their global number.
// Nothing depends on how many processes there are or how they lie on the mesh. Example: 3 rows on a
// mesh fsdp=2, tensor=4 whose process p holds devices 2p and 2p+1:
//
//   shard 0 (rows 0, 1)   processes 0, 1        shard 1 (row 2)   processes 2, 3
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/sharding/dispatch.h"
#include "dew/sharding/mesh.h"

namespace dew {

struct GridAxis {
  std::string name;
  std::int64_t size = 1;
  bool operator==(const GridAxis&) const = default;
};

// Devices in named axes, in any order; they fill them row-major.
struct DeviceGrid {
  std::vector<GridAxis> axes = {};
  // Axes that split rows and columns, the first one into the largest groups of neighbours. All
  // other axes hold copies.
  std::vector<std::string> batch = {}, sequence = {};
  // The process of each device, in the order of the grid. Any map: uneven, scattered, with
  // processes that have no device.
  std::vector<std::int64_t> processes = {};
};

// Of a mesh: data, expert and fsdp split rows, sequence splits columns.
DeviceGrid device_grid(const Mesh& mesh, std::vector<std::int64_t> processes);
// Process p has devices [p * each, (p + 1) * each); the last one what is left. REQUIRES: each >= 1.
std::vector<std::int64_t> consecutive_processes(std::int64_t devices, std::int64_t each);

// Rows [begin, end) of the global batch.
struct RowRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};

// What of a row: tokens go in at the first stage, labels and weights at the last one.
enum class RowPart { whole, tokens, labels };

// Immutable; copies share what does not depend on the number of rows.
class ClusterPlan {
 public:
  // Batch and sequence shards come from the grid, whatever `options` say. Throws ErrorCode::usage
  // as DispatchPlan does, and for a grid without devices, a size below 1, an unknown or repeated
  // axis, an axis for rows and columns both, a process number that is negative or 2^22 and above,
  // and another number of devices than the axes have.
  ClusterPlan(const DeviceGrid& grid, DispatchOptions options);
  // See DispatchPlan.
  ClusterPlan with_global_batch(std::int64_t rows) const;

  const DispatchPlan& plan() const { return plan_; }
  std::int64_t devices() const;
  std::int64_t processes() const;  // numbers from 0 to the largest one

  // What a process needs: ranges in order, none touching the next. Every holder of a row reads it.
  std::vector<RowRange> rows(std::int64_t process, RowPart part = RowPart::whole) const;
  // Columns of these rows, of all the process's devices together.
  std::vector<ColumnRange> columns(std::int64_t process) const;

  // Processes that hold a batch shard, in order.
  std::span<const std::int64_t> holders(std::int64_t shard) const;
  // Owner mode, where each row is read once and then travels to its other holders: the process that
  // reads it, and how many a process reads. Rows whose shards have the same holders are dealt to
  // these in turn.
  std::int64_t owner(std::int64_t row) const;
  std::int64_t owned(std::int64_t process) const;

  std::int64_t readers() const;       // processes that need any row
  double read_amplification() const;  // rows needed by all processes together, over the batch

  // The plan in one line.
  std::string summary() const;

 private:
  struct Holding;
  void deal_rows();

  std::shared_ptr<const Holding> holding_;
  DispatchPlan plan_;
  // For each shard, the rows before its own among those of shards with the same holders; then the
  // number of rows of each set of holders.
  std::vector<std::int64_t> rank_of_first_, rows_of_set_;
};

}  // namespace dew
