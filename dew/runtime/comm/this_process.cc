#include "dew/runtime/comm/this_process.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "dew/runtime/comm/launcher.h"

namespace dew::comm {
namespace {

std::unique_ptr<MpiJob>& the_job() {
  static std::unique_ptr<MpiJob> job;
  return job;
}

}  // namespace

MpiJob* join_job(MpiOptions options) {
  std::unique_ptr<MpiJob>& job = the_job();
  if (job != nullptr) {
    job->set_options(std::move(options));
    return job.get();
  }
  const auto launcher = find_launcher([](const char* name) { return std::getenv(name); });
  if (launcher) job = join_mpi(options, launcher->processes.value_or(0));
  return job.get();
}

MpiJob* joined_job() { return the_job().get(); }

}  // namespace dew::comm
