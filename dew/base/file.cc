#include "dew/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::size_t kWriteBuffer = std::size_t{1} << 20;
// Linux moves at most this much in one call; asking for less keeps every count inside ssize_t
// everywhere.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

std::atomic<FileFault> fault_hook = nullptr;

[[noreturn]] void fail_errno(ErrorCode code, std::string_view what, const Path& path, int error) {
  fail(code,
       format("cannot {} '{}': {}", what, path.string(), std::generic_category().message(error)));
}

// The only ways this file changes the world: each asks the fault hook first. They return -1 with
// errno set, as the system's own calls do.
bool faulted(FileCall call, const Path& path) {
  const FileFault hook = fault_hook.load();
  const int error = hook == nullptr ? 0 : hook(call, path);
  if (error != 0) errno = error;
  return error != 0;
}

int sys_create(const Path& path, int how) {
  if (faulted(FileCall::create, path)) return -1;
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

ssize_t sys_write(int fd, std::span<const std::byte> bytes, const Path& path) {
  if (faulted(FileCall::write, path)) return -1;
  ssize_t n = -1;
  do {
    n = ::write(fd, bytes.data(), std::min(bytes.size(), kMaxTransfer));
  } while (n < 0 && errno == EINTR);
  return n;
}

// All of it, or the errno that stopped it.
int write_all(int fd, std::span<const std::byte> bytes, const Path& path) {
  while (!bytes.empty()) {
    const ssize_t n = sys_write(fd, bytes, path);
    if (n < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

int sys_sync(int fd, const Path& path) {
  if (faulted(FileCall::sync, path)) return -1;
  int result = -1;
  do {
    result = ::fsync(fd);
  } while (result < 0 && errno == EINTR);
  // Devices and some network file systems have nothing to sync and say so.
  return result < 0 && (errno == EINVAL || errno == ENOTSUP) ? 0 : result;
}

int sys_rename(const Path& from, const Path& to) {
  return faulted(FileCall::rename, to) ? -1 : ::rename(from.c_str(), to.c_str());
}

int sys_make_directory(const Path& path) {
  return faulted(FileCall::make_directory, path) ? -1 : ::mkdir(path.c_str(), 0777);
}

// Only to open a pipe that nobody writes to O_NONBLOCK makes a difference.
int open_to_read(const Path& path, ErrorCode code, Source source = Source::anything) {
  const int how = source == Source::regular ? O_NONBLOCK : 0;
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | how);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_errno(code, "open", path, errno);
  return fd;
}

// A file descriptor that closes itself, for the functions that may throw while holding one.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct stat status_of(int fd, const Path& path, ErrorCode code, Source source) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(code, "examine", path, errno);
  if (S_ISDIR(status.st_mode)) fail_errno(code, "read", path, EISDIR);
  if (source == Source::regular && !S_ISREG(status.st_mode))
    fail(code, format("cannot read '{}': not a regular file", path.string()));
  return status;
}

Path parent_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : Path("."); }

}  // namespace

MappedFile::MappedFile(const Path& path, ErrorCode code, Access access) {
  const Descriptor file(open_to_read(path, code, Source::regular));
  const struct stat status = status_of(file.get(), path, code, Source::regular);
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_errno(code, "map", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
  advise(access);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::advise(Access access) const noexcept {
  if (bytes_.empty()) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(),
            access == Access::sequential ? MADV_SEQUENTIAL : MADV_RANDOM);
}

FileReader::FileReader(Path path, ErrorCode code, Source source)
    : path_(std::move(path)), code_(code), fd_(open_to_read(path_, code, source)) {
  try {
    const struct stat status = status_of(fd_, path_, code, source);
    if (S_ISREG(status.st_mode)) size_ = status.st_size;
  } catch (...) {
    ::close(fd_);
    throw;
  }
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

FileReader::~FileReader() { ::close(fd_); }

std::size_t FileReader::read(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::read(fd_, out.data() + done, std::min(out.size() - done, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(code_, "read", path_, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

FileWriter::FileWriter(Path path, ErrorCode code)
    : path_(std::move(path)), code_(code), fd_(sys_create(path_, O_TRUNC)) {
  if (fd_ < 0) fail_errno(code_, "create", path_, errno);
  buffer_.reserve(kWriteBuffer);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  DEW_CHECK(fd_ >= 0, path_.string());
  bytes_written_ += static_cast<std::int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() >= kWriteBuffer) {
    flush();
    // What would fill the buffer alone is not copied into it.
    const std::size_t direct = bytes.size() / kWriteBuffer * kWriteBuffer;
    write_through(bytes.first(direct));
    bytes = bytes.subspan(direct);
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void FileWriter::write_through(std::span<const std::byte> bytes) {
  const int error = write_all(fd_, bytes, path_);
  if (error != 0) fail_errno(code_, "write", path_, error);
}

void FileWriter::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void FileWriter::finish() {
  DEW_CHECK(fd_ >= 0, path_.string());
  flush();
  if (sys_sync(fd_, path_) != 0) fail_errno(code_, "sync", path_, errno);
  close();
}

void FileWriter::close() {
  DEW_CHECK(fd_ >= 0, path_.string());
  flush();
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno(code_, "close", path_, errno);
}

FileAppender::FileAppender(Path path, ErrorCode code)
    : path_(std::move(path)), code_(code), fd_(sys_create(path_, O_APPEND)) {
  if (fd_ < 0) fail_errno(code_, "open", path_, errno);
}

FileAppender::~FileAppender() { ::close(fd_); }

void FileAppender::append(std::string_view record) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const int error = write_all(fd_, std::as_bytes(std::span(record)), path_);
  if (error == 0) return;
  // A pipe or a device (EINVAL) has no place to go back to, and nobody who reads it again.
  if (before >= 0 && ::ftruncate(fd_, before) != 0 && errno != EINVAL) {
    fail(code_, format("cannot write '{}': {}; a part of a record may be left at its end",
                       path_.string(), std::generic_category().message(error)));
  }
  fail_errno(code_, "write", path_, error);
}

void FileAppender::sync() {
  if (sys_sync(fd_, path_) != 0) fail_errno(code_, "sync", path_, errno);
}

bool FileAppender::take() {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) fail_errno(code_, "lock", path_, errno);
  return false;
}

DirectoryLock::DirectoryLock(const Path& path) noexcept
    : fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
  if (fd_ < 0) return;
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) state_ = State::another;
    return;
  }
  // Whoever had it may have removed or renamed it meanwhile.
  struct stat held {
  }, named{};
  const bool same = ::fstat(fd_, &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                    held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  state_ = same ? State::taken : State::another;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

void replace_file(const Path& path, ErrorCode code,
                  const std::function<void(const Path& partial)>& write) {
  Path partial = path;
  partial += ".partial";
  // What lies there from before may be a link or a pipe: never written through.
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  try {
    write(partial);
    rename_file(partial, path, code);
  } catch (...) {
    remove_quietly(partial);
    throw;
  }
  sync_directory(parent_of(path), code);
}

void write_file_atomic(const Path& path, std::span<const std::byte> bytes, ErrorCode code) {
  replace_file(path, code, [&](const Path& partial) {
    FileWriter writer(partial, code);
    writer.write(bytes);
    writer.finish();
  });
}

void write_file_atomic(const Path& path, std::string_view text, ErrorCode code) {
  write_file_atomic(path, std::as_bytes(std::span(text)), code);
}

std::string read_file(const Path& path, ErrorCode code, std::int64_t max_bytes, Source source) {
  FileReader reader(path, code, source);
  // One byte more than allowed tells "too large" from "just fits"; the size is a hint only, as
  // pipes have none.
  const auto limit = static_cast<std::size_t>(max_bytes) + 1;
  std::string text;
  std::size_t end = 0;
  std::size_t step = static_cast<std::size_t>(reader.size().value_or(0)) + 1;
  while (end == text.size() && end < limit) {
    text.resize(std::min(end + std::max<std::size_t>(step, 4096), limit));
    end += reader.read(std::as_writable_bytes(std::span(text)).subspan(end));
    step = end;
  }
  text.resize(end);
  if (static_cast<std::int64_t>(text.size()) > max_bytes) {
    fail(code,
         format("'{}' is larger than the {} bytes that can be right", path.string(), max_bytes));
  }
  return text;
}

FileKind file_kind(const Path& path, ErrorCode code) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return FileKind::missing;
    fail_errno(code, "examine", path, errno);
  }
  if (S_ISREG(status.st_mode)) return FileKind::regular;
  return S_ISDIR(status.st_mode) ? FileKind::directory : FileKind::other;
}

std::int64_t file_size(const Path& path, ErrorCode code) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_errno(code, "examine", path, errno);
  return status.st_size;
}

std::vector<std::string> list_directory(const Path& path, ErrorCode code) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (directory == nullptr) fail_errno(code, "list", path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) fail_errno(code, "list", path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

bool create_directory(const Path& path, ErrorCode code) {
  if (sys_make_directory(path) == 0) return true;
  if (errno != EEXIST) fail_errno(code, "create directory", path, errno);
  return false;
}

void create_directories(const Path& path, ErrorCode code) {
  Path prefix;
  for (const Path& part : path) {
    prefix /= part;
    if (file_kind(prefix, code) == FileKind::directory) continue;
    if (create_directory(prefix, code)) {
      sync_directory(parent_of(prefix), code);
    } else if (file_kind(prefix, code) != FileKind::directory) {
      fail(code,
           format("cannot create directory '{}': there is a file of that name", prefix.string()));
    }
  }
}

void rename_file(const Path& from, const Path& to, ErrorCode code) {
  if (sys_rename(from, to) == 0) return;
  const std::string reason = std::generic_category().message(errno);
  fail(code, format("cannot rename '{}' to '{}': {}", from.string(), to.string(), reason));
}

void sync_directory(const Path& path, ErrorCode code) {
  const Descriptor directory(open_to_read(path.empty() ? Path(".") : path, code));
  if (sys_sync(directory.get(), path) != 0) fail_errno(code, "sync directory", path, errno);
}

void remove_quietly(const Path& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

void set_file_fault(FileFault fault) { fault_hook = fault; }

}  // namespace dew
