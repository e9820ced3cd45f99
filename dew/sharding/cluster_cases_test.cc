// The worked cases of batch dispatch: meshes, processes and batches with every number of the plan.
// Axes lie in the order written; "g" is the global batch.
#include <gtest/gtest.h>

#include <map>

#include "dew/sharding/cluster_test_support.h"

namespace dew {
namespace {

struct Case {
  const char* id;
  DeviceGrid grid;
  DispatchOptions options;
  std::int64_t batch_shards, sequence_shards, micro, steps, rows_per_shard, physical, pads;
  double pad_percent, amplification;
  std::map<std::int64_t, Numbers> rows;  // of some processes
  std::int64_t least_owned, most_owned;
};

// A case of the table on few lines.
// clang-format off
std::vector<Case> cases_of_the_seed() {
  const auto lin4 = in_order(grid_of(kSeed));
  const auto tile = tiled(grid_of(kSeed));
  const auto g = [](std::int64_t rows) { return DispatchOptions{.global_batch = rows}; };
  const DispatchOptions four_steps = {.global_batch = 17, .accumulate = 4};
  return {
      {"C01", lin4, g(16), 16, 1, 1, 1, 1, 16, 0, 0, 4,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {1}}, {32, {8}}, {63, {15}}}, 0, 1},
      {"C02", lin4, g(128), 16, 1, 8, 1, 8, 128, 0, 0, 4,
       {{0, run(0, 7)}, {1, run(0, 7)}, {3, run(0, 7)}, {4, run(8, 15)}, {32, run(64, 71)}, {63,
       run(120, 127)}}, 2, 2},
      {"C03", lin4, g(256), 16, 1, 16, 1, 16, 256, 0, 0, 4,
       {{0, run(0, 15)}, {1, run(0, 15)}, {3, run(0, 15)}, {4, run(16, 31)}, {32, run(128, 143)},
       {63, run(240, 255)}}, 4, 4},
      {"C04", lin4, g(8), 16, 1, 1, 1, 1, 16, 8, 50, 4,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {}}, {32, {4}}, {63, {}}}, 0, 1},
      {"C05", lin4, g(1), 16, 1, 1, 1, 1, 16, 15, 93.8, 4,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {}}, {32, {}}, {63, {}}}, 0, 1},
      {"C06", lin4, g(17), 16, 1, 2, 1, 2, 32, 15, 46.9, 4,
       {{0, {0, 1}}, {1, {0, 1}}, {3, {0, 1}}, {4, {2}}, {32, {9}}, {63, {16}}}, 0, 1},
      {"C07", lin4, four_steps, 16, 1, 1, 2, 2, 32, 15, 46.9, 4,
       {{0, {0, 1}}, {1, {0, 1}}, {3, {0, 1}}, {4, {2}}, {32, {9}}, {63, {16}}}, 0, 1},
      {"C08", lin4, g(100), 16, 1, 7, 1, 7, 112, 12, 10.7, 4,
       {{0, run(0, 6)}, {1, run(0, 6)}, {3, run(0, 6)}, {4, run(7, 12)}, {32, run(50, 56)}, {63,
       run(94, 99)}}, 1, 2},
      {"C09", tile, g(16), 16, 1, 1, 1, 1, 16, 0, 0, 8,
       {{0, {0, 1}}, {1, {0, 1}}, {3, {0, 1}}, {4, {0, 1}}, {32, {8, 9}}, {63, {14, 15}}}, 0, 1},
      {"C10", tile, g(128), 16, 1, 8, 1, 8, 128, 0, 0, 8,
       {{0, run(0, 15)}, {1, run(0, 15)}, {3, run(0, 15)}, {4, run(0, 15)}, {32, run(64, 79)},
       {63, run(112, 127)}}, 2, 2},
  };
}

std::vector<Case> cases_of_fsdp_and_data() {
  const auto lin4 = in_order(grid_of(kFsdp256)), data = in_order(grid_of(kData4));
  const auto expert = in_order(grid_of({{"data", 2}, {"expert", 4}, {"fsdp", 8}, {"tensor", 4}}));
  const auto g = [](std::int64_t rows) { return DispatchOptions{.global_batch = rows}; };
  return {
      {"C13", lin4, g(16), 256, 1, 1, 1, 1, 256, 240, 93.8, 1,
       {{0, {0}}, {1, {}}, {3, {}}, {4, {1}}, {32, {8}}, {63, {}}}, 0, 1},
      {"C14", lin4, g(128), 256, 1, 1, 1, 1, 256, 128, 50, 1,
       {{0, {0, 1}}, {1, {2, 3}}, {3, {6, 7}}, {4, {8, 9}}, {32, {64, 65}}, {63, {126, 127}}}, 2,
       2},
      {"C15", lin4, g(256), 256, 1, 1, 1, 1, 256, 0, 0, 1,
       {{0, run(0, 3)}, {1, run(4, 7)}, {3, run(12, 15)}, {4, run(16, 19)}, {32, run(128, 131)},
       {63, run(252, 255)}}, 4, 4},
      {"C17", lin4, g(300), 256, 1, 2, 1, 2, 512, 212, 41.4, 1,
       {{0, run(0, 4)}, {1, run(5, 9)}, {3, run(15, 18)}, {4, run(19, 23)}, {32, run(150, 154)},
       {63, run(296, 299)}}, 4, 5},
      {"C18", lin4, g(1), 256, 1, 1, 1, 1, 256, 255, 99.6, 1,
       {{0, {0}}, {1, {}}, {3, {}}, {4, {}}, {32, {}}, {63, {}}}, 0, 1},
      {"C19", data, g(4), 64, 1, 1, 1, 1, 64, 60, 93.8, 1,
       {{0, {0}}, {1, {}}, {3, {}}, {4, {}}, {32, {2}}, {63, {}}}, 0, 1},
      {"C20", data, g(96), 64, 1, 2, 1, 2, 128, 32, 25, 1,
       {{0, {0, 1}}, {1, {2}}, {3, {5}}, {4, {6, 7}}, {32, {48, 49}}, {63, {95}}}, 1, 2},
      {"C22", expert, g(48), 64, 1, 1, 1, 1, 64, 16, 25, 1,
       {{0, {0}}, {1, {1}}, {3, {}}, {4, {3}}, {32, {24}}, {63, {}}}, 0, 1},
  };
}

std::vector<Case> cases_of_stage_and_sequence() {
  const auto stages = in_order(grid_of(kStages));
  const auto sequence = in_order(grid_of({{"fsdp", 16}, {"seq", 4}, {"tensor", 4}}));
  const auto longer = in_order(grid_of({{"fsdp", 4}, {"seq", 64}}));
  const auto all_sequence = in_order(grid_of({{"seq", 256}}));
  const auto all_tensor = in_order(grid_of({{"tensor", 256}}));
  const auto piped = [](std::int64_t rows, std::int64_t accumulate) {
    return DispatchOptions{.global_batch = rows, .accumulate = accumulate, .microbatches = 4};
  };
  const auto g = [](std::int64_t rows, std::int64_t tokens = 8192) {
    return DispatchOptions{.global_batch = rows, .seq_len = tokens};
  };
  return {
      {"C23", stages, piped(64, 1), 16, 1, 4, 1, 4, 64, 0, 0, 4,
       {{0, run(0, 3)}, {1, run(4, 7)}, {3, run(12, 15)}, {4, run(16, 19)}, {32, run(0, 3)}, {63,
       run(60, 63)}}, 1, 1},
      {"C24", stages, piped(16, 1), 16, 1, 4, 1, 4, 64, 48, 75, 4,
       {{0, {0}}, {1, {1}}, {3, {3}}, {4, {4}}, {32, {0}}, {63, {15}}}, 0, 1},
      {"C25", stages, piped(128, 2), 16, 1, 4, 2, 8, 128, 0, 0, 4,
       {{0, run(0, 7)}, {1, run(8, 15)}, {3, run(24, 31)}, {4, run(32, 39)}, {32, run(0, 7)}, {63,
       run(120, 127)}}, 2, 2},
      {"C26", sequence, g(16, 8190), 16, 4, 1, 1, 1, 16, 0, 0, 4,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {1}}, {32, {8}}, {63, {15}}}, 0, 1},
      {"C27", longer, g(4, 131072), 4, 64, 1, 1, 1, 4, 0, 0, 16,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {0}}, {32, {2}}, {63, {3}}}, 0, 1},
      {"C28", all_sequence, g(1, 32768), 1, 256, 1, 1, 1, 1, 0, 0, 64,
       {{0, {0}}, {1, {0}}, {3, {0}}, {4, {0}}, {32, {0}}, {63, {0}}}, 0, 1},
      {"C29", all_tensor, g(3), 1, 1, 3, 1, 3, 3, 0, 0, 64,
       {{0, run(0, 2)}, {1, run(0, 2)}, {3, run(0, 2)}, {4, run(0, 2)}, {32, run(0, 2)}, {63,
       run(0, 2)}}, 0, 1},
  };
}

std::vector<Case> cases_of_odd_processes() {
  const auto g = [](std::int64_t rows) { return DispatchOptions{.global_batch = rows}; };
  const auto fours = [](std::int64_t rows) {
    return DispatchOptions{.global_batch = rows, .accumulate = 4};
  };
  const auto uneven = with_processes(grid_of({{"fsdp", 8}}), {0, 0, 0, 1, 1, 1, 1, 1});
  const auto permuted = with_processes(grid_of({{"fsdp", 4}}), {2, 0, 3, 1});
  const auto woven = with_processes(grid_of({{"fsdp", 8}}), {0, 1, 0, 1, 0, 1, 0, 1});
  const auto pairs = in_order(grid_of({{"fsdp", 4}, {"tensor", 2}}));
  const auto halves = in_order(grid_of({{"fsdp", 4}, {"tensor", 4}}), 2);
  return {
      {"C30", uneven, g(5), 8, 1, 1, 1, 1, 8, 3, 37.5, 1,
       {{0, {0, 1}}, {1, {2, 3, 4}}}, 2, 3},
      {"C32", permuted, g(4), 4, 1, 1, 1, 1, 4, 0, 0, 1,
       {{0, {1}}, {1, {3}}, {2, {0}}, {3, {2}}}, 1, 1},
      {"C33", woven, g(8), 8, 1, 1, 1, 1, 8, 0, 0, 1,
       {{0, {0, 2, 4, 6}}, {1, {1, 3, 5, 7}}}, 4, 4},
      {"C34", pairs, fours(32), 4, 1, 2, 4, 8, 32, 0, 0, 1,
       {{0, run(0, 15)}, {1, run(16, 31)}}, 16, 16},
      {"C35", pairs, fours(30), 4, 1, 2, 4, 8, 32, 2, 6.2, 1,
       {{0, run(0, 14)}, {1, run(15, 29)}}, 15, 15},
      {"C37", halves, g(6), 4, 1, 2, 1, 2, 8, 2, 25, 2,
       {{0, {0, 1}}, {1, {0, 1}}, {3, {2}}, {4, {3, 4}}, {7, {5}}}, 0, 1},
  };
}
// clang-format on

void check_case(const Case& c, const ClusterPlan& plan) {
  SCOPED_TRACE(c.id);
  const DispatchPlan& p = plan.plan();
  EXPECT_EQ(p.batch_shards(), c.batch_shards);
  EXPECT_EQ(p.sequence_shards(), c.sequence_shards);
  EXPECT_EQ(p.micro_batch(), c.micro);
  EXPECT_EQ(p.steps(), c.steps);
  EXPECT_EQ(p.rows_per_shard(), c.rows_per_shard);
  EXPECT_EQ(p.physical_batch(), c.physical);
  EXPECT_EQ(p.pads(), c.pads);
  EXPECT_NEAR(100 * p.pad_share(), c.pad_percent, 0.0501);
  EXPECT_EQ(plan.read_amplification(), c.amplification);
  for (const auto& [process, rows] : c.rows) EXPECT_EQ(rows_of(plan, process), rows) << process;
  std::int64_t least = c.physical, most = 0;
  for (std::int64_t q = 0; q < plan.processes(); ++q) {
    least = std::min(least, plan.owned(q));
    most = std::max(most, plan.owned(q));
  }
  EXPECT_EQ(least, c.least_owned);
  EXPECT_EQ(most, c.most_owned);
  EXPECT_EQ(p.row_weight(), 1.0 / static_cast<double>(p.global_batch()));
}

TEST(ClusterPlan, WorkedCases) {
  for (const auto& list : {cases_of_the_seed(), cases_of_fsdp_and_data(),
                           cases_of_stage_and_sequence(), cases_of_odd_processes()}) {
    for (const Case& c : list) check_case(c, ClusterPlan(c.grid, c.options));
  }
  // An evaluation of which 40 rows are left.
  const Case tail = {"C38",
                     in_order(grid_of({{"fsdp", 16}})),
                     {.global_batch = 64},
                     16,
                     1,
                     4,
                     1,
                     4,
                     64,
                     24,
                     37.5,
                     1,
                     {{0, run(0, 9)}, {1, run(10, 19)}, {2, run(20, 29)}, {3, run(30, 39)}},
                     10,
                     10};
  check_case(tail, ClusterPlan(tail.grid, tail.options).with_global_batch(40));
}

}  // namespace
}  // namespace dew
