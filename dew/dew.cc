#include "dew/dew.h"

#include <cctype>
#include <vector>

#include "dew/base/format.h"
#include "dew/runtime/cpu/cpu.h"

namespace dew {

std::unique_ptr<Backend> cpu_devices(std::int64_t devices, int workers) {
  return cpu_backend(workers, devices);
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
