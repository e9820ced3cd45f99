#include "dew/cli/run_directory.h"

#include "dew/base/format.h"

namespace dew::cli {
namespace {

// The directory itself is an argument; what lies in it are files of a run.
Path made(const Path& path) {
  if (file_kind(path, ErrorCode::usage) != FileKind::directory) {
    create_directories(path, ErrorCode::usage);
  }
  return path;
}

}  // namespace

RunDirectory::RunDirectory(const Path& path)
    : path_(made(path)), log_(path_ / "log.txt", ErrorCode::checkpoint) {
  if (log_.take()) return;
  fail(ErrorCode::usage, format("another process is training in '{}'", path_.string()),
       "wait for it, or give another run.dir");
}

}  // namespace dew::cli
