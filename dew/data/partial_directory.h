// A directory that is complete or absent.
#pragma once

#include "dew/base/file.h"

namespace dew {

// A new directory beside `out`, gone again unless commit() is reached, which gives it that name.
// Throws ErrorCode::usage if `out` exists and is not an empty directory, ErrorCode::data if it
// cannot be made.
class PartialDirectory {
 public:
  explicit PartialDirectory(const Path& out);
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory();

  const Path& path() const { return path_; }
  void commit();

 private:
  void require_free() const;

  Path out_, path_;
  bool committed_ = false;
};

}  // namespace dew
