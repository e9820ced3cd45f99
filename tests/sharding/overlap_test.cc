// Exchanges between processes go on beside work that does not need them.
#include <gtest/gtest.h>

#include <chrono>

#include "dew/runtime/comm/threads_test_support.h"
#include "tests/sharding/machines.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;
using Clock = comm::ThreadWorld::Clock;

struct Timing {
  double seconds = 0;          // of the fastest step
  std::int64_t exchanges = 0;  // of a step
};

// Steps of a model on two processes, every exchange delayed.
Timing time_steps(const Module& module, const Placement& placement, Clock::duration delay) {
  comm::ThreadWorld world(2);
  world.delay = delay;
  Timing timing{1e9, 0};
  comm::run_processes(world, [&](comm::Job& job) {
    const auto backend = cpu_backend(1, placement.mesh.devices(), &job);
    ExecutedMachine machine(module, placement, *backend);
    for (int step = 0; step < 4; ++step) {
      job.exchange("", "a step");
      const std::int64_t before = world.exchanges();
      const auto begin = Clock::now();
      machine.run("train");
      const double took = std::chrono::duration<double>(Clock::now() - begin).count();
      job.exchange("", "a step");
      if (!job.first()) continue;
      timing.seconds = std::min(timing.seconds, took);
      timing.exchanges = world.exchanges() - before;
    }
  });
  return timing;
}

void expect_hidden(const MeshSpec& mesh, std::int64_t devices) {
  const Optimizer optimizer = {.name = "sgd", .momentum = 0.5, .clip_norm = 0.5};
  const LMObjective objective(CausalTransformer(llama_like()), {.seq_len = kColumns});
  const Module module =
      optimized(training_module(objective, optimizer, {1, 12, kColumns}, DType::f32));
  const Placement placement =
      training_placement(module, objective, optimizer, build_mesh(mesh, devices), nullptr);
  constexpr auto kDelay = std::chrono::milliseconds(5);
  // What else the machine does makes a step longer, never shorter.
  constexpr int kRounds = 6;
  double plain = 1e9, delayed = 1e9, sum = 0;
  for (int round = 0; round < kRounds && (round == 0 || delayed - plain > 0.3 * sum); ++round) {
    plain = std::min(plain, time_steps(module, placement, {}).seconds);
    const Timing timing = time_steps(module, placement, kDelay);
    delayed = std::min(delayed, timing.seconds);
    ASSERT_GT(timing.exchanges, 10);
    sum = 0.005 * static_cast<double>(timing.exchanges);
  }
  EXPECT_LT(delayed - plain, 0.3 * sum) << plain << " s became " << delayed << " s";
  std::printf("delayed by %.0f ms in all, a step grew by %.0f ms\n", 1e3 * sum,
              1e3 * (delayed - plain));
}

TEST(Overlap, GradientsOfReplicas) { expect_hidden({}, 2); }
TEST(Overlap, WeightsThatAreGathered) { expect_hidden({.fsdp = 2}, 2); }
TEST(Overlap, WeightsThatAreSplitInsideAndGathered) { expect_hidden({.fsdp = 2, .tensor = 2}, 4); }
TEST(Overlap, ReplicasOfWhatIsSplitInside) { expect_hidden({.fsdp = 2, .tensor = 2}, 8); }

}  // namespace
}  // namespace dew
