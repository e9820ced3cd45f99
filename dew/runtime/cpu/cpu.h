// The CPU backend: this process's cores as one device, or as several simulated ones.
#pragma once

#include <memory>

#include "dew/runtime/backend.h"

namespace dew {

// `workers` threads run every plan together, all devices in lockstep; 0: one for each core that
// this process may use. Results do not depend on it.
std::unique_ptr<Backend> cpu_backend(int workers = 0, std::int64_t devices = 1);

}  // namespace dew
