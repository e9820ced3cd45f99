#include "dew/train/metrics.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/train/trainer.h"

namespace dew {
namespace {

constexpr ErrorCode kCode = ErrorCode::checkpoint;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 34;

OrderedJson number(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); }

// None if it is not a line of ours.
std::optional<MetricsLine> parse_line(std::string_view line) {
  try {
    const Json json = parse_json(line, "line", kCode);
    return MetricsLine{.step = JsonObject(json, "line", kCode).integer("step", 0, INT64_MAX),
                       .evaluation = json.contains("eval_loss"),
                       .text = std::string(line)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A device or pipe may have no end, and a directory is no file.
void require_regular(const Path& path) {
  const FileKind kind = file_kind(path, kCode);
  if (kind == FileKind::missing || kind == FileKind::regular) return;
  fail(kCode, format("'{}' is not a regular file", path.string()), "move it away");
}

}  // namespace

std::vector<MetricsLine> read_metrics(const Path& path) {
  std::vector<MetricsLine> lines;
  require_regular(path);
  if (file_kind(path, kCode) == FileKind::missing) return lines;
  const std::string text = read_file(path, kCode, kMaxBytes, Source::regular);
  std::size_t begin = 0, bad = 0, number = 1;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1, ++number) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    auto parsed = parse_line(line);
    if (!parsed && bad == 0) bad = number;
    if (parsed && bad > 0) {
      fail(kCode, format("{}:{}: not a line of metrics", path.string(), bad),
           "repair or remove the line, or move the file away");
    }
    if (parsed) lines.push_back(std::move(*parsed));
  }
  return lines;
}

MetricsWriter::MetricsWriter(const Path& path, std::int64_t step) {
  require_regular(path);
  std::string kept;
  if (step > 0) {
    for (const MetricsLine& line : read_metrics(path)) {
      if (line.step > step) continue;
      kept += line.text + '\n';
      if (line.evaluation) evaluated_ = line.step;
    }
  }
  write_file_atomic(path, kept, kCode);
  file_.emplace(path, kCode);
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
  file_->append(json.dump() + "\n");
}

void MetricsWriter::add(std::int64_t step, const EvalResult& result) {
  if (step <= evaluated_) return;
  const OrderedJson json = {{"step", step},
                            {"eval_loss", number(result.loss)},
                            {"eval_perplexity", number(result.perplexity)},
                            {"eval_accuracy", number(result.accuracy)},
                            {"eval_tokens", static_cast<std::int64_t>(result.tokens)}};
  file_->append(json.dump() + "\n");
}

}  // namespace dew
