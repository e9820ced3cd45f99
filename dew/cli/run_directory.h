// The directory of a run, while one process works in it.
#pragma once

#include <vector>

#include "dew/base/file.h"

namespace dew::cli {

class RunDirectory {
 public:
  // Makes it where missing (errors are ErrorCode::usage) and opens log.txt to append to. Both carry
  // a lock, since not every file system locks directories, and log.txt may be moved away: a second
  // process is refused (ErrorCode::usage), and when this one ends, however it does, they are gone.
  explicit RunDirectory(const Path& path);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  // Where no run began, removes what was made here: somebody was told of an error, and there is
  // nothing to go on from.
  ~RunDirectory();

  const Path& path() const { return path_; }
  FileAppender& log() { return log_; }
  // From here on the directory is the run's.
  void begin() { begun_ = true; }

 private:
  std::vector<Path> missing_;  // log.txt and directories that were not there, innermost first
  Path path_;
  DirectoryLock lock_;
  FileAppender log_;
  bool begun_ = false;
};

}  // namespace dew::cli
