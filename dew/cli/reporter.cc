#include "dew/cli/reporter.h"

#include "dew/base/format.h"

namespace dew::cli {

void Reporter::on_resume(const CheckpointInfo& from) { resume_(from); }

void Reporter::on_begin(std::int64_t step) { begin_(step, metrics_); }

void Reporter::on_step(std::int64_t step, std::int64_t target, double loss) {
  if (step == target) return console_.end_progress();
  const std::string note = format("loss {:.4f}", loss);
  console_.progress({.what = "step",
                     .unit = "steps",
                     .done = step,
                     .total = target,
                     .note = note,
                     .own_lines = true});
}

void Reporter::on_log(const LogLine& line) {
  console_.line(format("step {}: loss {:.4f}", line.step, line.loss));
  console_.detail(
      format("step {}: {:.0f} tokens/s, {:.2f} ms a step, gradient norm {:.3g}, rate {:.3g}",
             line.step, line.tokens_per_s, line.step_ms, line.grad_norm, line.lr));
  if (metrics_) metrics_->add(line);
}

void Reporter::on_eval(std::int64_t step, const EvalResult& result) {
  console_.line(format("step {}: validation loss {:.4f}, perplexity {:.4g}, accuracy {:.2f}%", step,
                       result.loss, result.perplexity, 100 * result.accuracy));
  if (metrics_) metrics_->add(step, result);
}

void Reporter::on_save(std::int64_t /*step*/) {
  if (metrics_) metrics_->sync();
}

void Reporter::on_message(const std::string& line) { console_.line(line); }

void Reporter::on_warning(const std::string& line) { console_.warning(line); }

}  // namespace dew::cli
