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

std::string rows_hint(const char* key, std::int64_t rows) {
  return rows > 0 ? format("{}={} or less may fit", key, rows)
                  : "a smaller data.seq_len or model needs less";
}

// `bytes` of the batch, `values` of a micro step: what may fit is enough for both.
[[noreturn]] void refuse_batch(const DispatchPlan& plan, double bytes, double values,
                               double memory) {
  const double rows = number(plan.global_batch());
  const double each = bytes / rows + (plan.steps() == 1 ? values / rows : 0);
  fail(ErrorCode::usage,
       format("a batch of {} rows of {} tokens needs {}B, this machine has {}B",
              plan.global_batch(), plan.seq_len(), short_number(bytes), short_number(memory)),
       rows_hint("data.global_batch", fitting(memory, each)));
}

[[noreturn]] void refuse_micro_step(const DispatchPlan& plan, const char* at_least, double bytes,
                                    double memory, std::int64_t rows) {
  const std::string hint = rows_hint("data.micro_batch", rows);
  fail(ErrorCode::usage,
       format("a micro step of {} rows of {} tokens needs {}B{}, this machine has {}B",
              plan.micro_rows(), plan.seq_len(), short_number(bytes), at_least,
              short_number(memory)),
       rows > 0 ? hint + ", and so may a smaller data.global_batch" : hint);
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
  if (least.batch * real > memory) refuse_batch(plan, least.batch * real, least.values, memory);
  const double bytes = least.values + least.batch;
  if (bytes <= memory) return;
  refuse_micro_step(plan, " at least", bytes, memory,
                    fitting(memory, bytes / number(plan.micro_batch())));
}

void refuse_step(const DispatchPlan& plan, const StepSizes& sizes, const TooLarge& too_large) {
  // Parameters and their moments, which no batch makes smaller.
  const double batch = least_memory(plan, sizes).batch / number(sizes.batch_copies);
  const double state = std::max(too_large.kept - batch, 0.0);
  const double rows = number(plan.micro_batch());
  const double of_row = (too_large.call + batch / number(plan.steps())) / rows;
  constexpr double kSafe = 0.9;  // not all of it grows with the rows
  const double fit = kSafe * (too_large.memory - state) / of_row;
  refuse_micro_step(plan, "", too_large.kept + too_large.call, too_large.memory,
                    static_cast<std::int64_t>(std::clamp(fit, 0.0, rows - 1)));
}

}  // namespace dew
