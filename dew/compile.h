// The pipeline from programs to something that runs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/partition/partition.h"
#include "dew/runtime/backend.h"

namespace dew {

// Is given the text of each stage: the programs as they are written and after each pass
// ("micro_first.0", "micro_first.1_without_duplicates", ...), on several devices "specs" and the
// programs of one ("micro_first.device"), then "plans". Empty: nobody asks.
using Dump = std::function<void(const std::string& name, const std::string& text)>;
// Writes each to a file NAME.txt in the directory, which must be there; none for an empty path.
Dump dump_into(const std::string& directory);

struct CompileOptions {
  Dump dump = {};
  Placement placement = {};  // the devices, and where they hold the registers; without atoms: one
  bool check_replicas = false;  // see Placed
  // Is told, a line each, of arrays that for a while take more of a device than anybody asked for.
  std::function<void(const std::string& line)> remark = {};
};

// One program through all passes, as a backend is given it.
Program optimize(const Program& program, const Dump& dump = {});

// What a run holds on one device of its mesh, as planned: gathered weights included, all copies of
// what several devices hold counted on each. Call lists share one arena.
struct DeviceMemory {
  std::int64_t registers = 0, arena = 0;  // bytes
};
DeviceMemory device_memory(const Module& device_module);

// Takes the programs of `module` through all passes and gives them to the backend.
std::unique_ptr<Executable> compile(Module module, Backend& backend,
                                    const CompileOptions& options = {});

// Compiles and runs one program: inputs and outputs as in interpret(). For tests and examples.
std::vector<Array> run_program(const Program& program, std::span<const Array> inputs,
                               Backend& backend);

}  // namespace dew
