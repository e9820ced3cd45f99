// The CPU backend: this process's cores as one device.
#pragma once

#include <memory>

#include "dew/runtime/backend.h"

namespace dew {

// `workers` threads run every plan together; 0: one for each core that this process may use.
// Results do not depend on it.
std::unique_ptr<Backend> cpu_backend(int workers = 0);

}  // namespace dew
