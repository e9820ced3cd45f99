#include "dew/train/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "dew/checkpoint/sample_test_support.h"
#include "dew/runtime/comm/threads_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

struct Found {
  std::string path;  // empty: none
  std::int64_t checked = 0;
  std::vector<std::string> warnings;
};

std::vector<Found> find_in(int processes, const Path& directory, Resume resume) {
  std::vector<Found> found(static_cast<std::size_t>(processes));
  comm::run_processes(processes, [&](comm::Job& job) {
    Found& mine = found[static_cast<std::size_t>(job.rank())];
    const auto reader = find_checkpoint(
        job, directory, resume, [&](const std::string& line) { mine.warnings.push_back(line); });
    if (reader == nullptr) return;
    mine.path = reader->path().filename().string();
    mine.checked = reader->traffic().checked;
  });
  return found;
}

void damage(const Path& checkpoint, const char* tensor) {
  const CheckpointReader reader(checkpoint);
  const StoredPiece piece = reader.find(tensor)->pieces[0];
  std::string text = read_text(checkpoint / piece.file);
  text[static_cast<std::size_t>(piece.offset)] ^= 1;
  write_text(checkpoint / piece.file, text);
}

TEST(FindCheckpoint, EachProcessReadsItsShare) {
  const TemporaryDirectory directory;
  Sample().write(directory.path(), 3, {.shard_bytes = 128});
  const Path newest = Sample().write(directory.path(), 12, {.shard_bytes = 128});
  const std::int64_t whole = find_in(1, directory.path(), Resume::automatic)[0].checked;
  for (const int processes : {2, 3, 8}) {
    std::int64_t checked = 0;
    for (const Found& found : find_in(processes, directory.path(), Resume::automatic)) {
      EXPECT_EQ(found.path, newest.filename().string());
      EXPECT_LT(found.checked, whole);
      checked += found.checked;
    }
    EXPECT_EQ(checked, whole);
  }
}

// Whoever finds the damage, all pass the checkpoint over, and the first process says so once.
TEST(FindCheckpoint, WhatOneFindsWrongCountsForAll) {
  for (const char* tensor : {"params/a", "opt/m/a", "vars/half", "vars/count"}) {
    const TemporaryDirectory directory;
    const Path older = Sample().write(directory.path(), 3);
    damage(Sample().write(directory.path(), 12), tensor);
    for (const int processes : {1, 2, 5}) {
      const auto all = find_in(processes, directory.path(), Resume::automatic);
      for (const Found& found : all) {
        EXPECT_EQ(found.path, older.filename().string());
        EXPECT_EQ(found.warnings.size(), &found == &all[0] ? 1u : 0u);
      }
      EXPECT_THAT(all[0].warnings[0], HasSubstr(std::string("tensor '") + tensor));
    }
    for (const int processes : {1, 3}) {
      EXPECT_THAT(error_of(ErrorCode::checkpoint,
                           [&] { find_in(processes, directory.path(), Resume::must); }),
                  HasSubstr("the newest checkpoint is damaged"));
    }
  }
}

TEST(FindCheckpoint, NoneAtAll) {
  const TemporaryDirectory directory;
  for (const int processes : {1, 4}) {
    EXPECT_EQ(find_in(processes, directory / "nothing", Resume::automatic)[0].path, "");
    EXPECT_THAT(error_of(ErrorCode::checkpoint,
                         [&] { find_in(processes, directory / "nothing", Resume::must); }),
                HasSubstr("no complete checkpoint in"));
  }
}

}  // namespace
}  // namespace dew
