#include "dew/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/data/epoch_order.h"

namespace dew {
namespace {

// Makes batch k of the endless sequence, for any k.
class Sequence {
 public:
  Sequence(const Windows& windows, const DispatchPlan& plan, const LoaderOptions& options)
      : maker_(windows, plan, options.shards),
        records_(windows.records()),
        options_(options),
        order_(records_, options.seed, options.position / records_) {}

  std::int64_t rows() const { return maker_.plan().global_batch(); }

  // Position after k batches.
  std::int64_t position(std::int64_t k) const { return options_.position + k * rows(); }

  void make(std::int64_t k, StepBatch& batch) {
    if (position(k) > std::numeric_limits<std::int64_t>::max() / 2) {
      fail(ErrorCode::data, format("the data position {} is out of range", position(k)));
    }
    batch.records.resize(static_cast<std::size_t>(rows()));
    std::int64_t number = position(k);
    for (std::int64_t& record : batch.records) record = record_of(number++);
    maker_.fill(batch);
  }

 private:
  std::int64_t record_of(std::int64_t number) {
    const std::int64_t epoch = number / records_, i = number % records_;
    if (!options_.shuffle) return i;
    if (order_.epoch() != epoch) order_ = EpochOrder(records_, options_.seed, epoch);
    return order_(i);
  }

  BatchMaker maker_;
  std::int64_t records_;
  LoaderOptions options_;
  EpochOrder order_;
};

LoaderOptions checked(const LoaderOptions& options) {
  if (options.position < 0)
    fail(ErrorCode::usage, format("data position {} is negative", options.position));
  if (options.prefetch < 0)
    fail(ErrorCode::usage, format("prefetch = {}, must not be negative", options.prefetch));
  return options;
}

}  // namespace

// Slots in a ring: batch k lives in slot k mod the number of slots. The consumer holds batch given_
// - 1, so the producer may make batch k as soon as batch k - slots is no longer held: k < given_ -
// 1 + slots.
class Loader::Impl {
 public:
  Impl(const Windows& windows, const DispatchPlan& plan, const LoaderOptions& options)
      : sequence_(windows, plan, checked(options)),
        slots_(static_cast<std::size_t>(options.prefetch) + 1) {
    if (options.prefetch > 0) thread_ = std::thread([this] { produce(); });
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const StepBatch& next() {
    Slot& slot = slot_of(given_);
    if (!thread_.joinable()) {
      make(given_, slot);
    } else {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return made_ > given_; });
    }
    if (slot.error) std::rethrow_exception(slot.error);
    {
      const std::lock_guard lock(mutex_);
      ++given_;
    }
    changed_.notify_all();
    return slot.batch;
  }

  std::int64_t position() const { return sequence_.position(given_); }

 private:
  struct Slot {
    StepBatch batch;
    std::exception_ptr error;
  };

  Slot& slot_of(std::int64_t k) { return slots_[static_cast<std::size_t>(k) % slots_.size()]; }

  void make(std::int64_t k, Slot& slot) noexcept {
    try {
      slot.error = nullptr;
      sequence_.make(k, slot.batch);
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  // The producer's thread: batches in order until it is stopped or one fails.
  void produce() {
    const auto ahead = static_cast<std::int64_t>(slots_.size());
    for (std::int64_t k = 0;; ++k) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || k < given_ - 1 + ahead; });
        if (stop_) return;
      }
      Slot& slot = slot_of(k);
      make(k, slot);
      {
        const std::lock_guard lock(mutex_);
        made_ = k + 1;
      }
      changed_.notify_all();
      if (slot.error) return;
    }
  }

  Sequence sequence_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t made_ = 0;   // batches finished, guarded by mutex_
  std::int64_t given_ = 0;  // batches handed out, written by the consumer under mutex_
  bool stop_ = false;       // guarded by mutex_
  std::thread thread_;      // last: it starts when all else is there
};

Loader::Loader(const Windows& windows, const DispatchPlan& plan, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(windows, plan, options)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

const StepBatch& Loader::next() { return impl_->next(); }

std::int64_t Loader::position() const { return impl_->position(); }

ValidationPass::ValidationPass(const Windows& windows, const DispatchPlan& plan,
                               std::int64_t batches, std::vector<std::int64_t> shards)
    : maker_(windows, plan, std::move(shards)), rows_(windows.records()) {
  if (batches < 0)
    fail(ErrorCode::usage, format("validation batches = {}, must not be negative", batches));
  const std::int64_t all = plan.batches(rows_);
  if (batches > 0 && batches < all) rows_ = batches * plan.global_batch();
}

std::int64_t ValidationPass::batches() const { return maker_.plan().batches(rows_); }

const StepBatch* ValidationPass::next() {
  if (next_row_ >= rows_) return nullptr;
  const std::int64_t rows = std::min(maker_.plan().global_batch(), rows_ - next_row_);
  batch_.records.resize(static_cast<std::size_t>(rows));
  for (std::int64_t& record : batch_.records) record = next_row_++;
  maker_.fill(batch_);
  return &batch_;
}

}  // namespace dew
