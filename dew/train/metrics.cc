#include "dew/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/train/trainer.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 34;

OrderedJson number(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); }

// The step of a line; none if it is not a line of ours.
std::optional<std::int64_t> step_of(std::string_view line) {
  try {
    const Json json = parse_json(line, "line", kCode);
    return JsonObject(json, "line", kCode).integer("step", 0, INT64_MAX);
  } catch (const Error&) {
    return std::nullopt;
  }
}

[[noreturn]] void fail_errno(const char* what, const Path& path) {
  fail(kCode,
       format("cannot {} '{}': {}", what, path.string(), std::generic_category().message(errno)));
}

}  // namespace

std::vector<MetricsLine> read_metrics(const Path& path) {
  std::vector<MetricsLine> lines;
  if (file_kind(path, kCode) == FileKind::missing) return lines;
  const std::string text = read_file(path, kCode, kMaxBytes);
  std::size_t begin = 0, bad = 0, number = 1;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1, ++number) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const auto step = step_of(line);
    if (!step && bad == 0) bad = number;
    if (step && bad > 0) {
      fail(kCode, format("{}:{}: not a line of metrics", path.string(), bad),
           "repair or remove the line, or move the file away");
    }
    if (step) lines.push_back({*step, std::string(line)});
  }
  return lines;
}

MetricsWriter::MetricsWriter(Path path, std::int64_t step) : path_(std::move(path)), fd_(-1) {
  std::string kept;
  if (step > 0) {
    for (const MetricsLine& line : read_metrics(path_)) {
      if (line.step <= step) kept += line.text + '\n';
    }
  }
  write_file_atomic(path_, kept, kCode);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail_errno("open", path_);
}

MetricsWriter::~MetricsWriter() {
  if (fd_ >= 0) ::close(fd_);
}

// FileWriter gathers a buffer and ends with a sync; here every line must be seen at once.
void MetricsWriter::append(std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", path_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void MetricsWriter::add(const LogLine& line) {
  const OrderedJson json = {{"step", line.step},
                            {"loss", number(line.loss)},
                            {"loss_mean", number(line.loss_mean)},
                            {"grad_norm", number(line.grad_norm)},
                            {"lr", number(line.lr)},
                            {"tokens", line.tokens},
                            {"skipped", line.skipped},
                            {"tokens_per_s", number(line.tokens_per_s)},
                            {"step_ms", number(line.step_ms)}};
  append(json.dump());
}

void MetricsWriter::add(std::int64_t step, const EvalResult& result) {
  const OrderedJson json = {{"step", step},
                            {"eval_loss", number(result.loss)},
                            {"eval_perplexity", number(result.perplexity)},
                            {"eval_accuracy", number(result.accuracy)},
                            {"eval_tokens", static_cast<std::int64_t>(result.tokens)}};
  append(json.dump());
}

}  // namespace dew
