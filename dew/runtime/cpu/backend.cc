#include <sched.h>

#include <algorithm>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/runtime/cpu/cpu.h"
#include "dew/runtime/cpu/executable.h"
#include "dew/runtime/cpu/onednn.h"

namespace dew {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

class CpuBackend : public Backend {
 public:
  CpuBackend(int workers, std::int64_t devices, comm::Job* job)
      : devices_(devices),
        pool_(std::make_shared<cpu::Pool>(workers, cpu::onednn_thread_init)),
        job_(job) {}

  std::string name() const override { return "cpu"; }
  std::int64_t devices() const override { return devices_; }
  Processes& processes() override { return job_ != nullptr ? *job_ : one_process(); }

  std::unique_ptr<Executable> load(Module module, Placed placed) override {
    return std::make_unique<cpu::CpuExecutable>(std::move(module), std::move(placed), pool_, job_);
  }

 private:
  std::int64_t devices_;
  std::shared_ptr<cpu::Pool> pool_;
  comm::Job* job_;
};

}  // namespace

std::unique_ptr<Backend> cpu_backend(int workers, std::int64_t devices, comm::Job* job) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    fail(ErrorCode::usage, "this processor has no AVX2 and FMA, which dew needs");
  }
#endif
  if (devices < 1)
    fail(ErrorCode::usage, format("{} devices, but there must be at least 1", devices));
  if (workers <= 0)
    workers = std::max(1, usable_cores() / (job != nullptr ? job->neighbours() : 1));
  return std::make_unique<CpuBackend>(workers, devices, job);
}

}  // namespace dew
