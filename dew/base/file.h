// Files: read-only maps, sequential reading and writing, appending, atomic replacement. Every
// failing call is an Error under the code that the caller names, with what was tried, the path and
// the system's reason. All offsets are 64 bits wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/error.h"

namespace dew {

using Path = std::filesystem::path;

enum class Access { sequential, random };

// A read-only map of a whole regular file. Pages are read when they are touched, so opening costs
// the same for any size. A file of 0 bytes is an empty span and is not mapped. The map outlives a
// deleted or replaced file; if somebody *truncates* the file in place, touching what is gone ends
// the process (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const Path& path, ErrorCode code, Access access);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  void advise(Access access) const noexcept;

 private:
  std::span<const std::byte> bytes_;
};

// What may be read: whatever somebody names, or a regular file alone. Of a directory's own files
// anything else is damage: a pipe must not be waited for, a device has no end.
enum class Source { anything, regular };

// Reads a file, pipe or device from front to back.
class FileReader {
 public:
  FileReader(Path path, ErrorCode code, Source source = Source::anything);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  // Fills `out`; returns less than its size only at the end of the file.
  std::size_t read(std::span<std::byte> out);
  // None for what has no size of its own (pipes, devices).
  std::optional<std::int64_t> size() const noexcept { return size_; }

 private:
  Path path_;
  ErrorCode code_;
  int fd_;
  std::optional<std::int64_t> size_;
};

// Writes a new file (or over an old one) from front to back through a buffer. Without finish() the
// file is left as it is, incomplete: write beside the final name and rename.
class FileWriter {
 public:
  FileWriter(Path path, ErrorCode code);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  std::int64_t bytes_written() const noexcept { return bytes_written_; }
  // Flushes, syncs to the device and closes; nothing may be written afterwards.
  void finish();
  // The same without syncing, for files that need not survive a crash.
  void close();

 private:
  void write_through(std::span<const std::byte> bytes);
  void flush();

  Path path_;
  ErrorCode code_;
  int fd_;
  std::int64_t bytes_written_ = 0;
  std::vector<std::byte> buffer_;
};

// Appends records to a file, made where missing, which nobody else changes meanwhile. Each record
// is in the file when the call returns; of one that fails, nothing stays.
class FileAppender {
 public:
  FileAppender(Path path, ErrorCode code);
  FileAppender(const FileAppender&) = delete;
  FileAppender& operator=(const FileAppender&) = delete;
  ~FileAppender();

  void append(std::string_view record);
  // What was appended outlives a loss of power when this returns.
  void sync();
  // Takes the file for this process: false if another one has taken it. It is free again when this
  // object or its process ends, however it ends.
  bool take();

 private:
  Path path_;
  ErrorCode code_;
  int fd_;
};

// A directory taken for this process. It is free again when this object or its process ends,
// however it ends.
class DirectoryLock {
 public:
  explicit DirectoryLock(const Path& path) noexcept;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  // Neither: it is no directory, not there any more, or on a file system without locks.
  bool taken() const noexcept { return state_ == State::taken; }
  bool taken_by_another() const noexcept { return state_ == State::another; }

 private:
  enum class State { none, taken, another };

  int fd_;
  State state_ = State::none;
};

// `path` holds all of `bytes` or what it held before, whatever happens: written to `path`.partial,
// synced, renamed, directory synced. One writer of a path at a time.
void write_file_atomic(const Path& path, std::span<const std::byte> bytes, ErrorCode code);
void write_file_atomic(const Path& path, std::string_view text, ErrorCode code);

// The same with a file that `write` makes, synced, under the name that it is given.
void replace_file(const Path& path, ErrorCode code,
                  const std::function<void(const Path& partial)>& write);

// The whole of a file or pipe; more than `max_bytes` is an error.
std::string read_file(const Path& path, ErrorCode code, std::int64_t max_bytes,
                      Source source = Source::anything);

// Follows symbolic links.
enum class FileKind { missing, regular, directory, other };
FileKind file_kind(const Path& path, ErrorCode code);
std::int64_t file_size(const Path& path, ErrorCode code);

// Names in the directory, without . and .., sorted bytewise.
std::vector<std::string> list_directory(const Path& path, ErrorCode code);

// False if something of that name exists already. The parent must exist.
bool create_directory(const Path& path, ErrorCode code);
// The directory and its parents, where missing; lasting when this returns.
void create_directories(const Path& path, ErrorCode code);

// Replaces `to`, which must be on the same file system; a directory replaces only an empty one.
// Atomic, and lasting only after sync_directory of the parent.
void rename_file(const Path& from, const Path& to, ErrorCode code);
void sync_directory(const Path& path, ErrorCode code);

// Removes a file or a tree if it is there; for cleaning up after errors, so it reports none.
void remove_quietly(const Path& path) noexcept;

// For tests: `fault` sees every call of these kinds before it is made and returns 0, or an errno
// with which the call fails without being made. nullptr ends it. Called from any thread.
enum class FileCall { create, write, sync, rename, make_directory };
using FileFault = int (*)(FileCall call, const Path& path);
void set_file_fault(FileFault fault);

}  // namespace dew
