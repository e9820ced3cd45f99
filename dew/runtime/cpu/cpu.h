// The CPU backend: this process's cores as one device, or as several simulated ones.
#pragma once

#include <memory>

#include "dew/runtime/backend.h"
#include "dew/runtime/comm/job.h"

namespace dew {

// `workers` threads run every plan together, all devices of this process in lockstep; 0: one for
// each core that this process may use, as far as it shares them with no other of the job. Results
// do not depend on it. `devices` over all processes of the job, which must outlive the backend;
// null: this process alone.
std::unique_ptr<Backend> cpu_backend(int workers = 0, std::int64_t devices = 1,
                                     comm::Job* job = nullptr);

}  // namespace dew
