#include "dew/sharding/cluster.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "dew/base/error.h"
#include "dew/sharding/cluster_test_support.h"

namespace dew {
namespace {

// RapidCheck prints the failing case and its seed; this makes it a failure of the test.
template <typename Body>
void expect_property(const char* name, Body body) {
  EXPECT_TRUE(rc::check(name, body)) << name;
}

bool is_in(const std::string& name, std::initializer_list<const char*> names) {
  return std::ranges::find(names, name) != names.end();
}

// ---- notes on the cases

TEST(ClusterPlan, StagesReadWhatTheyUse) {  // C23
  const ClusterPlan plan(in_order(grid_of(kStages)), {.global_batch = 64, .microbatches = 4});
  for (std::int64_t p = 0; p < 64; ++p) {
    EXPECT_EQ(rows_of(plan, p, RowPart::tokens), p < 16 ? rows_of(plan, p) : Numbers());
    EXPECT_EQ(rows_of(plan, p, RowPart::labels), p >= 48 ? rows_of(plan, p) : Numbers());
    EXPECT_EQ(rows_of(plan, p), rows_of(plan, p % 16));
  }
  const ClusterPlan flat(in_order(grid_of(kSeed)), {.global_batch = 16});
  EXPECT_EQ(rows_of(flat, 4, RowPart::tokens), (Numbers{1}));
  EXPECT_EQ(rows_of(flat, 4, RowPart::labels), (Numbers{1}));
}

TEST(ClusterPlan, ColumnsFollowTheSequenceAxes) {
  using Columns = std::vector<ColumnRange>;
  const ClusterPlan c26(in_order(grid_of({{"fsdp", 16}, {"seq", 4}, {"tensor", 4}})),
                        {.global_batch = 16, .seq_len = 8190});
  for (std::int64_t p = 0; p < 64; ++p)
    EXPECT_EQ(c26.columns(p), (Columns{{2048 * (p % 4), 2048 * (p % 4) + 2048}}));
  EXPECT_EQ(c26.plan().device_shape(), (Dims{1, 1, 2048}));
  EXPECT_EQ(c26.plan().global_shape(), (Dims{1, 16, 8192}));
  EXPECT_DOUBLE_EQ(c26.plan().token_weight(), 1.0 / (16 * 8190));

  const ClusterPlan c27(in_order(grid_of({{"fsdp", 4}, {"seq", 64}})),
                        {.global_batch = 4, .seq_len = 131072});
  for (std::int64_t p = 0; p < 64; ++p)
    EXPECT_EQ(c27.columns(p), (Columns{{8192 * (p % 16), 8192 * (p % 16) + 8192}}));
  const ClusterPlan c28(in_order(grid_of({{"seq", 256}})), {.seq_len = 32768});
  EXPECT_EQ(c28.columns(63), (Columns{{32256, 32768}}));
  // Two parts that do not touch.
  const ClusterPlan woven(with_processes(grid_of({{"seq", 4}}), {0, 1, 0, 1}), {.seq_len = 8});
  EXPECT_EQ(woven.columns(0), (Columns{{0, 2}, {4, 6}}));
}

TEST(ClusterPlan, OwnersOfTheCases) {
  const ClusterPlan c29(in_order(grid_of({{"tensor", 256}})), {.global_batch = 3});
  EXPECT_EQ(c29.owner(0), 0);
  EXPECT_EQ(c29.owner(1), 1);
  EXPECT_EQ(c29.owner(2), 2);
  EXPECT_EQ(c29.owned(3), 0);
  const ClusterPlan c10(tiled(grid_of(kSeed)), {.global_batch = 128});
  for (std::int64_t p = 0; p < 64; ++p) EXPECT_EQ(c10.owned(p), 2);
  EXPECT_EQ(Numbers(c10.holders(0).begin(), c10.holders(0).end()), run(0, 7));
  EXPECT_EQ(Numbers(c10.holders(15).begin(), c10.holders(15).end()), run(56, 63));
}

TEST(ClusterPlan, BatchAxesCountInTheirOwnOrder) {
  DeviceGrid grid = grid_of({{"fsdp", 2}, {"data", 3}});
  ASSERT_EQ(grid.batch, (std::vector<std::string>{"data", "fsdp"}));
  // Device (f, d) holds shard 2 d + f.
  const ClusterPlan plan(grid, {.global_batch = 6});
  for (std::int64_t device = 0; device < 6; ++device)
    EXPECT_EQ(rows_of(plan, device), (Numbers{device % 3 * 2 + device / 3}));
}

TEST(ClusterPlan, ProcessesWithoutDevices) {
  const ClusterPlan plan(with_processes(grid_of({{"fsdp", 3}}), {4, 1, 4}), {.global_batch = 3});
  EXPECT_EQ(plan.processes(), 5);
  EXPECT_EQ(rows_of(plan, 0), Numbers());
  EXPECT_EQ(rows_of(plan, 4), (Numbers{0, 2}));
  EXPECT_EQ(plan.owned(3), 0);
  EXPECT_EQ(plan.readers(), 2);
  EXPECT_EQ(consecutive_processes(7, 3), (Numbers{0, 0, 0, 1, 1, 1, 2}));
}

TEST(ClusterPlan, Summary) {
  EXPECT_EQ(ClusterPlan(in_order(grid_of(kSeed)), {.global_batch = 16, .seq_len = 8192}).summary(),
            "16 rows of 8192 tokens on 16 batch shards x 1 sequence shard (256 devices, 64 "
            "processes): 1 row a shard as 1 micro step of 1; 16 physical rows, 0 pads (0.0 %), 0 "
            "empty shards; 64 processes read, each row 4.0 times");
  EXPECT_EQ(
      ClusterPlan(in_order(grid_of(kFsdp256)), {.global_batch = 17, .seq_len = 1, .accumulate = 4})
          .summary(),
      "17 rows of 1 token on 256 batch shards x 1 sequence shard (256 devices, 64 processes): "
      "1 row a shard as 1 micro step of 1; 256 physical rows, 239 pads (93.4 %), 239 empty "
      "shards; 17 processes read, each row 1.0 times");
}

TEST(ClusterPlan, ProductsMeshes) {
  const Mesh mesh = build_mesh({.fsdp = 2, .tensor = 3, .sequence = 2}, 24);
  const ClusterPlan plan(device_grid(mesh, consecutive_processes(24, 6)), {.global_batch = 4});
  EXPECT_EQ(plan.plan().batch_shards(), 4);
  EXPECT_EQ(plan.plan().sequence_shards(), 2);
  for (std::int64_t p = 0; p < 4; ++p) EXPECT_EQ(rows_of(plan, p), (Numbers{p}));
}

TEST(ClusterPlan, RefusesNonsense) {
  const auto message = [](const DeviceGrid& grid) -> std::string {
    try {
      ClusterPlan plan(grid, {.global_batch = 4});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "no error";
  };
  const DeviceGrid good = grid_of({{"fsdp", 4}, {"seq", 2}});
  EXPECT_EQ(message(good), "no error");
  DeviceGrid grid = good;
  grid.batch = {"fspd"};
  EXPECT_EQ(message(grid), "batch plan: there is no axis 'fspd'");
  grid.batch = {"fsdp", "fsdp"};
  EXPECT_EQ(message(grid), "batch plan: axis 'fsdp' is given twice");
  grid.batch = {"fsdp", "seq"};
  EXPECT_EQ(message(grid), "batch plan: axis 'seq' is given twice");
  grid = good;
  grid.axes[1].name = "fsdp";
  EXPECT_EQ(message(grid), "batch plan: axis 'fsdp' is given twice");
  grid = good;
  grid.axes[0].size = 0;
  EXPECT_EQ(message(grid), "batch plan: axis fsdp = 0, must be at least 1");
  grid.axes[0].size = std::int64_t{1} << 62;
  EXPECT_EQ(message(grid), "batch plan: the number of devices does not fit into 63 bits");
  EXPECT_EQ(message(with_processes(good, {})),
            "batch plan: 8 devices, but processes of 0 are given");
  EXPECT_EQ(message(with_processes(good, {0, 1})),
            "batch plan: 8 devices, but processes of 2 are given");
  EXPECT_EQ(message(with_processes(good, {0, 0, 0, 0, 0, 0, 0, -1})),
            "batch plan: process -1, but numbers go from 0 to 4194303");
  EXPECT_EQ(message(with_processes(good, {0, 0, 0, 0, 0, 0, 0, 1 << 22})),
            "batch plan: process 4194304, but numbers go from 0 to 4194303");
  EXPECT_EQ(message(DeviceGrid{.processes = {0}}), "no error");  // one device, no axes
  EXPECT_EQ(message(DeviceGrid{}), "batch plan: 1 device, but processes of 0 are given");
}

// ---- properties

// Axes in any order, any map of processes.
DeviceGrid any_grid() {
  std::vector<GridAxis> axes;
  for (const char* name : {"data", "expert", "fsdp", "tensor", "seq", "stage"})
    axes.push_back({name, *rc::gen::inRange<std::int64_t>(1, 4)});
  const auto turn = *rc::gen::inRange<std::ptrdiff_t>(0, 6);
  std::rotate(axes.begin(), axes.begin() + turn, axes.end());
  DeviceGrid grid = grid_of(axes);
  const auto processes = *rc::gen::inRange<std::int64_t>(1, 12);
  for (std::int64_t& process : grid.processes)
    process = *rc::gen::inRange<std::int64_t>(0, processes);
  return grid;
}

// The definition, device by device: what row g is held by.
std::vector<std::set<std::int64_t>> holders_of_rows(const DeviceGrid& grid,
                                                    const DispatchPlan& plan) {
  std::vector<std::set<std::int64_t>> holders(static_cast<std::size_t>(plan.global_batch()));
  for (std::size_t device = 0; device < grid.processes.size(); ++device) {
    std::map<std::string, std::int64_t> at;
    std::size_t rest = device;
    for (std::size_t a = grid.axes.size(); a-- > 0;) {
      const auto size = static_cast<std::size_t>(grid.axes[a].size);
      at[grid.axes[a].name] = static_cast<std::int64_t>(rest % size);
      rest /= size;
    }
    std::int64_t shard = 0;
    for (const std::string& name : grid.batch)
      shard = shard * std::ranges::find(grid.axes, name, &GridAxis::name)->size + at[name];
    for (std::int64_t g = 0; g < plan.global_batch(); ++g) {
      if (plan.shard(g) == shard)
        holders[static_cast<std::size_t>(g)].insert(grid.processes[device]);
    }
  }
  return holders;
}

// Property 4: the needs are what the devices hold, the owners share out the rows.
TEST(ClusterPlan, EveryRowIsReadWhereItIsHeldAndOwnedOnce) {
  expect_property("needs and owners", [] {
    const DeviceGrid grid = any_grid();
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 60);
    const auto fewer = *rc::gen::inRange<std::int64_t>(1, rows + 1);
    const ClusterPlan plan = ClusterPlan(grid, {.global_batch = rows}).with_global_batch(fewer);
    const auto holders = holders_of_rows(grid, plan.plan());
    std::vector<std::set<std::int64_t>> readers(holders.size());
    double read = 0;
    for (std::int64_t p = 0; p < plan.processes(); ++p) {
      std::int64_t end = -1;
      for (const RowRange& range : plan.rows(p)) {
        RC_ASSERT(range.begin > end && range.end > range.begin);  // in order, merged
        end = range.end;
      }
      for (const std::int64_t row : rows_of(plan, p)) {
        readers[static_cast<std::size_t>(row)].insert(p);
        ++read;
      }
    }
    RC_ASSERT(readers == holders);
    RC_ASSERT(std::ranges::none_of(holders, &std::set<std::int64_t>::empty));
    RC_ASSERT(std::abs(plan.read_amplification() - read / static_cast<double>(fewer)) < 1e-9);

    std::map<std::int64_t, std::int64_t> owned;
    std::map<std::set<std::int64_t>, std::map<std::int64_t, std::int64_t>> by_holders;
    for (std::int64_t g = 0; g < fewer; ++g) {
      const auto& held = holders[static_cast<std::size_t>(g)];
      RC_ASSERT(held.contains(plan.owner(g)));
      ++owned[plan.owner(g)];
      for (const std::int64_t p : held) by_holders[held][p] += p == plan.owner(g) ? 1 : 0;
    }
    for (std::int64_t p = 0; p < plan.processes(); ++p) RC_ASSERT(plan.owned(p) == owned[p]);
    for (const auto& [held, loads] : by_holders) {
      const auto [least, most] =
          std::ranges::minmax_element(loads, {}, [](const auto& load) { return load.second; });
      RC_ASSERT(most->second - least->second <= 1);
    }
  });
}

// Property 8: steps of finite data follow from the number of rows alone.
TEST(ClusterPlan, StepsOfFiniteDataDoNotDependOnTheCluster) {
  expect_property("finite data", [] {
    const DeviceGrid grid = any_grid();
    const auto batch = *rc::gen::inRange<std::int64_t>(1, 40);
    const ClusterPlan plan(grid, {.global_batch = batch});
    for (const std::int64_t rows :
         {std::int64_t{0}, std::int64_t{1}, batch - 1, batch, batch + 1, std::int64_t{1000}}) {
      const std::int64_t steps = plan.plan().batches(rows);
      RC_ASSERT(steps == DispatchPlan({.global_batch = batch}).batches(rows));
      std::int64_t seen = 0;
      for (std::int64_t k = 0; k < steps; ++k) {
        const ClusterPlan step = plan.with_global_batch(std::min(batch, rows - k * batch));
        RC_ASSERT(step.plan().global_shape() == plan.plan().global_shape());
        for (std::int64_t p = 0; p < step.processes(); ++p) seen += step.owned(p);
      }
      RC_ASSERT(seen == rows);
    }
  });
}

// Property 9: axes that hold copies change neither weights nor places.
TEST(ClusterPlan, CopiesAreNeverCounted) {
  expect_property("copies", [] {
    DeviceGrid grid = any_grid();
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 60);
    const ClusterPlan plan(grid, {.global_batch = rows, .seq_len = 12});
    std::erase_if(grid.axes, [](const GridAxis& a) { return is_in(a.name, {"tensor", "stage"}); });
    const ClusterPlan bare(grid_of(grid.axes), {.global_batch = rows, .seq_len = 12});
    RC_ASSERT(plan.plan().row_weight() == bare.plan().row_weight());
    RC_ASSERT(plan.plan().token_weight() == bare.plan().token_weight());
    RC_ASSERT(plan.plan().global_shape() == bare.plan().global_shape());
    double weight = 0;
    for (std::int64_t g = 0; g < rows; ++g) {
      RC_ASSERT(plan.plan().place(g) == bare.plan().place(g));
      weight += plan.plan().row_weight();
    }
    RC_ASSERT(std::abs(weight - 1) < 1e-12);
  });
}

// Property 10.
TEST(ClusterPlan, LargeClustersAreCheap) {
  const auto before = std::chrono::steady_clock::now();
  DeviceGrid grid = in_order(grid_of({{"data", 16}, {"fsdp", 256}, {"tensor", 16}}), 1);
  const ClusterPlan plan(grid, {.global_batch = std::int64_t{1} << 40, .seq_len = 8192});
  std::int64_t owned = 0, ranges = 0;
  for (std::int64_t p = 0; p < plan.processes(); ++p) {
    owned += plan.owned(p);
    ranges += std::ssize(plan.rows(p));
  }
  EXPECT_EQ(plan.processes(), 65536);
  EXPECT_EQ(owned, std::int64_t{1} << 40);
  EXPECT_EQ(ranges, 65536);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  EXPECT_LT(took.count(), 0.5);
}

}  // namespace
}  // namespace dew
