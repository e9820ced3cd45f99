#include "dew/checkpoint/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "dew/checkpoint/sample_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

// A door that a write stands before until the test opens it.
class Door {
 public:
  void open() {
    {
      const std::scoped_lock lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

std::vector<StateTensor> view(const Sample& sample) {
  std::vector<StateTensor> state;
  for (const TensorRecord& t : sample.tensors) {
    state.push_back({t, {{whole(t.shape), sample.values.at(t.name)}}});
  }
  return state;
}

Snapshot::Write to(const Path& directory, std::int64_t step) {
  return [=](std::span<const StateTensor> copy) {
    write_checkpoint(directory, sample_info(step), copy);
  };
}

// The state changes while the write has not even begun.
TEST(Snapshot, HoldsTheStateAsItWas) {
  const TempDir one, two;
  Sample sample;
  write_checkpoint(one.path(), sample_info(), view(sample));
  Door door;
  Snapshot snapshot;
  snapshot.start(view(sample), [&](std::span<const StateTensor> copy) {
    door.pass();
    write_checkpoint(two.path(), sample_info(), copy);
  });
  EXPECT_FALSE(snapshot.poll());
  for (auto& [name, bytes] : sample.values) std::ranges::fill(bytes, std::byte{1});
  door.open();
  snapshot.wait();
  EXPECT_TRUE(snapshot.poll());
  for (const std::string& name : list_directory(one / "step_00000400", ErrorCode::internal)) {
    EXPECT_EQ(read_text(one / "step_00000400" / name), read_text(two / "step_00000400" / name));
  }
}

TEST(Snapshot, OneAtATimeInOneBuffer) {
  const TempDir dir;
  const Sample sample;
  Snapshot snapshot;
  EXPECT_TRUE(snapshot.poll());
  std::set<const std::byte*> places;
  std::atomic<int> at_work = 0;
  for (std::int64_t step = 1; step <= 4; ++step) {
    snapshot.start(view(sample), [&, step](std::span<const StateTensor> copy) {
      EXPECT_EQ(++at_work, 1);
      places.insert(copy.front().parts.front().bytes.data());
      to(dir.path(), step)(copy);
      --at_work;
    });
  }
  snapshot.wait();
  EXPECT_EQ(places.size(), 1u);
  EXPECT_EQ(list_checkpoints(dir.path(), Verify::everything).size(), 4u);
  for (const CheckpointEntry& entry : list_checkpoints(dir.path(), Verify::everything)) {
    EXPECT_EQ(entry.problem, "");
  }
}

TEST(Snapshot, WhatFailsIsThrownOnceByWhoeverAsksNext) {
  const TempDir dir;
  write_text(dir / "file", "in the way");
  const Sample sample;
  const auto fails = to(dir / "file", 1);
  Snapshot snapshot;
  const auto expect_error = [&](const auto& ask) {
    EXPECT_THAT(refusal(ask), HasSubstr("file"));
    EXPECT_TRUE(snapshot.poll());
  };
  snapshot.start(view(sample), fails);
  expect_error([&] { snapshot.wait(); });
  snapshot.start(view(sample), fails);
  expect_error([&] {
    while (!snapshot.poll()) std::this_thread::yield();
  });
  snapshot.start(view(sample), fails);
  expect_error([&] { snapshot.start(view(sample), to(dir.path(), 1)); });
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
}

TEST(Snapshot, TheEndWaits) {
  const TempDir dir;
  const Sample sample;
  { Snapshot().start(view(sample), to(dir.path(), 7)); }
  EXPECT_EQ(newest_checkpoint(dir.path(), Verify::everything).found->step, 7);
}

}  // namespace
}  // namespace dew
