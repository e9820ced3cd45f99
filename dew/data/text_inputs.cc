#include "dew/data/text_inputs.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// Text in a container would otherwise become training data as the bytes of the container.
void refuse_unsupported(const Path& file) {
  for (const std::string_view extension : {".xz", ".bz2", ".zip", ".tar", ".parquet", ".arrow"}) {
    if (file.extension() == extension) {
      fail(ErrorCode::usage, format("'{}': {} input is not supported", file.string(), extension),
           "text files and JSON lines, as they are or compressed as .gz or .zst");
    }
  }
}

bool is_json_lines(const Path& file) {
  const bool compressed = file.extension() == ".gz" || file.extension() == ".zst";
  const Path name = compressed ? file.stem() : file.filename();
  return name.extension() == ".jsonl" || name.extension() == ".ndjson";
}

class InputLister {
 public:
  explicit InputLister(bool stdin_lines) : stdin_lines_(stdin_lines) {}

  TextInputs list(const std::vector<Path>& paths) {
    for (const Path& path : paths) add(path);
    return std::move(inputs_);
  }

 private:
  void add(const Path& path) {
    if (path == "-") {
      if (std::exchange(stdin_taken_, true))
        fail(ErrorCode::usage, "standard input (-) is named more than once");
      inputs_.files.push_back({path, stdin_lines_});
      return;
    }
    switch (file_kind(path, ErrorCode::data)) {
      case FileKind::missing:
        fail(ErrorCode::data, format("there is no '{}'", path.string()));
      case FileKind::directory:
        return add_directory(path);
      case FileKind::regular:
        inputs_.total_bytes += file_size(path, ErrorCode::data);
        break;
      case FileKind::other:
        break;
    }
    refuse_unsupported(path);
    inputs_.files.push_back({path, is_json_lines(path)});
  }

  void add_directory(const Path& path) {
    const Path real = std::filesystem::canonical(path);
    if (!above_.insert(real).second) {
      fail(ErrorCode::data, format("'{}' leads back to a directory above it", path.string()));
    }
    for (const std::string& entry : list_directory(path, ErrorCode::data)) {
      if (entry.starts_with('.')) {
        ++inputs_.hidden;
      } else {
        add(path / entry);
      }
    }
    above_.erase(real);
  }

  bool stdin_lines_, stdin_taken_ = false;
  TextInputs inputs_;
  std::set<Path> above_;  // directories being listed
};

}  // namespace

TextInputs list_text_inputs(const std::vector<Path>& paths, bool stdin_lines) {
  return InputLister(stdin_lines).list(paths);
}

}  // namespace dew
