#include "dew/sharding/cluster.h"

#include <algorithm>
#include <map>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::int64_t kMostProcesses = std::int64_t{1} << 22;

[[noreturn]] void refuse(const std::string& why) { fail(ErrorCode::usage, "batch plan: " + why); }

std::string count_of(std::int64_t n, std::string_view one, std::string_view more) {
  return format("{} {}", n, n == 1 ? one : more);
}

// Lists of numbers one after another: list i is at [begin[i], begin[i + 1]).
struct Lists {
  std::vector<std::int64_t> begin = {0}, values = {};

  std::span<const std::int64_t> operator[](std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return std::span(values).subspan(static_cast<std::size_t>(begin[at]),
                                     static_cast<std::size_t>(begin[at + 1] - begin[at]));
  }
};

using Pair = std::pair<std::int64_t, std::int64_t>;

// For each first number below `count` the second ones it comes with, sorted, each once.
Lists lists_of(std::vector<Pair> pairs, std::int64_t count) {
  std::ranges::sort(pairs);
  pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
  Lists lists;
  auto next = pairs.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    for (; next != pairs.end() && next->first == i; ++next) lists.values.push_back(next->second);
    lists.begin.push_back(std::ssize(lists.values));
  }
  return lists;
}

// Numbers of the axes in `names`.
std::vector<std::size_t> find_axes(const DeviceGrid& grid, const std::vector<std::string>& names) {
  std::vector<std::size_t> found;
  for (const std::string& name : names) {
    const auto axis = std::ranges::find(grid.axes, name, &GridAxis::name);
    if (axis == grid.axes.end()) refuse(format("there is no axis '{}'", name));
    found.push_back(static_cast<std::size_t>(axis - grid.axes.begin()));
  }
  return found;
}

std::int64_t devices_of(const std::vector<GridAxis>& axes) {
  std::int64_t devices = 1;
  for (const GridAxis& axis : axes) {
    if (axis.size < 1) refuse(format("axis {} = {}, must be at least 1", axis.name, axis.size));
    if (__builtin_mul_overflow(devices, axis.size, &devices))
      refuse("the number of devices does not fit into 63 bits");
  }
  return devices;
}

void check(const DeviceGrid& grid) {
  std::vector<std::string> names, used = grid.batch;
  for (const GridAxis& axis : grid.axes) names.push_back(axis.name);
  used.insert(used.end(), grid.sequence.begin(), grid.sequence.end());
  for (auto* list : {&names, &used}) {
    std::ranges::sort(*list);
    const auto twice = std::ranges::adjacent_find(*list);
    if (twice != list->end()) refuse(format("axis '{}' is given twice", *twice));
  }
  const std::int64_t devices = devices_of(grid.axes);
  if (std::ssize(grid.processes) != devices) {
    refuse(format("{}, but processes of {} are given", count_of(devices, "device", "devices"),
                  grid.processes.size()));
  }
  for (const std::int64_t p : grid.processes) {
    if (p >= 0 && p < kMostProcesses) continue;
    refuse(format("process {}, but numbers go from 0 to {}", p, kMostProcesses - 1));
  }
}

// Where a device stands along each axis, device after device.
class Position {
 public:
  explicit Position(const std::vector<GridAxis>& axes) : axes_(axes), at_(axes.size(), 0) {}

  void next() {
    for (std::size_t a = at_.size(); a-- > 0;) {
      if (++at_[a] < axes_[a].size) return;
      at_[a] = 0;
    }
  }
  std::int64_t at(std::size_t axis) const { return at_[axis]; }
  // Mixed radix of these axes.
  std::int64_t block(const std::vector<std::size_t>& axes) const {
    std::int64_t out = 0;
    for (const std::size_t a : axes) out = out * axes_[a].size + at_[a];
    return out;
  }

 private:
  const std::vector<GridAxis>& axes_;
  std::vector<std::int64_t> at_;
};

std::int64_t product_of(const DeviceGrid& grid, const std::vector<std::size_t>& axes) {
  std::int64_t n = 1;
  for (const std::size_t a : axes) n *= grid.axes[a].size;
  return n;
}

// Appends a range, joined with the last one if it touches that.
template <class Range>
void append(std::vector<Range>& ranges, const Range& range) {
  if (range.begin == range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

DispatchOptions on_shards(DispatchOptions options, std::int64_t batch, std::int64_t sequence) {
  options.batch_shards = batch;
  options.sequence_shards = sequence;
  return options;
}

}  // namespace

// What the grid alone says.
struct ClusterPlan::Holding {
  explicit Holding(const DeviceGrid& grid);

  std::int64_t devices = 0, processes = 0, batch_shards = 1, sequence_shards = 1;
  Lists shards, first_stage, last_stage, columns;  // of each process
  Lists holders;                                   // processes of each batch shard
  // Shards with the same holders share a set; sets are numbered in the order of their first shard.
  std::vector<std::int64_t> set_of, first_of_set;
  Lists sets;  // of each process
};

ClusterPlan::Holding::Holding(const DeviceGrid& grid) {
  check(grid);
  const auto batch = find_axes(grid, grid.batch), sequence = find_axes(grid, grid.sequence);
  devices = std::ssize(grid.processes);
  processes = *std::ranges::max_element(grid.processes) + 1;
  batch_shards = product_of(grid, batch);
  sequence_shards = product_of(grid, sequence);

  const auto stage = std::ranges::find(grid.axes, "stage", &GridAxis::name);
  const std::size_t stage_axis = static_cast<std::size_t>(stage - grid.axes.begin());
  const std::int64_t stages = stage == grid.axes.end() ? 1 : stage->size;
  std::vector<Pair> all, first, last, wide, held;
  Position position(grid.axes);
  for (const std::int64_t process : grid.processes) {
    const std::int64_t shard = position.block(batch);
    const std::int64_t at = stages == 1 ? 0 : position.at(stage_axis);
    all.emplace_back(process, shard);
    held.emplace_back(shard, process);
    wide.emplace_back(process, position.block(sequence));
    if (at == 0) first.emplace_back(process, shard);
    if (at == stages - 1) last.emplace_back(process, shard);
    position.next();
  }
  shards = lists_of(std::move(all), processes);
  first_stage = lists_of(std::move(first), processes);
  last_stage = lists_of(std::move(last), processes);
  columns = lists_of(std::move(wide), processes);
  holders = lists_of(std::move(held), batch_shards);

  std::map<std::vector<std::int64_t>, std::int64_t> number;
  std::vector<Pair> members;
  for (std::int64_t b = 0; b < batch_shards; ++b) {
    const auto list = holders[b];
    const auto [at, fresh] = number.try_emplace({list.begin(), list.end()}, std::ssize(number));
    set_of.push_back(at->second);
    if (!fresh) continue;
    first_of_set.push_back(b);
    for (const std::int64_t process : list) members.emplace_back(process, at->second);
  }
  sets = lists_of(std::move(members), processes);
}

DeviceGrid device_grid(const Mesh& mesh, std::vector<std::int64_t> processes) {
  DeviceGrid grid{.batch = {"data", "expert", "fsdp"},
                  .sequence = {"sequence"},
                  .processes = std::move(processes)};
  for (std::size_t a = 0; a < kMeshAxes.size(); ++a)
    grid.axes.push_back({kMeshAxes[a], mesh.sizes[a]});
  return grid;
}

std::vector<std::int64_t> consecutive_processes(std::int64_t devices, std::int64_t each) {
  DEW_CHECK(each >= 1, format("{} devices each", each));
  std::vector<std::int64_t> processes(static_cast<std::size_t>(devices));
  for (std::int64_t d = 0; d < devices; ++d) processes[static_cast<std::size_t>(d)] = d / each;
  return processes;
}

ClusterPlan::ClusterPlan(const DeviceGrid& grid, DispatchOptions options)
    : holding_(std::make_shared<const Holding>(grid)),
      plan_(on_shards(options, holding_->batch_shards, holding_->sequence_shards)) {
  deal_rows();
}

ClusterPlan ClusterPlan::with_global_batch(std::int64_t rows) const {
  ClusterPlan plan = *this;
  plan.plan_ = plan_.with_global_batch(rows);
  plan.deal_rows();
  return plan;
}

void ClusterPlan::deal_rows() {
  rank_of_first_.assign(holding_->set_of.size(), 0);
  rows_of_set_.assign(holding_->first_of_set.size(), 0);
  for (std::size_t b = 0; b < rank_of_first_.size(); ++b) {
    std::int64_t& rows = rows_of_set_[static_cast<std::size_t>(holding_->set_of[b])];
    rank_of_first_[b] = rows;
    rows += plan_.rows_of(static_cast<std::int64_t>(b));
  }
}

std::int64_t ClusterPlan::devices() const { return holding_->devices; }

std::int64_t ClusterPlan::processes() const { return holding_->processes; }

std::vector<RowRange> ClusterPlan::rows(std::int64_t process, RowPart part) const {
  const Lists& shards = part == RowPart::whole    ? holding_->shards
                        : part == RowPart::tokens ? holding_->first_stage
                                                  : holding_->last_stage;
  std::vector<RowRange> ranges;
  for (const std::int64_t b : shards[process])
    append(ranges, RowRange{plan_.first_row(b), plan_.first_row(b + 1)});
  return ranges;
}

std::vector<ColumnRange> ClusterPlan::columns(std::int64_t process) const {
  std::vector<ColumnRange> all, ranges;
  for (const std::int64_t sigma : holding_->columns[process]) {
    for (const ColumnRange& range : plan_.columns(sigma)) all.push_back(range);
  }
  // A map of columns may deal them to sequence shards in any order.
  std::ranges::sort(all, {}, &ColumnRange::begin);
  for (const ColumnRange& range : all) append(ranges, range);
  return ranges;
}

std::span<const std::int64_t> ClusterPlan::holders(std::int64_t shard) const {
  return holding_->holders[shard];
}

std::int64_t ClusterPlan::owner(std::int64_t row) const {
  const std::int64_t b = plan_.shard(row);
  const std::int64_t rank = rank_of_first_[static_cast<std::size_t>(b)] + row - plan_.first_row(b);
  const auto list = holders(b);
  return list[static_cast<std::size_t>(rank) % list.size()];
}

std::int64_t ClusterPlan::owned(std::int64_t process) const {
  std::int64_t owned = 0;
  for (const std::int64_t set : holding_->sets[process]) {
    const std::int64_t rows = rows_of_set_[static_cast<std::size_t>(set)];
    const auto list = holders(holding_->first_of_set[static_cast<std::size_t>(set)]);
    const std::int64_t place = std::ranges::lower_bound(list, process) - list.begin();
    owned += rows / std::ssize(list) + (place < rows % std::ssize(list) ? 1 : 0);
  }
  return owned;
}

std::int64_t ClusterPlan::readers() const {
  std::int64_t readers = 0;
  for (std::int64_t p = 0; p < processes(); ++p) {
    const auto list = holding_->shards[p];
    if (std::ranges::any_of(list, [&](std::int64_t b) { return plan_.rows_of(b) > 0; })) ++readers;
  }
  return readers;
}

double ClusterPlan::read_amplification() const {
  // Each shard's rows are read by each of its holders.
  double read = 0;
  for (std::int64_t b = 0; b < plan_.batch_shards(); ++b)
    read += static_cast<double>(plan_.rows_of(b)) * static_cast<double>(std::ssize(holders(b)));
  return read / static_cast<double>(plan_.global_batch());
}

std::string ClusterPlan::summary() const {
  return format(
      "{} of {} on {} x {} ({}, {}): {} a shard as {} of {}; {} physical rows, {} ({:.1f} %), "
      "{}; {} read, each row {:.1f} times",
      count_of(plan_.global_batch(), "row", "rows"), count_of(plan_.seq_len(), "token", "tokens"),
      count_of(plan_.batch_shards(), "batch shard", "batch shards"),
      count_of(plan_.sequence_shards(), "sequence shard", "sequence shards"),
      count_of(devices(), "device", "devices"), count_of(processes(), "process", "processes"),
      count_of(plan_.rows_per_shard(), "row", "rows"),
      count_of(plan_.steps(), "micro step", "micro steps"), plan_.micro_batch(),
      plan_.physical_batch(), count_of(plan_.pads(), "pad", "pads"), 100 * plan_.pad_share(),
      count_of(plan_.empty_shards(), "empty shard", "empty shards"),
      count_of(readers(), "process", "processes"), read_amplification());
}

}  // namespace dew
