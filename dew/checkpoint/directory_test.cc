#include "dew/checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dew/checkpoint/sample_test_support.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void write_small(const Path& directory, std::int64_t step, const std::string& run = "mine",
                 std::optional<double> eval_loss = {}) {
  CheckpointInfo info = sample_info(step);
  info.run = run;
  info.eval_loss = eval_loss;
  CheckpointWriter writer(directory, info);
  writer.declare(tensor("params/a", DType::f32, {4}));
  writer.add("params/a", ramp(4));
  writer.commit();
}

std::vector<std::string> names(const Path& directory) {
  return list_directory(directory, ErrorCode::internal);
}

std::vector<std::int64_t> steps(const std::vector<CheckpointEntry>& entries) {
  std::vector<std::int64_t> found;
  for (const CheckpointEntry& entry : entries) found.push_back(entry.step);
  return found;
}

// Damage that only the digests of the pieces show.
void damage(const Path& checkpoint) {
  const Path shard = checkpoint / CheckpointReader(checkpoint).manifest().shards[0].name;
  std::string text = read_text(shard);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_text(shard, text);
}

TEST(CheckpointDirectory, StepsAreNumbers) {
  const TempDir dir;
  for (const std::int64_t step : {10, 9, 100, 2}) write_small(dir.path(), step);
  rename_file(dir / "step_00000009", dir / "step_9", ErrorCode::internal);
  rename_file(dir / "step_00000010", dir / "step_10", ErrorCode::internal);
  write_small(dir.path(), 123456789012);
  EXPECT_THAT(steps(list_checkpoints(dir.path())), ElementsAre(2, 9, 10, 100, 123456789012));
  EXPECT_EQ(newest_checkpoint(dir.path()).found->step, 123456789012);
}

TEST(CheckpointDirectory, OtherNamesAreNotCheckpoints) {
  const TempDir dir;
  for (const char* name : {"step_", "step_x", "step_-1", "step_+1", "step_1x", "step_3.partial",
                           "step_4.broken", "steps", "best", "step_99999999999999999999"}) {
    create_directory(dir / name, ErrorCode::internal);
  }
  write_text(dir / "step_00000007", "a file");
  EXPECT_THAT(list_checkpoints(dir.path()), IsEmpty());
  EXPECT_FALSE(newest_checkpoint(dir.path()).found);
  EXPECT_THAT(list_checkpoints(dir / "nothing"), IsEmpty());
}

TEST(CheckpointDirectory, TheNewestCompleteOneWins) {
  const TempDir dir;
  for (std::int64_t step = 1; step <= 5; ++step) write_small(dir.path(), step);
  remove_quietly(dir / "step_00000005" / kManifestName);
  rename_file(dir / "step_00000004", dir / "step_00000044", ErrorCode::internal);
  damage(dir / "step_00000003");
  const NewestCheckpoint quick = newest_checkpoint(dir.path());
  EXPECT_EQ(quick.found->step, 3);
  ASSERT_THAT(steps(quick.skipped), ElementsAre(44, 5));
  EXPECT_THAT(quick.skipped[0].problem, HasSubstr("holds step 4"));
  EXPECT_THAT(quick.skipped[1].problem, HasSubstr("has no manifest.json"));
  const NewestCheckpoint sure = newest_checkpoint(dir.path(), Verify::everything);
  EXPECT_EQ(sure.found->step, 2);
  EXPECT_THAT(sure.skipped.back().problem, HasSubstr("tensor 'params/a'"));
}

TEST(CheckpointDirectory, RetentionGoesByStep) {
  const TempDir dir;
  for (const std::int64_t step : {9, 10, 11, 8}) write_small(dir.path(), step);  // 8 is youngest
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 2}, "mine", 11),
              ElementsAre(dir / "step_00000008", dir / "step_00000009"));
  EXPECT_THAT(names(dir.path()), ElementsAre("step_00000010", "step_00000011"));
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 2}, "mine", 11), IsEmpty());
}

TEST(CheckpointDirectory, RetentionOfZeroAndOne) {
  const TempDir dir;
  for (std::int64_t step = 1; step <= 3; ++step) write_small(dir.path(), step);
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 0}, "mine", 4), IsEmpty());
  EXPECT_THAT(apply_retention(dir.path(), {.newest = -1}, "mine", 4), IsEmpty());
  EXPECT_EQ(apply_retention(dir.path(), {.newest = 1}, "mine", 4).size(), 2u);
  EXPECT_THAT(names(dir.path()), ElementsAre("step_00000003"));
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 1}, "mine", 4), IsEmpty());
}

TEST(CheckpointDirectory, RetentionLeavesWhatIsNotIts) {
  const TempDir dir;
  for (std::int64_t step = 1; step <= 4; ++step) write_small(dir.path(), step);
  write_small(dir.path(), 100, "another run");
  create_directory(dir / "step_00000000", ErrorCode::internal);
  write_text(dir / "notes.txt", "mine");
  remove_quietly(dir / "step_00000001" / kManifestName);
  apply_retention(dir.path(), {.newest = 1}, "mine", 100);
  EXPECT_THAT(names(dir.path()), ElementsAre("notes.txt", "step_00000000", "step_00000001",
                                             "step_00000004", "step_00000100"));
}

// The newest are damaged: they do not count, so they push nothing out.
TEST(CheckpointDirectory, RetentionCountsCompleteOnes) {
  const TempDir dir;
  for (std::int64_t step = 1; step <= 4; ++step) write_small(dir.path(), step);
  write_text(dir / "step_00000003" / kManifestName, "{}");
  remove_quietly(dir / "step_00000004" / "shard-00000-00000.safetensors");
  EXPECT_EQ(apply_retention(dir.path(), {.newest = 1}, "mine", 4).size(), 1u);
  EXPECT_EQ(newest_checkpoint(dir.path()).found->step, 2);
}

TEST(CheckpointDirectory, RetentionKeepsTheBestAndMilestones) {
  const TempDir dir;
  const std::optional<double> losses[] = {3.0, 2.0, std::nullopt, 2.0, 2.5, 4.0, std::nullopt};
  for (std::int64_t step = 1; step <= 7; ++step) {
    write_small(dir.path(), step, "mine", losses[step - 1]);
  }
  // 7 and 6 are the newest, 4 and 2 (of equal ones the newer first) the best, 3 and 6 milestones.
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 2, .best = 2, .every = 3}, "mine", 7),
              ElementsAre(dir / "step_00000001", dir / "step_00000005"));
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 1, .best = 1, .every = 0}, "mine", 7),
              ElementsAre(dir / "step_00000002", dir / "step_00000003", dir / "step_00000006"));
  EXPECT_THAT(steps(list_checkpoints(dir.path())), ElementsAre(4, 7));
}

// A run that went back to step 20 because 30 and 40 were damaged must not lose what it writes to
// them, however whole they look.
TEST(CheckpointDirectory, RetentionDoesNotCountLaterOnes) {
  const TempDir dir;
  for (const std::int64_t step : {10, 20, 30, 40}) write_small(dir.path(), step);
  damage(dir / "step_00000030");
  damage(dir / "step_00000040");
  write_small(dir.path(), 25);
  EXPECT_THAT(apply_retention(dir.path(), {.newest = 1}, "mine", 25),
              ElementsAre(dir / "step_00000010", dir / "step_00000020"));
  EXPECT_EQ(newest_checkpoint(dir.path(), Verify::everything).found->step, 25);
}

TEST(CheckpointDirectory, LeftoversAreIgnoredAndCleaned) {
  const TempDir dir;
  write_small(dir.path(), 1);
  for (const char* name :
       {"step_00000002.partial", "step_00000003.partial", "mine.partial", "step_x.partial"}) {
    create_directory(dir / name, ErrorCode::internal);
    write_text(dir / name / kManifestName, "{");
  }
  EXPECT_EQ(newest_checkpoint(dir.path()).found->step, 1);
  EXPECT_THAT(newest_checkpoint(dir.path()).skipped, IsEmpty());
  write_small(dir.path(), 2);
  EXPECT_THAT(names(dir.path()),
              ElementsAre("mine.partial", "step_00000001", "step_00000002", "step_x.partial"));
}

TEST(CheckpointDirectory, AnInterruptedRemovalIsALeftover) {
  const TempDir dir;
  for (std::int64_t step = 1; step <= 3; ++step) write_small(dir.path(), step);
  rename_file(dir / "step_00000001", dir / "step_00000001.partial", ErrorCode::internal);
  EXPECT_THAT(steps(list_checkpoints(dir.path())), ElementsAre(2, 3));
  clean_leftovers(dir.path());
  EXPECT_THAT(names(dir.path()), ElementsAre("step_00000002", "step_00000003"));
}

TEST(CheckpointDirectory, PathsOfUsers) {
  const TempDir dir;
  const Path run = dir / "run";
  write_small(checkpoints_of_run(run), 5);
  write_small(checkpoints_of_run(run), 6);
  const Path newest = checkpoints_of_run(run) / "step_00000006";
  EXPECT_EQ(resolve_checkpoint(run), newest);
  EXPECT_EQ(resolve_checkpoint(newest), newest);
  remove_quietly(newest / kManifestName);
  std::vector<std::string> warnings;
  EXPECT_EQ(resolve_checkpoint(run, [&](const std::string& w) { warnings.push_back(w); }),
            checkpoints_of_run(run) / "step_00000005");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("step 6 is passed over: ")));
  remove_quietly(checkpoints_of_run(run) / "step_00000005");
  EXPECT_THAT(refusal([&] { resolve_checkpoint(run); }), HasSubstr("no complete checkpoint"));
  EXPECT_THAT(refusal([&] { resolve_checkpoint(dir / "typo"); }), HasSubstr("does not exist"));
  EXPECT_THAT(refusal([&] { resolve_checkpoint(dir.path()); }),
              HasSubstr("manifest.json is missing"));
}

}  // namespace
}  // namespace dew
