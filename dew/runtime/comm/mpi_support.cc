#include "dew/runtime/comm/mpi_support.h"

#include <sched.h>

#include <algorithm>
#include <array>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew::comm {

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  fail(ErrorCode::process, format("{}: {}", what, text.data()));
}

Rest::Rest(int sharing, int cores)
    : spins_(sharing <= cores ? 2000 : 0),
      longest_(50 * std::max(1, sharing / std::max(1, cores))) {}

void Rest::take() {
  if (spins_ > 0) {
    if (--spins_ % 64 == 0) ::sched_yield();
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_);
}

Clock::duration Waited::so_far() {
  constexpr Clock::duration kMoment = std::chrono::milliseconds(250);
  const Clock::time_point now = Clock::now();
  sum_ += std::min(now - asked_, kMoment);
  asked_ = now;
  return sum_;
}

Watchdog::Watchdog(Clock::duration time, std::function<void()> too_late)
    : thread_([this, time, too_late = std::move(too_late)] {
        std::unique_lock lock(mutex_);
        Waited waited;
        while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return over_; })) {
          if (waited.so_far() >= time) return too_late();
        }
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace dew::comm
