#include "dew/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;

constexpr ErrorCode kCode = ErrorCode::checkpoint;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsTheFile) {
  const TemporaryDirectory directory;
  write_text(directory / "a", "some text");
  MappedFile file(directory / "a", kCode, Access::sequential);
  EXPECT_EQ(text_of(file), "some text");
  remove_quietly(directory / "a");
  MappedFile moved = std::move(file);
  EXPECT_EQ(text_of(moved), "some text");
  EXPECT_TRUE(file.bytes().empty());  // NOLINT(bugprone-use-after-move): moved-from is empty
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(text_of(assigned), "some text");
}

TEST(MappedFile, EmptyFileIsEmpty) {
  const TemporaryDirectory directory;
  write_text(directory / "a", "");
  EXPECT_TRUE(MappedFile(directory / "a", kCode, Access::random).bytes().empty());
}

TEST(MappedFile, OffsetsAre64Bits) {
  const TemporaryDirectory directory;
  const std::int64_t size = std::int64_t{5} << 30;
  write_text(directory / "a", "");
  ASSERT_EQ(::truncate((directory / "a").c_str(), size + 3), 0);
  EXPECT_EQ(file_size(directory / "a", kCode), size + 3);
  const MappedFile file(directory / "a", kCode, Access::random);
  ASSERT_EQ(file.bytes().size(), static_cast<std::size_t>(size + 3));
  EXPECT_EQ(file.bytes().back(), std::byte{0});
}

TEST(MappedFile, Errors) {
  const TemporaryDirectory directory;
  const auto open = [](const Path& path) {
    return error_of(kCode, [&] { MappedFile(path, kCode, Access::random); });
  };
  EXPECT_EQ(open(directory / "no"),
            "cannot open '" + (directory / "no").string() + "': No such file or directory");
  EXPECT_THAT(open(directory.path()), HasSubstr("': Is a directory"));
  EXPECT_THAT(open("/dev/null"), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);  // is not waited for
  EXPECT_THAT(open(directory / "pipe"), HasSubstr("not a regular file"));
}

TEST(FileWriter, WritesWhatIsReadBack) {
  const TemporaryDirectory directory;
  std::string expected;
  FileWriter writer(directory / "a", kCode);
  for (int i = 0; i < 300; ++i) {
    const std::string piece(static_cast<std::size_t>(i * 37), static_cast<char>('a' + i % 26));
    expected += piece;
    writer.write(piece);
  }
  EXPECT_GT(expected.size(), std::size_t{1} << 20);  // more than the buffer
  EXPECT_EQ(writer.bytes_written(), static_cast<std::int64_t>(expected.size()));
  writer.finish();
  EXPECT_EQ(read_text(directory / "a"), expected);

  FileReader reader(directory / "a", kCode);
  EXPECT_EQ(reader.size(), static_cast<std::int64_t>(expected.size()));
  std::string read(expected.size() + 10, '\0');
  const auto half = std::as_writable_bytes(std::span(read)).first(1000);
  EXPECT_EQ(reader.read(half), 1000u);
  EXPECT_EQ(reader.read(std::as_writable_bytes(std::span(read)).subspan(1000)),
            expected.size() - 1000);
  EXPECT_EQ(reader.read(half), 0u);
  read.resize(expected.size());
  EXPECT_EQ(read, expected);
}

TEST(FileWriter, Errors) {
  const TemporaryDirectory directory;
  EXPECT_THAT(error_of(kCode, [&] { FileWriter(directory / "no/a", kCode); }),
              HasSubstr("cannot create '"));
  EXPECT_EQ(error_of(kCode,
                     [] {
                       FileWriter full("/dev/full", kCode);
                       full.write("text");
                       full.finish();
                     }),
            "cannot write '/dev/full': No space left on device");
}

TEST(FileAppender, AddsToWhatIsThere) {
  const TemporaryDirectory directory;
  FileAppender(directory / "a", kCode).append("one\n");
  FileAppender again(directory / "a", kCode);
  again.append("two\n");
  EXPECT_EQ(read_text(directory / "a"), "one\ntwo\n");
  EXPECT_THAT(error_of(kCode, [&] { FileAppender(directory / "no/a", kCode); }),
              HasSubstr("cannot open '"));
  EXPECT_EQ(error_of(kCode, [] { FileAppender("/dev/full", kCode).append("text"); }),
            "cannot write '/dev/full': No space left on device");
}

// A disk that is full in the middle of a record: limits of file sizes behave the same.
TEST(FileAppender, NothingOfARecordThatFailsStays) {
  const TemporaryDirectory directory;
  FileAppender file(directory / "a", kCode);
  file.append("one\n");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of(kCode, [&] { file.append("a longer record\n"); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(read_text(directory / "a"), "one\n");
  file.append("two\n");
  EXPECT_EQ(read_text(directory / "a"), "one\ntwo\n");
}

TEST(FileAppender, IsTakenByOne) {
  const TemporaryDirectory directory;
  FileAppender other(directory / "a", kCode);
  {
    FileAppender one(directory / "a", kCode);
    EXPECT_TRUE(one.take());
    EXPECT_FALSE(other.take());
  }
  EXPECT_TRUE(other.take());
}

TEST(ReadFile, ReadsFilesAndPipesUpToALimit) {
  const TemporaryDirectory directory;
  const std::string text(100'000, 'x');
  write_text(directory / "a", text);
  EXPECT_EQ(read_file(directory / "a", kCode, 100'000), text);
  EXPECT_THAT(error_of(kCode, [&] { read_file(directory / "a", kCode, 99'999); }),
              HasSubstr("larger than the 99999 bytes"));
  EXPECT_THAT(error_of(kCode, [] { read_file("/dev/zero", kCode, 1000); }), HasSubstr("larger"));
  EXPECT_EQ(read_file("/dev/null", kCode, 1000), "");

  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  std::thread writer([&] { write_text(directory / "pipe", text); });
  EXPECT_EQ(read_file(directory / "pipe", kCode, 1'000'000), text);
  writer.join();
}

TEST(WriteFileAtomic, WhatLiesUnderTheNameBesideIsNotWrittenThrough) {
  const TemporaryDirectory directory;
  write_text(directory / "other", "of somebody else");
  std::filesystem::create_symlink(directory / "other", directory / "a.partial");
  write_file_atomic(directory / "a", "text", kCode);
  EXPECT_EQ(read_text(directory / "a"), "text");
  EXPECT_EQ(read_text(directory / "other"), "of somebody else");
  ASSERT_EQ(::mkfifo((directory / "a.partial").c_str(), 0600), 0);  // nobody reads it
  write_file_atomic(directory / "a", "more", kCode);
  EXPECT_EQ(read_text(directory / "a"), "more");
}

TEST(ReadFile, OrRegularFilesAlone) {
  const TemporaryDirectory directory;
  const auto read = [](const Path& path) {
    return error_of(kCode, [&] { read_file(path, kCode, 1'000'000, Source::regular); });
  };
  write_text(directory / "a", "text");
  EXPECT_EQ(read_file(directory / "a", kCode, 10, Source::regular), "text");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(read(directory / "pipe"), HasSubstr("pipe': not a regular file"));
  EXPECT_THAT(read("/dev/zero"), HasSubstr("not a regular file"));
  EXPECT_THAT(read(directory.path()), HasSubstr("Is a directory"));
}

TEST(Directories, AreListedMadeAndRenamed) {
  const TemporaryDirectory directory;
  create_directories(directory / "a/b/c", kCode);
  create_directories(directory / "a/b/c", kCode);
  EXPECT_EQ(file_kind(directory / "a/b/c", kCode), FileKind::directory);
  EXPECT_FALSE(create_directory(directory / "a", kCode));
  write_text(directory / "a/z", "1");
  write_text(directory / "a/B", "2");
  EXPECT_EQ(list_directory(directory / "a", kCode), (std::vector<std::string>{"B", "b", "z"}));
  EXPECT_EQ(file_kind(directory / "a/z", kCode), FileKind::regular);
  EXPECT_EQ(file_kind(directory / "a/z/y", kCode), FileKind::missing);
  EXPECT_EQ(file_kind("/dev/null", kCode), FileKind::other);

  EXPECT_THAT(error_of(kCode, [&] { create_directories(directory / "a/z/y", kCode); }),
              HasSubstr("a/z': there is a file of that name"));
  EXPECT_THAT(error_of(kCode, [&] { list_directory(directory / "no", kCode); }),
              HasSubstr("cannot list"));
  create_directory(directory / "full", kCode);
  write_text(directory / "full/x", "");
  EXPECT_THAT(error_of(kCode, [&] { rename_file(directory / "a", directory / "full", kCode); }),
              HasSubstr("Directory not empty"));
  rename_file(directory / "a", directory / "new", kCode);
  sync_directory(directory.path(), kCode);
  EXPECT_EQ(file_kind(directory / "a", kCode), FileKind::missing);
}

// The call number `fail_at` of an atomic write fails with ENOSPC.
int calls = 0, fail_at = 0;
int fail_one(FileCall, const Path&) { return ++calls == fail_at ? ENOSPC : 0; }

TEST(WriteFileAtomic, HoldsOldOrNewWhateverFails) {
  const TemporaryDirectory directory;
  const Path path = directory / "a";
  write_file_atomic(path, "old", kCode);
  int failures = 0;
  for (fail_at = 1;; ++fail_at) {
    calls = 0;
    set_file_fault(&fail_one);
    const std::string message = error_of(kCode, [&] { write_file_atomic(path, "new", kCode); });
    set_file_fault(nullptr);
    if (message == "no error") break;
    ++failures;
    EXPECT_THAT(message, HasSubstr("No space left on device"));
    // After the rename only the syncing of the directory can fail, and the file is new and whole.
    EXPECT_EQ(read_text(path), fail_at == 5 ? "new" : "old") << fail_at;
    EXPECT_EQ(list_directory(directory.path(), kCode), std::vector<std::string>{"a"});
    write_file_atomic(path, "old", kCode);
  }
  EXPECT_EQ(failures, 5);  // create, write, sync, rename, sync directory
  EXPECT_EQ(read_text(path), "new");
}

TEST(ReplaceFile, KeepsTheOldOneUntilTheNewOneIsWhole) {
  const TemporaryDirectory directory;
  const Path path = directory / "x";
  write_text(path, "before");
  error_of(ErrorCode::usage, [&] {
    replace_file(path, ErrorCode::usage, [](const Path& partial) {
      write_text(partial, "half");
      fail(ErrorCode::usage, "no more");
    });
  });
  EXPECT_EQ(read_text(path), "before");
  replace_file(path, ErrorCode::usage, [](const Path& partial) { write_text(partial, "after"); });
  EXPECT_EQ(read_text(path), "after");
  EXPECT_EQ(list_directory(directory.path(), ErrorCode::internal), std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace dew
