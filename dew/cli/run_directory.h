// The directory of a run, while one process works in it.
#pragma once

#include "dew/base/file.h"

namespace dew::cli {

class RunDirectory {
 public:
  // Makes it where missing (errors are ErrorCode::usage) and opens log.txt to append to. Both carry
  // a lock, since not every file system locks directories, and log.txt may be moved away: a second
  // process is refused (ErrorCode::usage), and when this one ends, however it does, they are gone.
  explicit RunDirectory(const Path& path);

  const Path& path() const { return path_; }
  FileAppender& log() { return log_; }

 private:
  Path path_;
  DirectoryLock lock_;
  FileAppender log_;
};

}  // namespace dew::cli
