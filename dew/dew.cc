#include "dew/dew.h"

#include "dew/runtime/cpu/cpu.h"

namespace dew {

std::unique_ptr<Backend> cpu_devices(std::int64_t devices, int workers) {
  return cpu_backend(workers, devices);
}

}  // namespace dew
