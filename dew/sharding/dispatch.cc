#include "dew/sharding/dispatch.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// For a >= 0, b >= 1.
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::int64_t product(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    fail(ErrorCode::usage,
         format("batch plan: {} = {} x {} does not fit into 63 bits", what, a, b));
  }
  return result;
}

std::int64_t next_multiple(std::int64_t a, std::int64_t of, std::string_view what) {
  return product(ceil_div(a, of), of, what);
}

void require_positive(std::int64_t value, std::string_view name) {
  if (value < 1)
    fail(ErrorCode::usage, format("batch plan: {} = {}, must be at least 1", name, value));
}

void check(const DispatchOptions& o) {
  require_positive(o.global_batch, "global_batch");
  require_positive(o.seq_len, "seq_len");
  require_positive(o.batch_shards, "batch shards");
  require_positive(o.sequence_shards, "sequence shards");
  require_positive(o.accumulate.value_or(1), "accumulate");
  require_positive(o.micro_batch.value_or(1), "micro_batch");
  require_positive(o.microbatches, "microbatches");
  require_positive(o.column_multiple, "column multiple");
  if (o.accumulate && o.micro_batch) {
    fail(ErrorCode::usage,
         format("batch plan: accumulate = {} and micro_batch = {} are both given", *o.accumulate,
                *o.micro_batch),
         "give one of them, the other follows");
  }
}

std::int64_t rows_of_a_micro_step(const DispatchOptions& o, std::int64_t fullest) {
  std::int64_t m = fullest;
  if (o.accumulate) m = ceil_div(fullest, *o.accumulate);
  if (o.micro_batch) m = *o.micro_batch;
  return next_multiple(m, o.microbatches, "rows of a micro step");
}

constexpr double kManyPads = 0.25, kFewPads = 0.1;

double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Of `rows` rows on so many shards, each with as few slots as hold them.
double least_pad_share(std::int64_t rows, std::int64_t shards) {
  const std::int64_t physical = ceil_div(rows, shards) * shards;
  return share(physical - rows, physical);
}

std::string count_of(std::int64_t n, std::string_view one) {
  return format("{} {}{}", n, one, n == 1 ? "" : "s");
}

}  // namespace

std::int64_t advised_batch_shards(std::int64_t rows, std::int64_t batch_shards) {
  std::int64_t best = 1;  // never has pads
  const auto consider = [&](std::int64_t b) {
    if (b > best && b <= rows && least_pad_share(rows, b) <= kFewPads) best = b;
  };
  for (std::int64_t b = 1; b <= batch_shards / b; ++b) {
    if (batch_shards % b != 0) continue;
    consider(b);
    consider(batch_shards / b);
  }
  return best;
}

DispatchPlan::DispatchPlan(const DispatchOptions& options)
    : options_(options), rows_(options.global_batch) {
  check(options);
  const std::int64_t fullest = ceil_div(rows_, batch_shards());
  micro_batch_ = rows_of_a_micro_step(options, fullest);
  steps_ = ceil_div(fullest, micro_batch_);

  const std::int64_t shares = std::gcd(options.column_multiple, sequence_shards());
  const std::int64_t multiple =
      product(options.column_multiple / shares, sequence_shards(), "column multiple");
  padded_seq_len_ = next_multiple(seq_len(), multiple, "padded sequence length");

  // Everything that the members below and the users of the plan multiply. The two of shard() and
  // first_row() use all physical rows, so that with_global_batch() needs no check of its own.
  const std::int64_t per_shard = product(steps_, micro_batch_, "rows of a shard");
  const std::int64_t physical = product(per_shard, batch_shards(), "physical rows");
  product(physical, batch_shards(), "physical rows times shards");
  product(physical, padded_seq_len_, "tokens of a step");
}

DispatchPlan DispatchPlan::with_global_batch(std::int64_t rows) const {
  if (rows < 1 || rows > physical_batch()) {
    fail(ErrorCode::usage,
         format("batch plan: {} rows do not fit into {} slots", rows, physical_batch()));
  }
  DispatchPlan plan = *this;
  plan.rows_ = rows;
  return plan;
}

std::int64_t DispatchPlan::shard(std::int64_t row) const {
  DEW_CHECK(0 <= row && row < rows_, format("row {} of {}", row, rows_));
  return row * batch_shards() / rows_;
}

std::int64_t DispatchPlan::first_row(std::int64_t shard) const {
  DEW_CHECK(0 <= shard && shard <= batch_shards(), format("shard {} of {}", shard, batch_shards()));
  return ceil_div(shard * rows_, batch_shards());
}

std::int64_t DispatchPlan::rows_of(std::int64_t shard) const {
  return first_row(shard + 1) - first_row(shard);
}

Place DispatchPlan::place(std::int64_t row) const {
  const std::int64_t b = shard(row);
  const std::int64_t k = row - first_row(b);
  return {.micro = k / micro_batch_, .shard = b, .slot = k % micro_batch_};
}

std::int64_t DispatchPlan::row(const Place& place) const {
  DEW_CHECK(
      0 <= place.micro && place.micro < steps_ && 0 <= place.slot && place.slot < micro_batch_,
      format("micro step {} of {}, slot {} of {}", place.micro, steps_, place.slot, micro_batch_));
  const std::int64_t k = place.micro * micro_batch_ + place.slot;
  return k < rows_of(place.shard) ? first_row(place.shard) + k : -1;
}

double DispatchPlan::pad_share() const { return share(pads(), physical_batch()); }

std::int64_t DispatchPlan::empty_shards() const {
  return std::max<std::int64_t>(0, batch_shards() - rows_);
}

double DispatchPlan::row_weight() const { return 1 / static_cast<double>(rows_); }

double DispatchPlan::token_weight() const { return row_weight() / static_cast<double>(seq_len()); }

std::int64_t DispatchPlan::batches(std::int64_t rows) const {
  DEW_CHECK(rows >= 0, format("{} rows", rows));
  return ceil_div(rows, rows_);
}

std::vector<std::string> DispatchPlan::warnings() const {
  std::vector<std::string> lines;
  if (rows_ != options_.global_batch) return lines;
  if (pad_share() > kManyPads) {
    lines.push_back(format("{} of {} physical rows ({:.1f} %) are pads", pads(), physical_batch(),
                           100 * pad_share()));
  }
  if (options_.accumulate && steps_ < *options_.accumulate) {
    lines.push_back(format("accumulate = {}, but the fullest shard has {}, so {} run{}",
                           *options_.accumulate, count_of(ceil_div(rows_, batch_shards()), "row"),
                           count_of(steps_, "micro step"), steps_ == 1 ? "s" : ""));
  }
  return lines;
}

std::optional<std::string> DispatchPlan::advice() const {
  if (rows_ != options_.global_batch || pad_share() <= kManyPads) return std::nullopt;
  if (least_pad_share(rows_, batch_shards()) > kManyPads) return advice_on_shards();
  const std::int64_t fullest = ceil_div(rows_, batch_shards());
  return format(
      "the fullest shard has {}, and {} of {} make {} of them; a micro_batch that divides {}{} "
      "would not",
      count_of(fullest, "row"), count_of(steps_, "micro step"), micro_batch_, rows_per_shard(),
      fullest, options_.microbatches > 1 ? ", and microbatches that divide that," : "");
}

// Shards beyond the rows do nothing, so devices move from rows to columns.
std::optional<std::string> DispatchPlan::advice_on_shards() const {
  const std::int64_t fewer = advised_batch_shards(rows_, batch_shards());
  const std::int64_t factor = batch_shards() / fewer;
  const std::int64_t sequence = product(sequence_shards(), factor, "sequence shards");
  if (sequence > seq_len()) {
    return format(
        "a global batch of {} fills all batch shards; or give the mesh at most {} of them",
        batch_shards(), fewer);
  }
  return format(
      "move a factor of {} from the batch axes to sequence: {} x {} of {}, {:.1f} % pads "
      "(training over sequence is not built yet)",
      factor, count_of(fewer, "batch shard"), count_of(sequence, "sequence shard"),
      count_of(ceil_div(seq_len(), sequence), "column"), 100 * least_pad_share(rows_, fewer));
}

std::vector<ColumnRange> DispatchPlan::columns(std::int64_t sigma) const {
  DEW_CHECK(0 <= sigma && sigma < sequence_shards(),
            format("sequence shard {} of {}", sigma, sequence_shards()));
  const std::int64_t width = padded_seq_len_ / sequence_shards();
  return {{.begin = sigma * width, .end = (sigma + 1) * width}};
}

}  // namespace dew
