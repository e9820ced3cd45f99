#include "dew/runtime/cpu/pool.h"

#include <system_error>

#include "dew/base/error.h"
#include "dew/base/format.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dew::cpu {
namespace {

// About 20 microseconds: longer than the gap between two steps, far shorter than a time slice.
constexpr int kSpins = 600;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until `value` differs from `old`.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Pool::Pool(int workers, std::function<void()> start) : workers_(workers), start_(std::move(start)) {
  start_();
  try {
    for (int w = 1; w < workers_; ++w) {
      threads_.emplace_back([this, w] { thread_main(w); });
    }
  } catch (const std::system_error& e) {
    const std::size_t started = threads_.size() + 1;
    stop();
    fail(ErrorCode::usage,
         format("{} of {} workers started, then: {}", started, workers_, e.what()),
         "use fewer workers");
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  stop_ = true;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  threads_.clear();
}

void Pool::run(const std::function<void(int)>& body) {
  body_ = &body;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  body(0);
  barrier();
}

void Pool::thread_main(int worker) {
  start_();
  for (std::uint32_t seen = 0;; ++seen) {
    wait_for_change(job_, seen);
    if (stop_) return;
    (*body_)(worker);
    barrier();
  }
}

void Pool::barrier() {
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < workers_) {
    wait_for_change(generation_, generation);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  next_piece_.store(0, std::memory_order_relaxed);
  generation_.store(generation + 1, std::memory_order_release);
  generation_.notify_all();
}

}  // namespace dew::cpu
