// Threads that work on a sequence, whose results come in the order of the sequence.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dew {

// `Work` turns an In into an Out. Used by one thread; destroying it waits for what is being worked
// on and drops the rest.
template <typename In, typename Out>
class OrderedWorkers {
 public:
  using Work = std::function<Out(const In&)>;

  // One Work for each thread.
  explicit OrderedWorkers(std::vector<Work> works) {
    threads_.reserve(works.size());
    for (Work& work : works) threads_.emplace_back([this, work = std::move(work)] { run(work); });
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(In in) {
    auto task = std::make_shared<Task>();
    task->in = std::move(in);
    order_.push_back(task);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  // Submitted and not taken.
  std::size_t pending() const { return order_.size(); }

  // Waits for the first of those and returns it with its result, or throws what its work threw.
  // REQUIRES: pending() > 0.
  std::pair<In, Out> take() {
    const std::shared_ptr<Task> task = std::move(order_.front());
    order_.pop_front();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return task->done; });
    }
    if (task->error) std::rethrow_exception(task->error);
    return {std::move(task->in), std::move(task->out)};
  }

 private:
  struct Task {
    In in;
    Out out;
    std::exception_ptr error;
    bool done = false;
  };

  void run(const Work& work) {
    for (;;) {
      std::shared_ptr<Task> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
        if (ends_) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      try {
        task->out = work(task->in);
      } catch (...) {
        task->error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        task->done = true;
      }
      changed_.notify_all();
    }
  }

  std::deque<std::shared_ptr<Task>> order_;  // of the one thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dew
