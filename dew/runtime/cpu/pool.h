// A fixed team of threads that runs one function together, with barriers and shared work inside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace dew::cpu {

// Threads that wait spin for a few microseconds, then sleep.
class Pool {
 public:
  // Starts workers - 1 threads; the caller of run() is the remaining worker, number 0. `start` runs
  // once on each thread.
  Pool(int workers, std::function<void()> start);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int workers() const { return workers_; }

  // Runs body(worker) on all workers at once and returns when all have returned. Not reentrant.
  void run(const std::function<void(int)>& body);

  // For bodies: returns when all workers have arrived; then the number of taken pieces is zero
  // again.
  void barrier();

  // For bodies: the number of the next piece of the current phase.
  int take_piece() { return next_piece_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void thread_main(int worker);
  void stop();

  const int workers_;
  std::function<void()> start_;
  const std::function<void(int)>* body_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<std::uint32_t> job_{0};         // grows by one for each run()
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // grows by one for each completed barrier
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> next_piece_{0};
  std::vector<std::jthread> threads_;
};

}  // namespace dew::cpu
