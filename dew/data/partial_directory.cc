#include "dew/data/partial_directory.h"

#include <unistd.h>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// With a file name at its end, so that something can be appended to it: not "a/", not "a/.".
Path absolute_name(const Path& out) {
  const Path path = std::filesystem::absolute(out).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

PartialDirectory::PartialDirectory(const Path& out) : out_(absolute_name(out)), path_(out_) {
  require_free();
  create_directories(out_.parent_path(), ErrorCode::data);
  path_ += format(".partial-{}", ::getpid());
  if (!create_directory(path_, ErrorCode::data)) {
    fail(ErrorCode::data, format("'{}' is left over from another run", path_.string()),
         "remove it");
  }
}

PartialDirectory::~PartialDirectory() {
  if (!committed_) remove_quietly(path_);
}

void PartialDirectory::commit() {
  sync_directory(path_, ErrorCode::data);
  rename_file(path_, out_, ErrorCode::data);
  committed_ = true;
  sync_directory(out_.parent_path(), ErrorCode::data);
}

void PartialDirectory::require_free() const {
  const FileKind kind = file_kind(out_, ErrorCode::data);
  if (kind == FileKind::missing) return;
  if (kind != FileKind::directory) {
    fail(ErrorCode::usage, format("the output '{}' exists and is not a directory", out_.string()));
  }
  if (!list_directory(out_, ErrorCode::data).empty()) {
    fail(ErrorCode::usage, format("the output '{}' exists and is not empty", out_.string()),
         "remove it or choose another name");
  }
}

}  // namespace dew
