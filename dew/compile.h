// The pipeline from programs to something that runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dew/partition/partition.h"
#include "dew/runtime/backend.h"

namespace dew {

struct CompileOptions {
  std::string dump = {};  // a directory for the programs after each pass and the plans; empty: none
  Placement placement = {};  // the devices, and where they hold the registers; without atoms: one
};

// Takes the programs of `module` through all passes and gives them to the backend.
std::unique_ptr<Executable> compile(Module module, Backend& backend,
                                    const CompileOptions& options = {});

// Compiles and runs one program: inputs and outputs as in interpret(). For tests and examples.
std::vector<Array> run_program(const Program& program, std::span<const Array> inputs,
                               Backend& backend);

}  // namespace dew
