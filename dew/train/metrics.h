// metrics.jsonl of a run: one JSON object a line, numbers that read back as the same doubles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dew/base/file.h"

namespace dew {

struct LogLine;
struct EvalResult;

struct MetricsLine {
  std::int64_t step = 0;
  bool evaluation = false;
  std::string text;  // the JSON, without the newline
};

// The lines of such a file; a missing file has none. Lines at the end that are no whole line (the
// computer stopped while they were written) are left out; one in the middle is
// ErrorCode::checkpoint with its number.
std::vector<MetricsLine> read_metrics(const Path& path);

// Appends to the file of a run. Belongs to one thread. Errors are ErrorCode::checkpoint, as those
// of the run's other files.
class MetricsWriter {
 public:
  // Goes on after `step`: lines past it, from before the run was resumed, are dropped (in one
  // atomic replacement). 0 begins anew. Refuses what is there and is no regular file.
  MetricsWriter(const Path& path, std::int64_t step);
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // Each is one line, in the file when the call returns. Numbers that are not finite are null. An
  // evaluation of a step that the file has already is not added again.
  void add(const LogLine& line);
  void add(std::int64_t step, const EvalResult& result);
  // The lines that were added outlive a loss of power when this returns.
  void sync() { file_->sync(); }

 private:
  std::optional<FileAppender> file_;
  std::int64_t evaluated_ = -1;  // last step with an evaluation
};

}  // namespace dew
