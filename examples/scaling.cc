// One training run on many devices: the mesh and the layout are arguments of the Trainer, and
// nothing else changes. A language model learns on eight devices in two layouts:
//
//   data parallel, mesh {.fsdp = 1}: each holds the whole model and its own rows of the batch;
//   fully sharded, mesh {.fsdp = 8}: each holds one eighth of every large weight as well, and
//   fetches the other pieces when it needs them.
//
// Then a checkpoint of one layout is restored into the other. The devices are simulated: this
// process runs the program that each of eight would, with what they exchange. Run it from the root
// of the repository, or with `make scaling`.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>

#include "dew/dew.h"

namespace {

constexpr std::int64_t kSteps = 20;
constexpr std::int64_t kBatchSize = 16;  // rows; any number works on any mesh
constexpr std::int64_t kSequenceLength = 32;
constexpr std::int64_t kFeatures = 64;
constexpr const char* kData = "tests/data/notebook-tokens";  // short sentences, byte by byte
const dew::Path kRuns = "runs/07-scaling";                   // begins empty

// What a run tells goes where the program wants it.
class Printer : public dew::TrainObserver {
  void on_message(const std::string& line) override { std::cout << line << "\n"; }
  void on_warning(const std::string& line) override { std::cout << "warning: " << line << "\n"; }
  void on_log(const dew::LogLine& line) override {
    std::cout << "step " << line.step << ": loss " << std::fixed << std::setprecision(4)
              << line.loss << "\n";
  }
};

// ---- where a weight lives

// The layout maps the names of a weight's dimensions to axes of the mesh. Weights of fewer than
// min_shard elements stay whole, because to split them costs more communication than it saves
// memory. The default, 65536, would leave every weight of this small model whole.
const dew::Layout kLayout = {.min_shard = 1};

// The table of token vectors: a device holds all of its 256 rows on one mesh, 32 on the other.
void show_table(const std::string& name, const dew::Mesh& mesh) {
  const dew::Dims shape = {256, kFeatures};
  const dew::Spec spec = dew::parameter_spec(mesh, kLayout, shape, {"vocab", "embed"});
  const bool color = isatty(STDOUT_FILENO) != 0;
  std::cout << name << " " << to_user_string(mesh, spec) << "\n";
  std::cout << dew::draw_blocks(mesh, spec, shape, color) << "\n";
}

// The same of a state on its devices.
void describe(const dew::TrainState& state) {
  std::cout << state.params.at("embed_tokens/embedding").describe();
}

// Bit for bit, whatever device holds what.
bool same_values(const dew::TrainState& a, const dew::TrainState& b) {
  const auto values = &dew::Stepper::Array::values;
  return std::ranges::equal(a.params, b.params, {}, values, values);
}

// ---- several hosts

// Each process has devices of its own and reads the rows that these hold, found by their number in
// the global batch. Which rows these would be can be asked of any cluster; nothing of it ran here.
void show_hosts(const dew::Mesh& mesh, std::int64_t devices_each) {
  const dew::ClusterPlan hosts(
      dew::device_grid(mesh, dew::consecutive_processes(mesh.devices(), devices_each)),
      {.global_batch = kBatchSize, .seq_len = kSequenceLength});
  std::cout << hosts.summary() << "\n";
  for (std::int64_t process = 0; process < hosts.processes(); ++process) {
    for (const dew::RowRange& rows : hosts.rows(process))
      std::cout << "  process " << process << ": rows " << rows.begin << " to " << rows.end - 1
                << "\n";
  }
}

}  // namespace

int main() {
  std::filesystem::remove_all(kRuns);
  const auto devices = dew::cpu_devices(8);
  std::cout << to_string(*devices) << "\n";

  // Both meshes split a batch over all eight devices: rows follow the axes data and fsdp together.
  const dew::Mesh mesh_dp = dew::build_mesh({.fsdp = 1}, devices->devices());
  const dew::Mesh mesh_fsdp = dew::build_mesh({.fsdp = 8}, devices->devices());
  std::cout << "data parallel: " << to_string(mesh_dp) << "\n";
  std::cout << "fully sharded: " << to_string(mesh_fsdp) << "\n";
  show_table("data parallel", mesh_dp);
  show_table("fully sharded", mesh_fsdp);

  const dew::WindowData data =
      dew::TokenWindows{.path = kData, .seq_len = kSequenceLength, .val_batches = 2}.load(
          {.batch = kBatchSize});
  std::cout << "training windows: " << data.records() << "\n";
  const auto model = dew::models::causal_transformer({.vocab_size = 256,
                                                      .emb_features = kFeatures,
                                                      .num_layers = 2,
                                                      .num_heads = 4,
                                                      .max_seq_len = kSequenceLength});
  const dew::LMObjective objective(model, {.seq_len = kSequenceLength});

  // Trainers differ in the mesh and in the directory of their checkpoints. Each finds out where
  // every array of the state lives, writes the program of one device with what it sends and
  // receives, and makes the state in its place: a model too large for a device never has to fit.
  Printer printer;
  const auto trainer = [&](const dew::MeshSpec& mesh, const char* checkpoints) {
    return dew::Trainer(objective, dew::adamw(1e-3),
                        {.seed = 0,
                         .devices = devices.get(),
                         .mesh = mesh,
                         .layout = kLayout,
                         .checkpoints = kRuns / checkpoints,
                         .observer = &printer});
  };

  // Both begin from the same seed and read the same batches, so their losses are the same.
  dew::Trainer replicated = trainer({.fsdp = 1}, "replicated");
  const auto replicated_state = replicated.fit(data, {.steps = kSteps, .log_every = 10});
  describe(replicated_state);
  dew::Trainer sharded = trainer({.fsdp = 8}, "sharded");
  describe(sharded.fit(data, {.steps = kSteps, .log_every = 10}));

  // A checkpoint moves between layouts: place() reads each array and lays it out as this trainer's
  // mesh asks, and training goes on from there.
  dew::Trainer crossed = trainer({.fsdp = 8}, "replicated");
  const auto restored = crossed.place(data);
  describe(restored);
  const bool same = same_values(restored, replicated_state);
  std::cout << "restored weights equal the data-parallel run's: " << (same ? "True" : "False")
            << "\n";
  const auto continued = crossed.fit(data, {.steps = kSteps + 10, .log_every = 10});
  std::cout << "continued to step " << continued.clocks.step << "\n";

  show_hosts(mesh_fsdp, 2);
  return same ? 0 : 1;
}
