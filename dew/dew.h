// Everything a user's program needs: programs and ops, models, data, meshes, training, generation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dew/autodiff/grad.h"
#include "dew/base/error.h"
#include "dew/compile.h"
#include "dew/data/loader.h"
#include "dew/data/tokenize.h"
#include "dew/data/windows.h"
#include "dew/generate/generate.h"
#include "dew/nn/transformer.h"
#include "dew/ops/ops.h"
#include "dew/sharding/cluster.h"
#include "dew/sharding/describe.h"
#include "dew/sharding/layout.h"
#include "dew/train/trainer.h"

namespace dew {

// How long the processes of a job wait for each other, in seconds: at the start and in a step.
struct ProcessOptions {
  double start_timeout = 300, step_timeout = 60;
};

// To be called first in a program that mpirun or srun may start several times: joins its processes,
// over which the devices are then spread. Alone it does nothing. An exception that leaves main()
// ends the whole job, with one line that names the process and exit status 7. Throws
// ErrorCode::process if the others do not come.
Processes& prepare_process(const ProcessOptions& options = {});

// The cores of this process, or of all processes of the job, as so many simulated devices.
// `workers` threads run every step together; 0: one for each core that the process may use. Results
// do not depend on their number. Throws ErrorCode::usage if there would be no device,
// ErrorCode::layout_refused if the processes do not divide them.
std::unique_ptr<Backend> cpu_devices(std::int64_t devices = 1, int workers = 0);

// "[CpuDevice(id=0), CpuDevice(id=1)]"
std::string to_string(const Backend& devices);

}  // namespace dew
