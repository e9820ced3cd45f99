#include "dew/cli/model_files.h"

#include "dew/base/format.h"

namespace dew::cli {

void require_fresh_directory(const Path& path) {
  const FileKind kind = file_kind(path, ErrorCode::usage);
  if (kind == FileKind::missing) return;
  if (kind == FileKind::directory && list_directory(path, ErrorCode::usage).empty()) return;
  fail(ErrorCode::usage,
       format("'{}' exists and is no empty directory: nothing is written over", path.string()),
       "give another --out, or move that one away");
}

}  // namespace dew::cli
