#include "dew/base/partial_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dew/base/error.h"
#include "dew/base/file_test_support.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::data;

std::vector<std::string> names(const TemporaryDirectory& directory) {
  return list_directory(directory.path(), ErrorCode::internal);
}

// A process that makes one, writes a file, and waits.
pid_t start_writer(const Path& out, int ready) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const PartialDirectory directory(out, kCode, kCode);
  write_text(directory.path() / "ids", "some");
  if (::write(ready, "x", 1) != 1) ::_exit(1);
  for (;;) ::pause();
}

class PartialDirectories : public testing::Test {
 protected:
  PartialDirectories() { EXPECT_EQ(::pipe(ends_), 0); }
  ~PartialDirectories() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  // Started, and at its work.
  pid_t writer() {
    const pid_t child = start_writer(tmp_ / "out", ends_[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
    return child;
  }
  static void kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  TemporaryDirectory tmp_;
  int ends_[2] = {-1, -1};
};

TEST_F(PartialDirectories, CommittedOrGone) {
  {
    PartialDirectory directory(tmp_ / "a/b/", kCode, kCode);
    write_text(directory.path() / "x", "x");
  }
  EXPECT_TRUE(list_directory(tmp_ / "a", ErrorCode::internal).empty());
  PartialDirectory directory(tmp_ / "a/b/", kCode, kCode);
  write_text(directory.path() / "x", "x");
  directory.commit();
  EXPECT_EQ(list_directory(tmp_ / "a", ErrorCode::internal), (std::vector<std::string>{"b"}));
  EXPECT_EQ(read_text(tmp_ / "a/b/x"), "x");
}

TEST_F(PartialDirectories, WhatAKilledProcessLeftIsRemoved) {
  kill(writer());
  EXPECT_EQ(names(tmp_).size(), 1u);
  PartialDirectory(tmp_ / "out", kCode, kCode).commit();
  EXPECT_EQ(names(tmp_), (std::vector<std::string>{"out"}));
}

// Not even of its own number, which a container gives to its first process each time.
TEST_F(PartialDirectories, ALeftoverOfTheSameNumberIsNotInTheWay) {
  const std::string own = "out.partial-" + std::to_string(::getpid());
  create_directories(tmp_ / own / "inside", ErrorCode::internal);
  PartialDirectory(tmp_ / "out", kCode, kCode).commit();
  EXPECT_EQ(names(tmp_), (std::vector<std::string>{"out"}));
  EXPECT_TRUE(list_directory(tmp_ / "out", ErrorCode::internal).empty());
}

TEST_F(PartialDirectories, WhatALivingProcessWritesStays) {
  const pid_t child = writer();
  const std::string theirs = "out.partial-" + std::to_string(child);
  { const PartialDirectory directory(tmp_ / "out", kCode, kCode); }
  EXPECT_EQ(names(tmp_), (std::vector<std::string>{theirs}));
  EXPECT_EQ(read_text(tmp_ / theirs / "ids"), "some");
  kill(child);
}

TEST_F(PartialDirectories, WhatHasAnotherNameStays) {
  const std::vector<std::string> others = {"out.partial-", "out.partial-1x", "out.partial-7.txt",
                                           "out2.partial-7", "x.out.partial-7"};
  for (const std::string& name : others) create_directories(tmp_ / name, ErrorCode::internal);
  write_text(tmp_ / "out.partial-7", "a file");
  std::filesystem::create_directory_symlink(tmp_ / "out2.partial-7", tmp_ / "out.partial-8");
  const auto before = names(tmp_);
  { const PartialDirectory directory(tmp_ / "out", kCode, kCode); }
  EXPECT_EQ(names(tmp_), before);
}

}  // namespace
}  // namespace dew
