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

// This process's cores as so many simulated devices. `workers` threads run every step together; 0:
// one for each core that the process may use. Results do not depend on their number. Throws
// ErrorCode::usage if there would be no device.
std::unique_ptr<Backend> cpu_devices(std::int64_t devices = 1, int workers = 0);

// "[CpuDevice(id=0), CpuDevice(id=1)]"
std::string to_string(const Backend& devices);

}  // namespace dew
