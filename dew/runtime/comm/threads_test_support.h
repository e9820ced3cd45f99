// A job whose processes are threads of this one: exchanges copy between their memories. For tests
// of everything that is built on a Job.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/runtime/comm/job.h"

namespace dew::comm {

// What the threads share.
class ThreadWorld {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ThreadWorld(int count) : count_(count), texts_(static_cast<std::size_t>(count)) {}

  int count() const { return count_; }
  // Every exchange takes so much longer.
  Clock::duration delay{};
  std::int64_t exchanges() const { return exchanges_; }  // made so far, by all groups

  // One operation of a group: done by whoever comes last.
  struct Operation {
    Exchange exchange;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    std::size_t arrived = 0, left = 0;
    bool done = false;
    Clock::time_point ready;
  };
  using Key = std::pair<std::vector<int>, std::pair<int, std::int64_t>>;

  void arrive(const Key& key, const Exchange& exchange, std::size_t member, const std::byte* from,
              std::byte* to) {
    const std::lock_guard lock(mutex_);
    Operation& op = operations_[key];
    const std::size_t members = key.first.size();
    op.from.resize(members);
    op.to.resize(members);
    if (op.arrived == 0) op.exchange = exchange;
    const bool same = op.exchange.pattern == exchange.pattern &&
                      op.exchange.count == exchange.count && op.exchange.dtype == exchange.dtype;
    if (!same) error_ = format("{} meets {}", op.exchange.name, exchange.name);
    op.from[member] = from;
    op.to[member] = to;
    if (++op.arrived < members) return;
    if (error_.empty()) make(op);
    op.done = true;
    op.ready = Clock::now() + delay;
    ++exchanges_;
    changed_.notify_all();
  }

  void leave(const Key& key) {
    std::unique_lock lock(mutex_);
    Operation& op = operations_[key];
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return op.done || failed(); });
    if (failed()) fail(ErrorCode::process, error_);
    if (!came) fail(ErrorCode::process, op.exchange.name + ": nobody came");
    const Clock::time_point ready = op.ready;
    if (++op.left == key.first.size()) operations_.erase(key);
    lock.unlock();
    std::this_thread::sleep_until(ready);
  }

  std::vector<std::string> exchange(int rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = mine;
    meet(lock);
    std::vector<std::string> all = texts_;
    meet(lock);
    return all;
  }

  // A member that will not come any more.
  void give_up(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = reason;
    changed_.notify_all();
  }

 private:
  bool failed() const { return !error_.empty(); }

  void meet(std::unique_lock<std::mutex>& lock) {
    const std::int64_t round = rounds_;
    if (++met_ == count_) {
      met_ = 0;
      ++rounds_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return rounds_ != round || failed(); });
    // Who has met all others goes on, also if one of them has failed since.
    if (rounds_ == round) fail(ErrorCode::process, error_);
  }

  template <class T>
  static double load_as(const std::byte* at) {
    T x;
    std::memcpy(&x, at, sizeof(x));
    return static_cast<double>(static_cast<float>(x));
  }
  static double load(DType dtype, const std::byte* at) {
    if (dtype == DType::bf16) return load_as<bf16>(at);
    if (dtype == DType::f32) return load_as<float>(at);
    std::int32_t x = 0;
    std::memcpy(&x, at, sizeof(x));
    return x;
  }
  template <class T>
  static void store_as(double value, std::byte* at) {
    const T x(static_cast<float>(value));
    std::memcpy(at, &x, sizeof(x));
  }
  static void store(DType dtype, double x, std::byte* at) {
    if (dtype == DType::bf16) return store_as<bf16>(x, at);
    if (dtype == DType::f32) return store_as<float>(x, at);
    const auto i = static_cast<std::int32_t>(x);
    std::memcpy(at, &i, sizeof(i));
  }

  static void sum(const Operation& op, std::int64_t first, std::byte* to) {
    const std::int64_t size = byte_size(op.exchange.dtype);
    for (std::int64_t i = 0; i < op.exchange.count; ++i) {
      double total = 0;
      for (const std::byte* from : op.from)
        total += load(op.exchange.dtype, from + (first + i) * size);
      store(op.exchange.dtype, total, to + i * size);
    }
  }

  static void make(const Operation& op) {
    const Exchange& e = op.exchange;
    const std::int64_t bytes = e.count * byte_size(e.dtype);
    for (std::size_t m = 0; m < op.to.size(); ++m) {
      const auto number = static_cast<std::int64_t>(m);
      if (e.pattern == Pattern::all_reduce) sum(op, 0, op.to[m]);
      if (e.pattern == Pattern::reduce_scatter) sum(op, number * e.count, op.to[m]);
      if (e.pattern != Pattern::all_gather && e.pattern != Pattern::all_to_all) continue;
      for (std::size_t other = 0; other < op.from.size(); ++other) {
        const std::byte* from =
            op.from[other] + (e.pattern == Pattern::all_to_all ? number * bytes : 0);
        std::memcpy(op.to[m] + static_cast<std::int64_t>(other) * bytes, from,
                    static_cast<std::size_t>(bytes));
      }
    }
  }

  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Operation> operations_;
  std::vector<std::string> texts_;
  std::string error_;
  int met_ = 0;
  std::int64_t rounds_ = 0;
  std::atomic<std::int64_t> exchanges_ = 0;
};

class ThreadJob final : public Job {
 public:
  ThreadJob(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int count() const override { return world_.count(); }
  std::string name(int rank) const override { return format("rank {} (thread)", rank); }
  std::vector<std::string> exchange(std::string_view mine, const char*) override {
    return world_.exchange(rank_, mine);
  }
  std::int64_t largest(std::int64_t mine, const char* what) override {
    std::int64_t most = mine;
    for (const std::string& text : exchange(std::to_string(mine), what))
      most = std::max<std::int64_t>(most, std::stoll(text));
    return most;
  }

  int group(std::span<const int> ranks) override {
    const std::vector<int> members(ranks.begin(), ranks.end());
    groups_.push_back({members, made_[members]++, 0, 0});
    while (members.at(groups_.back().member) != rank_) ++groups_.back().member;
    return static_cast<int>(groups_.size()) - 1;
  }
  int start(const Exchange& e, const std::byte* from, std::byte* to) override {
    Group& g = groups_.at(static_cast<std::size_t>(e.group));
    started_.push_back({g.members, {g.number, g.operations++}});
    world_.arrive(started_.back(), e, g.member, from, to);
    return static_cast<int>(started_.size()) - 1;
  }
  void wait(int number, const Exchange&) override {
    world_.leave(started_.at(static_cast<std::size_t>(number)));
  }
  void progress() noexcept override {}
  int neighbours() const override { return world_.count(); }

 private:
  struct Group {
    std::vector<int> members;
    int number = 0;
    std::int64_t operations = 0;
    std::size_t member = 0;
  };

  ThreadWorld& world_;
  const int rank_;
  std::vector<Group> groups_;
  std::map<std::vector<int>, int> made_;
  std::vector<ThreadWorld::Key> started_;
};

// Runs `process` once for each process of a job, side by side, and rethrows what the first one of
// them threw.
inline void run_processes(ThreadWorld& world, const std::function<void(Job&)>& process) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world.count()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world.count(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadJob job(world, rank);
      try {
        process(job);
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        world.give_up(format("{}: {}", job.name(rank), e.what()));
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}
inline void run_processes(int count, const std::function<void(Job&)>& process) {
  ThreadWorld world(count);
  run_processes(world, process);
}

}  // namespace dew::comm
