// What a training run tells, brought to the console, log.txt and metrics.jsonl.
#pragma once

#include <functional>
#include <optional>

#include "dew/train/console.h"
#include "dew/train/metrics.h"
#include "dew/train/trainer.h"

namespace dew::cli {

class Reporter final : public TrainObserver {
 public:
  // What else is to be done at the two; `begin` opens metrics.jsonl, not before: a resume that is
  // refused must leave the files of the run as they are.
  using Resume = std::function<void(const CheckpointInfo& from)>;
  using Begin = std::function<void(std::int64_t step, std::optional<MetricsWriter>& metrics)>;
  // `console` must outlive the reporter.
  Reporter(Console& console, Resume resume, Begin begin)
      : console_(console), resume_(std::move(resume)), begin_(std::move(begin)) {}

  void on_resume(const CheckpointInfo& from) override;
  void on_begin(std::int64_t step) override;
  void on_step(std::int64_t step, std::int64_t target, double loss) override;
  void on_log(const LogLine& line) override;
  void on_eval(std::int64_t step, const EvalResult& result) override;
  void on_save(std::int64_t step) override;
  void on_message(const std::string& line) override;
  void on_warning(const std::string& line) override;

 private:
  Console& console_;
  Resume resume_;
  Begin begin_;
  std::optional<MetricsWriter> metrics_;
};

}  // namespace dew::cli
