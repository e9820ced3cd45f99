// Real disks that are full or may not be written.
#include <sys/mount.h>
#include <unistd.h>

#include "tests/processes/runs.h"

namespace dew {
namespace {

// A disk of its own size, where this user may mount one.
class Disk {
 public:
  explicit Disk(const Path& path) : path_(path) {
    create_directories(path, ErrorCode::internal);
    mounted_ = mount_it(0, "size=5m");
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() {
    if (mounted_) ::umount(path_.c_str());
  }

  bool mounted() const { return mounted_; }
  void grow() { EXPECT_TRUE(mount_it(MS_REMOUNT, "size=100m")); }
  void forbid_writing() { EXPECT_TRUE(mount_it(MS_REMOUNT | MS_RDONLY, "size=100m")); }

 private:
  bool mount_it(unsigned long flags, const char* options) {
    return ::mount("tmpfs", path_.c_str(), "tmpfs", flags, options) == 0;
  }

  Path path_;
  bool mounted_ = false;
};

TEST(Disk, FullAndThenReadOnly) {
  const TemporaryDirectory directory;
  Disk disk(directory / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount a file system";
  const Path run = directory / "disk/run";
  const Words words = disturbed_run(run, 20, {"run.keep=0", "run.checkpoint_every=1"});
  const Outcome full = dew(words);
  EXPECT_EQ(full.status, 5) << full.err;
  EXPECT_NE(full.err.find("dew: error: the checkpoint of step "), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  expect_only_whole_checkpoints(run);
  EXPECT_GE(newest_checkpoint(checkpoints_of_run(run)).found->step, 1);

  disk.grow();
  expect_done(dew(words));
  expect_done(dew(disturbed_run(directory / "whole", 20)));
  EXPECT_EQ(digests_of(run), digests_of(directory / "whole"));

  disk.forbid_writing();
  const auto before = snapshot(run);
  expect_error(dew(disturbed_run(run, 30)), 5, "Read-only file system");
  EXPECT_EQ(snapshot(run), before);
}

// What is dumped are files of the run, wherever they lie.
TEST(Disk, FullWhileProgramsAreDumped) {
  const TemporaryDirectory directory;
  Disk disk(directory / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount a file system";
  write_text(directory / "disk/ballast", std::string(std::size_t{5} << 20, 'x'));
  Words words = disturbed_run(directory / "run", 2);
  words.insert(words.end(), {"--dump", (directory / "disk/dump").string()});
  const Outcome outcome = dew(words);
  EXPECT_EQ(outcome.status, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
}

// Whoever looks after a machine takes the right to write away in the middle of a run.
TEST(Disk, ADirectoryThatMayNotBeWrittenAnyMore) {
  using std::filesystem::perms;
  if (::getuid() != 0) GTEST_SKIP() << "only root can run as somebody else";
  const TemporaryDirectory directory;
  const Path run = directory / "run";
  std::filesystem::permissions(directory.path(), perms::all);
  Running running(disturbed_run(run, 1000000, {"run.keep=0"}), {.as_nobody = true});
  if (!running.wait_for("step 6:")) {
    EXPECT_EQ(running.finish().status, 127);
    GTEST_SKIP() << "nobody may not run the program";
  }
  std::filesystem::permissions(checkpoints_of_run(run), perms{0555});
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.status, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("dew: error: the checkpoint of step "), std::string::npos);
  EXPECT_NE(outcome.err.find("Permission denied"), std::string::npos) << outcome.err;
  expect_only_whole_checkpoints(run);
  EXPECT_GE(newest_checkpoint(checkpoints_of_run(run)).found->step, 3);
}

}  // namespace
}  // namespace dew
