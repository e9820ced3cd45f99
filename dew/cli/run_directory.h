// The directory of a run, while one process works in it.
#pragma once

#include <cstdio>
#include <string>

#include "dew/base/file.h"

namespace dew::cli {

class RunDirectory {
 public:
  // Makes it where missing and opens log.txt to append to. That open file carries a lock: a second
  // process is refused (ErrorCode::usage), and when this one ends, however it does, the lock is
  // gone.
  explicit RunDirectory(Path path);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  ~RunDirectory();

  const Path& path() const { return path_; }
  Path checkpoints() const;
  std::FILE* log() const { return log_; }

 private:
  Path path_;
  std::FILE* log_;
};

}  // namespace dew::cli
