// Was this process started by something that starts several?
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dew::comm {

// What a launcher says in the environment.
struct Launcher {
  std::string name;              // "mpirun", "srun", "a launcher that speaks PMIx"
  std::optional<int> processes;  // how many it says it has started
};

// None: this process is alone, and MPI need not be initialised, which takes a quarter of a second.
// `variable` is std::getenv, or what a test puts in its place.
std::optional<Launcher> find_launcher(const std::function<const char*(const char*)>& variable);

}  // namespace dew::comm
