#include "dew/cli/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"

namespace dew::cli {
namespace {

[[noreturn]] void fail_errno(const char* what, const Path& path) {
  fail(ErrorCode::usage,
       format("cannot {} '{}': {}", what, path.string(), std::generic_category().message(errno)));
}

std::FILE* open_log(const Path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fail_errno("open", path);
  return ::fdopen(fd, "a");
}

}  // namespace

RunDirectory::RunDirectory(Path path) : path_(std::move(path)), log_(nullptr) {
  if (file_kind(path_, ErrorCode::usage) != FileKind::directory) {
    create_directories(path_, ErrorCode::usage);
  }
  log_ = open_log(path_ / "log.txt");
  if (::flock(::fileno(log_), LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  std::fclose(log_);
  errno = reason;
  if (reason != EWOULDBLOCK) fail_errno("lock", path_ / "log.txt");
  fail(ErrorCode::usage, format("another process is training in '{}'", path_.string()),
       "wait for it, or give another run.dir");
}

RunDirectory::~RunDirectory() { std::fclose(log_); }

Path RunDirectory::checkpoints() const { return checkpoints_of_run(path_); }

}  // namespace dew::cli
