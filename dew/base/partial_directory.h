// A directory that is complete or absent.
#pragma once

#include <optional>
#include <string_view>

#include "dew/base/file.h"

namespace dew {

// A new directory beside `out`, "OUT.partial-PID", gone again unless commit() is reached, which
// gives it that name. What processes that were killed have left there for the same `out` is
// removed first; what a living one still writes is not (each holds a lock on its own).
// Throws ErrorCode::usage if `out` exists and is not an empty directory, `made` if it cannot be
// made, `written` if what it has come to cannot get its name.
class PartialDirectory {
 public:
  PartialDirectory(const Path& out, ErrorCode made, ErrorCode written);
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory();

  const Path& path() const { return path_; }
  void commit();

 private:
  void require_free() const;
  void remove_leftovers() const;
  bool is_partial(std::string_view name) const;
  void make();

  Path out_, path_;
  ErrorCode made_, written_;
  std::optional<DirectoryLock> lock_;
  bool committed_ = false;
};

}  // namespace dew
