#include "dew/cli/machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <random>

#include "dew/base/format.h"

namespace dew::cli {

namespace {

// Instructions that choose between implementations with other orders of summation.
constexpr const char* kInstructions[] = {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd"};

// The value of the first line "KEY : VALUE" of /proc/cpuinfo.
std::string cpu_info(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    const std::size_t end = line.find_last_not_of("\t ", colon == 0 ? 0 : colon - 1);
    if (colon != line.npos && line.substr(0, end + 1) == key) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace

std::string processor_kind() {
  utsname system{};
  ::uname(&system);
  const std::string name = cpu_info("model name");
  std::string kind = name.empty() ? system.machine : name;
  const std::string family = cpu_info("cpu family"), model = cpu_info("model");
  if (!family.empty()) kind += format(" family {} model {}", family, model);
  const std::string flags = " " + cpu_info("flags") + cpu_info("Features") + " ";
  for (const char* instruction : kInstructions) {
    if (flags.find(format(" {} ", instruction)) != flags.npos) kind += format(" {}", instruction);
  }
  return kind;
}

std::string fresh_run_id() {
  std::random_device random;
  return format("{:08x}{:08x}", random(), random());
}

}  // namespace dew::cli
