// Small things that every user of MPI here needs. Only dew/runtime/comm/mpi*.cc include this.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

namespace dew::comm {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

// Throws ErrorCode::process with MPI's words if a call did not succeed.
void check_mpi(int status, const char* what);

// What waits rests: for a moment awake where cores are not shared, then ever longer asleep, so that
// whoever is waited for has the cores.
class Rest {
 public:
  // `sharing` processes on `cores` cores.
  Rest(int sharing, int cores);
  void take();

 private:
  int spins_;
  std::chrono::microseconds sleep_{5}, longest_;
};

// How long this process has waited, as far as it can tell: a time in which it was itself stopped,
// or had no core, counts for a moment, since those that it waits for may have been stopped, too. To
// be asked often.
class Waited {
 public:
  Clock::duration so_far();

 private:
  Clock::time_point asked_ = Clock::now();
  Clock::duration sum_{};
};

// Calls `too_late` from a thread of its own unless it is gone in time: for calls into MPI that have
// no end if another process does not take part.
class Watchdog {
 public:
  Watchdog(Clock::duration time, std::function<void()> too_late);
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace dew::comm
