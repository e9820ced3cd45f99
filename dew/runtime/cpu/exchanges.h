// The exchanges between processes that plans ask for.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "dew/plan/plan.h"
#include "dew/runtime/comm/job.h"

namespace dew::cpu {

// Used by worker 0 alone, but for failed(). After a failure nothing is sent any more, so that the
// workers come to the end of their walk, where the reason is thrown.
class Exchanges {
 public:
  Exchanges(comm::Job& job, const MeshPart& part) : job_(job), part_(part) {}

  // Makes ready what a step starts or waits for; steps of the same program and number are one
  // exchange. In the same order in all processes. Returns its number.
  int add(const Step& step, const std::string& program);

  void start(int number, const std::byte* from, std::byte* to) noexcept;
  void wait(int number) noexcept;
  // Between pieces of other work.
  void progress() noexcept {
    if (under_way_ > 0) job_.progress();
  }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Throws what went wrong, if anything did.
  void expect_none_failed();

 private:
  struct Prepared {
    comm::Exchange exchange;
    int under_way = -1;  // the job's number while it is
  };

  template <class F>
  void attempt(F f) noexcept;
  int group_of(const Dims& atoms);

  comm::Job& job_;
  const MeshPart& part_;
  std::vector<Prepared> all_;
  std::map<std::pair<std::string, int>, int> numbers_;  // by program and the plan's number
  std::map<Dims, int> groups_;                          // by atoms
  int under_way_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
};

}  // namespace dew::cpu
