#include "dew/train/step_memory.h"

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew {
namespace {

constexpr double kBatchBytes = 20;  // of a token

double number(std::int64_t n) { return static_cast<double>(n); }

// Of one token, in a micro step.
double value_bytes(const StepSizes& s) {
  const models::TransformerConfig& c = s.model;
  const double heads = number(c.num_heads + 2 * c.num_kv_heads) * number(c.head_dim);
  const double inputs = (s.trains ? number(c.num_layers) : 1) * number(c.emb_features);
  return number(byte_size(s.compute)) * (inputs + std::max(heads, number(c.mlp_features)));
}

// Half of what is there, since this is a lower bound; 0 if there is no such number.
std::int64_t fitting(double memory, double bytes_each) {
  return static_cast<std::int64_t>(std::min(memory / 2 / bytes_each, 2147483647.0));
}

[[noreturn]] void refuse_batch(const DispatchPlan& plan, double bytes, double memory) {
  const std::int64_t rows = fitting(memory, bytes / number(plan.global_batch()));
  fail(ErrorCode::usage,
       format("a batch of {} rows of {} tokens needs {}B, this machine has {}B",
              plan.global_batch(), plan.seq_len(), short_number(bytes), short_number(memory)),
       rows > 0 ? format("data.global_batch={} or less may fit", rows)
                : "a smaller data.seq_len needs less");
}

[[noreturn]] void refuse_micro_step(const DispatchPlan& plan, double bytes, double memory) {
  const std::int64_t rows = fitting(memory, bytes / number(plan.micro_batch()));
  fail(ErrorCode::usage,
       format("a micro step of {} rows of {} tokens needs {}B at least, this machine has {}B",
              plan.micro_rows(), plan.seq_len(), short_number(bytes), short_number(memory)),
       rows > 0 ? format("data.micro_batch={} may fit, so does a smaller data.global_batch", rows)
                : "a smaller data.seq_len or model needs less");
}

}  // namespace

StepMemory least_memory(const DispatchPlan& plan, const StepSizes& sizes) {
  const double tokens =
      number(sizes.shards) * number(plan.micro_batch()) * number(plan.padded_seq_len());
  return {.batch = kBatchBytes * tokens * number(plan.steps()) * number(sizes.batch_copies),
          .values = tokens * value_bytes(sizes)};
}

void expect_room(const DispatchPlan& plan, const StepSizes& sizes, double memory) {
  const StepMemory least = least_memory(plan, sizes);
  const double real = 1 - plan.pad_share();  // the others are for the sake of a micro step
  if (least.batch * real > memory) refuse_batch(plan, least.batch * real, memory);
  if (least.values + least.batch > memory)
    refuse_micro_step(plan, least.values + least.batch, memory);
}

}  // namespace dew
