#include "dew/runtime/comm/launcher.h"

#include <charconv>
#include <cstring>

namespace dew::comm {
namespace {

std::optional<int> number(const char* text) {
  int value = 0;
  if (text == nullptr) return std::nullopt;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 1) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Launcher> find_launcher(const std::function<const char*(const char*)>& variable) {
  if (variable("OMPI_COMM_WORLD_SIZE") != nullptr)
    return Launcher{"mpirun", number(variable("OMPI_COMM_WORLD_SIZE"))};
  // A batch script has SLURM's variables too; only in a step that srun made do they count tasks.
  const std::optional<int> tasks = number(variable("SLURM_STEP_NUM_TASKS"));
  if (variable("SLURM_PROCID") != nullptr && tasks && *tasks > 1) return Launcher{"srun", tasks};
  if (variable("PMI_RANK") != nullptr)
    return Launcher{"a launcher that speaks PMI", number(variable("PMI_SIZE"))};
  if (variable("PMIX_RANK") != nullptr)
    return Launcher{"a launcher that speaks PMIx", std::nullopt};
  return std::nullopt;
}

}  // namespace dew::comm
