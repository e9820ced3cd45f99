#include "dew/cli/devices.h"

#include <CLI/CLI.hpp>

#include "dew/base/format.h"
#include "dew/cli/cli.h"
#include "dew/cli/job.h"

namespace dew::cli {

void add_device_options(CLI::App& app, DeviceArguments& a) {
  app.add_option("--mesh", a.mesh, "the devices as a mesh: fsdp=2,tensor=2")->type_name("MESH");
  app.add_option("--devices", a.devices, "'cpu': one with all cores; 'cpu:8': eight simulated")
      ->type_name("DEVICES");
}

Arrangement arrangement_of(const DeviceArguments& a, const Layout& layout,
                           const models::CausalTransformer& model, int processes) {
  if (!parse_devices(a.devices)) {
    fail(ErrorCode::usage,
         format("--devices = '{}', but it must be cpu, or cpu:N for N simulated devices",
                one_line(a.devices)));
  }
  const std::int64_t count = device_count({.spec = a.devices, .per_process = {}}, processes);
  return arrange(a.mesh.empty() ? MeshSpec() : parse_mesh(a.mesh), count, layout, model);
}

}  // namespace dew::cli
