#include "dew/runtime/cpu/pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dew::cpu {
namespace {

// Phases of different sizes; every piece runs once, and a phase sees all that the one before it
// wrote.
TEST(Pool, PiecesRunOnceAndPhasesAreOrdered) {
  for (const int workers : {1, 2, 3, 5}) {
    Pool pool(workers, [] {});
    for (int repeat = 0; repeat < 50; ++repeat) {
      constexpr int kPhases = 8;
      std::vector<std::vector<int>> counts;
      for (int phase = 0; phase < kPhases; ++phase)
        counts.emplace_back(static_cast<std::size_t>(phase * 7 % 5 + 1), 0);
      std::atomic<int> wrong{0};
      pool.run([&](int) {
        for (int phase = 0; phase < kPhases; ++phase) {
          const int pieces = static_cast<int>(counts[static_cast<std::size_t>(phase)].size());
          for (int piece = pool.take_piece(); piece < pieces; piece = pool.take_piece()) {
            ++counts[static_cast<std::size_t>(phase)][static_cast<std::size_t>(piece)];
            if (phase == 0) continue;
            for (const int n : counts[static_cast<std::size_t>(phase - 1)]) wrong += n == 1 ? 0 : 1;
          }
          pool.barrier();
        }
      });
      EXPECT_EQ(wrong, 0);
      for (const auto& phase : counts) {
        for (const int n : phase) EXPECT_EQ(n, 1);
      }
    }
  }
}

TEST(Pool, StartRunsOnceOnEachThread) {
  std::atomic<int> started{0};
  {
    Pool pool(4, [&] { ++started; });
    pool.run([](int) {});
  }
  EXPECT_EQ(started, 4);
}

TEST(Pool, SleepingWorkersWakeUp) {
  Pool pool(3, [] {});
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> ran{0};
    pool.run([&](int) { ++ran; });
    EXPECT_EQ(ran, 3);
  }
}

}  // namespace
}  // namespace dew::cpu
