// A job whose processes MPI connects.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dew/base/error.h"
#include "dew/runtime/comm/job.h"

namespace dew::comm {

struct MpiOptions {
  // How long one process waits for another, in seconds: until steps_begin(), and from then on.
  double start_timeout = 300, step_timeout = 60;
  // The number of a signal that asked this process to stop, or 0.
  std::function<int()> stop_signal = {};
  // Tells whoever started the job why it ends. May be called from another thread.
  std::function<void(const Error& error)> report = {};
};

class MpiJob : public Job {
 public:
  virtual void set_options(MpiOptions options) = 0;

  // The end of a job in which this process met an error. Tells the others, hears what they have to
  // tell, and returns the exit status. Where all met the same error, process 0 reports it and the
  // status is the error's; otherwise one process reports who failed and why: the one that did, or
  // if that cannot speak the lowest of the others. Then this ends the job (MPI_Abort, status 7) and
  // does not return.
  virtual int end_with(const Error& error) = 0;

  // The end of a job in which all went well: waits for the others.
  virtual void end() = 0;
};

// Initialises MPI: once in a process, and in all that the launcher started. `expected`: how many
// these are, where it is known; another number is ErrorCode::process.
std::unique_ptr<MpiJob> join_mpi(const MpiOptions& options, int expected = 0);

}  // namespace dew::comm
