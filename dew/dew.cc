#include "dew/dew.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "dew/base/format.h"
#include "dew/runtime/comm/this_process.h"
#include "dew/runtime/cpu/cpu.h"

namespace dew {
namespace {

void print_error(const Error& error) {
  std::string text = format("dew: error: {}\n", error.what());
  if (!error.hint().empty()) text += format("hint: {}\n", error.hint());
  std::fputs(text.c_str(), stderr);
}

// What an exception that nobody caught means for a job.
[[noreturn]] void end_job() {
  Error error(ErrorCode::internal, "the program was terminated");
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorCode::internal, e.what());
  } catch (...) {
    error = Error(ErrorCode::internal, "an exception of unknown type");
  }
  std::_Exit(comm::joined_job()->end_with(error));
}

}  // namespace

Processes& prepare_process(const ProcessOptions& options) {
  comm::MpiJob* job = comm::join_job({.start_timeout = options.start_timeout,
                                      .step_timeout = options.step_timeout,
                                      .stop_signal = {},
                                      .report = print_error});
  if (job == nullptr) return one_process();
  std::set_terminate(end_job);
  return *job;
}

std::unique_ptr<Backend> cpu_devices(std::int64_t devices, int workers) {
  return cpu_backend(workers, devices, comm::joined_job());
}

std::string to_string(const Backend& devices) {
  std::string kind = devices.name();
  kind.front() = static_cast<char>(std::toupper(kind.front()));
  std::vector<std::string> each;
  for (std::int64_t d = 0; d < devices.devices(); ++d)
    each.push_back(format("{}Device(id={})", kind, d));
  return format("[{}]", fmt::join(each, ", "));
}

}  // namespace dew
