#include "dew/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "dew/checkpoint/sample_test_support.h"
#include "dew/runtime/comm/threads_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A table [6, 4] whose rows lie in turn on the processes, and a scalar-like vector that all hold
// and the last one saves.
class PartOfState {
 public:
  PartOfState(const Processes& processes, float first)
      : table_(ramp(24, first)), vector_(ramp(3, first + 100)) {
    StateTensor table{.record = {.name = "params/table",
                                 .dtype = DType::f32,
                                 .shape = {6, 4},
                                 .axes = {"vocab", "embed"},
                                 .pieces = {}},
                      .parts = {}};
    for (std::int64_t row = processes.rank(); row < 6; row += processes.count()) {
      const auto bytes =
          std::span<std::byte>(table_).subspan(static_cast<std::size_t>(16 * row), 16);
      rows_.push_back(bytes);
      table.parts.push_back({{{row, 0}, {1, 4}}, bytes});
    }
    StateTensor vector{.record = {.name = "params/vector",
                                  .dtype = DType::f32,
                                  .shape = {3},
                                  .axes = {""},
                                  .pieces = {}},
                       .parts = {}};
    if (processes.rank() == processes.count() - 1) vector.parts.push_back({whole({3}), vector_});
    state_ = {table, vector};
  }

  std::span<const StateTensor> state() const { return state_; }
  void spoil() {
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(rows_.back().data(), &bad, sizeof(bad));
  }

 private:
  Bytes table_, vector_;
  std::vector<std::span<std::byte>> rows_;
  std::vector<StateTensor> state_;
};

void expect_saved(const Path& path, float first) {
  const CheckpointReader reader(path);
  reader.verify_all();
  Bytes table(96), vector(12);
  reader.read(*reader.find("params/table"), table);
  reader.read(*reader.find("params/vector"), vector);
  EXPECT_EQ(table, ramp(24, first));
  EXPECT_EQ(vector, ramp(3, first + 100));
}

std::vector<std::string> names_in(const Path& directory) {
  return list_directory(directory, ErrorCode::internal);
}

TEST(Saver, EachProcessWritesItsParts) {
  for (const int count : {1, 2, 3}) {
    const TempDir dir;
    comm::run_processes(count, [&](comm::Job& job) {
      Saver saver(job, dir.path(), {});
      const PartOfState part(job, 1);
      saver.save(sample_info(4), part.state());
    });
    expect_saved(dir / "step_00000004", 1);
    const auto files = names_in(dir / "step_00000004");
    EXPECT_EQ(std::ssize(files), count + 1) << "a shard each, and the manifest";
  }
}

TEST(Saver, WritesWhileTheStateChanges) {
  const TempDir dir;
  comm::run_processes(3, [&](comm::Job& job) {
    Saver saver(job, dir.path(), {.newest = 2});
    for (const std::int64_t step : {1, 2, 3}) {
      PartOfState part(job, static_cast<float>(step));
      saver.begin(sample_info(step), part.state());
      part.spoil();  // the copy is made
      EXPECT_EQ(saver.begun(), step);
      saver.complete();
      EXPECT_FALSE(saver.begun());
    }
  });
  EXPECT_THAT(names_in(dir.path()), UnorderedElementsAre("step_00000002", "step_00000003"));
  expect_saved(dir / "step_00000003", 3);
}

TEST(Saver, WhatFailsInOneFailsInAll) {
  const TempDir dir;
  std::atomic<int> refused = 0;
  comm::run_processes(3, [&](comm::Job& job) {
    Saver saver(job, dir.path(), {});
    PartOfState part(job, 1);
    saver.save(sample_info(1), part.state());
    if (job.rank() == 1) part.spoil();
    for (const bool waits : {true, false}) {
      try {
        if (waits) {
          saver.save(sample_info(2), part.state());
        } else {
          saver.begin(sample_info(3), part.state());
          saver.complete();
        }
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::process);
        EXPECT_THAT(e.what(), HasSubstr("rank 1 (thread): the checkpoint of step "));
        EXPECT_THAT(e.what(), HasSubstr("'params/table' has a value that is not finite"));
        ++refused;
      }
    }
  });
  EXPECT_EQ(refused, 6);
  expect_saved(dir / "step_00000001", 1);
  EXPECT_EQ(newest_checkpoint(dir.path()).found->step, 1);
}

TEST(Saver, AStepThatIsThereIsNotOverwritten) {
  const TempDir dir;
  std::atomic<int> refused = 0;
  comm::run_processes(2, [&](comm::Job& job) {
    Saver saver(job, dir.path(), {});
    const PartOfState part(job, 1);
    saver.save(sample_info(1), part.state());
    try {
      saver.save(sample_info(1), part.state());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::checkpoint);
      EXPECT_THAT(e.what(), HasSubstr("exists and is complete"));
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(WrittenPart, TextAndBack) {
  const WrittenPart part{
      .pieces = {{3,
                  {.file = "shard-00001-00000.safetensors",
                   .offset = 64,
                   .bytes = 16,
                   .box = {{2, 0}, {1, 4}},
                   .digest = std::numeric_limits<std::uint64_t>::max()}},
                 {4,
                  {.file = "shard-00001-00001.safetensors", .offset = 8, .bytes = 4, .box = {}}}},
      .files = {{.name = "shard-00001-00000.safetensors",
                 .bytes = 80,
                 .header_bytes = 64,
                 .header_digest = 7}}};
  const WrittenPart back = part_from_text(to_text(part), "here");
  EXPECT_EQ(back.pieces, part.pieces);
  EXPECT_EQ(back.files, part.files);
  EXPECT_THROW(part_from_text("{}", "here"), Error);
  EXPECT_THROW(part_from_text("[", "here"), Error);
}

}  // namespace
}  // namespace dew
