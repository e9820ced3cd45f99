#include "dew/base/partial_directory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

constexpr std::string_view kSuffix = ".partial-";

// With a file name at its end, so that something can be appended to it: not "a/", not "a/.".
Path absolute_name(const Path& out) {
  const Path path = std::filesystem::absolute(out).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

PartialDirectory::PartialDirectory(const Path& out, ErrorCode made, ErrorCode written)
    : out_(absolute_name(out)), path_(out_), made_(made), written_(written) {
  require_free();
  create_directories(out_.parent_path(), made_);
  remove_leftovers();
  path_ += format("{}{}", kSuffix, ::getpid());
  make();
}

PartialDirectory::~PartialDirectory() {
  if (!committed_) remove_quietly(path_);
}

void PartialDirectory::commit() {
  sync_directory(path_, written_);
  rename_file(path_, out_, written_);
  committed_ = true;
  sync_directory(out_.parent_path(), written_);
}

void PartialDirectory::require_free() const {
  const FileKind kind = file_kind(out_, made_);
  std::error_code ignored;
  if (std::filesystem::is_symlink(out_, ignored)) {
    fail(ErrorCode::usage, format("the output '{}' is a symbolic link", out_.string()),
         "give the directory that it leads to");
  }
  if (kind == FileKind::missing) return;
  if (kind != FileKind::directory) {
    fail(ErrorCode::usage, format("the output '{}' exists and is not a directory", out_.string()));
  }
  if (!list_directory(out_, made_).empty()) {
    fail(ErrorCode::usage, format("the output '{}' exists and is not empty", out_.string()),
         "remove it or choose another name");
  }
}

bool PartialDirectory::is_partial(std::string_view name) const {
  const std::string before = out_.filename().string() + std::string(kSuffix);
  if (!name.starts_with(before) || name.size() == before.size()) return false;
  return std::ranges::all_of(name.substr(before.size()),
                             [](char c) { return c >= '0' && c <= '9'; });
}

// A parent that cannot be listed is no reason not to write there.
void PartialDirectory::remove_leftovers() const {
  std::error_code ignored;
  std::filesystem::directory_iterator entry(out_.parent_path(), ignored), end;
  for (; !ignored && entry != end; entry.increment(ignored)) {
    if (!is_partial(entry->path().filename().string())) continue;
    const DirectoryLock lock(entry->path());
    if (lock.taken()) remove_quietly(entry->path());
  }
}

// Between the two calls another process may take the new directory for a leftover: it is then made
// again, when that one has removed it.
void PartialDirectory::make() {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    if (create_directory(path_, made_)) {
      lock_.emplace(path_);
      if (!lock_->taken_by_another()) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fail(made_, format("'{}' is in use by another process", path_.string()), "wait for it");
}

}  // namespace dew
