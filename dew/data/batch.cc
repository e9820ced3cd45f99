#include "dew/data/batch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

template <typename T>
std::span<T> part(std::vector<T>& array, std::int64_t first, std::int64_t count) {
  return std::span(array).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

BatchMaker::BatchMaker(const Windows& windows, const DispatchPlan& plan,
                       std::vector<std::int64_t> shards)
    : windows_(windows), plan_(plan), shards_(std::move(shards)) {
  if (shards_.empty()) {
    shards_.resize(static_cast<std::size_t>(plan.batch_shards()));
    std::iota(shards_.begin(), shards_.end(), 0);
  }
  DEW_CHECK(plan.seq_len() == windows.seq_len(),
            format("{} and {}", plan.seq_len(), windows.seq_len()));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (plan.physical_batch() > kMost || plan.padded_seq_len() > kMost) {
    fail(ErrorCode::usage, format("a batch of {} rows of {} tokens: both must lie below 2^31",
                                  plan.physical_batch(), plan.padded_seq_len()));
  }
  std::int64_t at = 0;
  for (std::int64_t sigma = 0; sigma < plan.sequence_shards(); ++sigma) {
    for (const ColumnRange& range : plan.columns(sigma)) {
      const std::int64_t width = range.end - range.begin;
      const std::int64_t real = std::clamp<std::int64_t>(plan.seq_len() - range.begin, 0, width);
      pieces_.push_back({.at = at, .column = range.begin, .width = width, .real = real});
      at += width;
    }
  }
}

template <class Visit>
void BatchMaker::for_each_row(const DispatchPlan& plan, Visit visit) const {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::int64_t first = plan.first_row(shards_[i]), end = plan.first_row(shards_[i] + 1);
    for (std::int64_t g = first; g < end; ++g) {
      const Place place = plan.place(g);
      const std::int64_t row = static_cast<std::int64_t>(i) * plan.micro_batch() + place.slot;
      visit(g, place.micro * array_rows() + row);
    }
  }
}

void BatchMaker::fill(StepBatch& batch) const {
  const auto rows = static_cast<std::int64_t>(batch.records.size());
  const DispatchPlan plan = plan_.with_global_batch(rows);
  // What does not depend on the records stays from the last time, as long as the same rows are
  // real.
  if (batch.real_tokens != rows * plan.seq_len()) prepare(batch, plan);
  for_each_row(plan, [&](std::int64_t g, std::int64_t array_row) {
    const std::int64_t row = array_row * batch.width;
    const std::int64_t record = batch.records[static_cast<std::size_t>(g)];
    for (const Piece& piece : pieces_) {
      if (piece.real == 0) continue;  // behind the end of the record
      windows_.read(record, piece.column, part(batch.ids, row + piece.at, piece.real));
      windows_.read(record, piece.column + 1, part(batch.labels, row + piece.at, piece.real));
    }
  });
}

// Sizes the arrays and writes everything but the ids and labels of real tokens.
void BatchMaker::prepare(StepBatch& batch, const DispatchPlan& plan) const {
  batch.real_tokens = 0;  // nothing is prepared until the end
  batch.micro_steps = plan.steps();
  batch.rows = array_rows();
  batch.width = plan.padded_seq_len();

  batch.columns.clear();
  for (const Piece& piece : pieces_) {
    for (std::int64_t i = 0; i < piece.width; ++i) {
      batch.columns.push_back(static_cast<std::int32_t>(piece.column + i));
    }
  }
  batch.row_ids.assign(static_cast<std::size_t>(batch.micro_steps * batch.rows), -1);
  for_each_row(plan, [&](std::int64_t g, std::int64_t row) {
    batch.row_ids[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(g);
  });

  const std::size_t tokens = batch.row_ids.size() * static_cast<std::size_t>(batch.width);
  batch.ids.assign(tokens, 0);
  batch.labels.assign(tokens, 0);
  batch.weights.resize(tokens);
  batch.positions.resize(tokens);
  batch.segments.resize(tokens);
  const auto last = static_cast<std::int32_t>(plan.seq_len() - 1);
  std::size_t i = 0;
  for (const std::int32_t row_id : batch.row_ids) {
    for (const std::int32_t column : batch.columns) {
      const bool real = row_id >= 0 && column <= last;
      batch.weights[i] = real ? 1.0f : 0.0f;
      batch.positions[i] = std::min(column, last);
      batch.segments[i] = real ? 0 : -1 - column;
      ++i;
    }
  }
  batch.real_tokens = plan.global_batch() * plan.seq_len();
  batch.weight_sum = static_cast<double>(batch.real_tokens);
}

}  // namespace dew
