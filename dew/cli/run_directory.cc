#include "dew/cli/run_directory.h"

#include "dew/base/format.h"

namespace dew::cli {
namespace {

std::vector<Path> missing_of(const Path& directory) {
  std::vector<Path> missing;
  for (Path path = directory / "log.txt"; !path.empty(); path = path.parent_path()) {
    std::error_code unknown;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, unknown))) break;
    missing.push_back(path);
  }
  return missing;
}

// The directory itself is an argument; what lies in it are files of a run.
Path made(const Path& path) {
  if (file_kind(path, ErrorCode::usage) != FileKind::directory) {
    create_directories(path, ErrorCode::usage);
  }
  return path;
}

// A pipe would wait for a reader, and what two runs share tells nothing of either.
Path regular(const Path& path) {
  const FileKind kind = file_kind(path, ErrorCode::checkpoint);
  if (kind == FileKind::missing || kind == FileKind::regular) return path;
  fail(ErrorCode::checkpoint, format("'{}' is not a regular file", path.string()), "move it away");
}

// Of two names of one directory, the same one.
Path without_links(const Path& path) {
  std::error_code gone;
  Path plain = std::filesystem::canonical(path, gone);
  return gone ? path : plain;
}

}  // namespace

// With the locks still held. A directory with something in it stays.
RunDirectory::~RunDirectory() {
  if (begun_) return;
  std::error_code ignored;
  for (const Path& path : missing_) std::filesystem::remove(path, ignored);
}

RunDirectory::RunDirectory(const Path& path)
    : missing_(missing_of(path)),
      path_(made(path)),
      lock_(without_links(path_)),
      log_(regular(path_ / "log.txt"), ErrorCode::checkpoint) {
  if (!lock_.taken_by_another() && log_.take()) return;
  fail(ErrorCode::usage, format("another process is training in '{}'", path_.string()),
       "wait for it, or give another run.dir");
}

}  // namespace dew::cli
