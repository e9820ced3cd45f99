#include "dew/base/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace dew {
namespace {

// "max" and files that are not there are no limit.
double limit_in(const char* file, double otherwise) {
  double bytes = 0;
  std::ifstream text(file);
  return text >> bytes && bytes > 0 ? std::min(bytes, otherwise) : otherwise;
}

}  // namespace

double memory_bytes() {
  const double all =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double version2 = limit_in("/sys/fs/cgroup/memory.max", all);
  return limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", version2);
}

}  // namespace dew
