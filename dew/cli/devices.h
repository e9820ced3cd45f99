// --mesh and --devices.
#pragma once

#include <string>

#include "dew/train/placement.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace dew::cli {

struct DeviceArguments {
  std::string mesh, devices = "cpu";
};
void add_device_options(CLI::App& app, DeviceArguments& arguments);

// Throws ErrorCode::usage for what is no mesh or no devices, ErrorCode::layout_refused for what
// does not go together with each other, the model or so many processes.
Arrangement arrangement_of(const DeviceArguments& arguments, const Layout& layout,
                           const models::CausalTransformer& model, int processes = 1);

}  // namespace dew::cli
