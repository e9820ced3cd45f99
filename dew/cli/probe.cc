// One batch through a model: what another framework's numbers are compared with.
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"
#include "dew/checkpoint/safetensors.h"
#include "dew/cli/cli.h"
#include "dew/cli/devices.h"
#include "dew/cli/job.h"
#include "dew/cli/model.h"
#include "dew/cli/probe_batch.h"
#include "dew/dew.h"

namespace dew::cli {
namespace {

struct ProbeArguments {
  std::string model, batch, logits, grads;
  DeviceArguments devices;
  std::int64_t steps = 0;
  Arguments set;
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(BATCH holds integers input_ids and labels [rows, length] (-100: no label; not shifted, position t
predicts label t+1), perhaps positions and segment_ids. The loss is the mean cross entropy of the
labels that count; no dropout, no z-loss, a constant rate, moments that start from zero.

Example:
  dew probe runs/mine --batch batch.safetensors --steps 5 --set optimizer.lr=1e-3 --grads g.safetensors
prints {"loss_sum", "loss_weight", "loss", "grad_norm", "steps": [loss before each of the steps],
"grad_norms": {parameter: norm}} and writes the gradients.)";

bool parse_probe(const Arguments& arguments, ProbeArguments& a) {
  CLI::App app("Loss, gradients and optimizer steps of a model on one fixed batch, as JSON.",
               "dew probe");
  app.footer(kExample);
  app.add_option("MODEL", a.model, kModelHelp)->required();
  app.add_option("--batch", a.batch, "safetensors file")->required()->type_name("BATCH");
  add_integer(app, "--steps", a.steps, "optimizer steps, always on this batch");
  app.add_option("--set", a.set, "a key of the sections optimizer and precision")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--logits", a.logits, "write f32 logits [rows, length, vocab] there")
      ->type_name("FILE");
  app.add_option("--grads", a.grads, "write the gradient of the loss there, a tensor a parameter")
      ->type_name("FILE");
  add_device_options(app, a.devices);
  app.add_flag("--json", a.json, "what is printed is JSON with and without it");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

// Before anything is read or computed.
void check_arguments(const ProbeArguments& a) {
  if (a.steps < 0) {
    fail(ErrorCode::usage, format("--steps = {}, but it must be 0 or more", a.steps));
  }
  const std::array files = {std::pair{"--batch", a.batch}, std::pair{"--logits", a.logits},
                            std::pair{"--grads", a.grads}};
  for (std::size_t i = 1; i < files.size(); ++i) {
    const auto& [option, file] = files[i];
    if (file.empty()) continue;
    const Path path = Path(file).lexically_normal();
    for (std::size_t j = 0; j < i; ++j) {
      if (Path(files[j].second).lexically_normal() != path) continue;
      fail(ErrorCode::usage,
           format("{} and {} are the same file '{}'", files[j].first, option, file));
    }
    const Path parent = path.has_parent_path() ? path.parent_path() : Path(".");
    const FileKind kind = file_kind(path, ErrorCode::usage);  // devices must not be written over
    if ((kind != FileKind::missing && kind != FileKind::regular) ||
        file_kind(parent, ErrorCode::usage) != FileKind::directory) {
      fail(ErrorCode::usage, format("{} '{}' is no file in a directory that exists", option, file));
    }
  }
}

// The model's own, but that only the model's arithmetic shall count.
TrainConfig probe_config(TrainConfig config, const ProbeArguments& a) {
  constexpr std::array<std::string_view, 2> kSections = {"optimizer", "precision"};
  config.precision.compute = "f32";
  config.model.dropout = 0;
  set_values(config, a.set, kSections);
  return resolved(std::move(config));
}

// On a mesh every parameter is split that can be: what is probed is arithmetic, not speed.
Layout probe_layout(Layout layout) {
  layout.min_shard = 1;
  layout.tolerance = 1;
  return layout;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

void write_grads(const std::string& path, const Model& model,
                 const std::vector<Stepper::Array>& gradients,
                 const std::vector<StoredTensor>& headers) {
  replace_file(path, ErrorCode::checkpoint, [&](const Path& partial) {
    SafetensorsWriter writer(partial, ErrorCode::checkpoint, headers);
    model.visit_own(
        gradients, [&](const Model::OwnTensor& own) { writer.write(std::as_bytes(own.elements)); });
    writer.finish();
  });
}

OrderedJson number(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); }

std::unique_ptr<Stepper> make_stepper(const TrainConfig& config, const LMObjective& objective,
                                      const StepBatch& batch, const StepperOptions& options,
                                      Backend& backend) {
  try {
    return std::make_unique<Stepper>(objective, config.optimizer,
                                     StepShape{1, batch.rows, batch.width},
                                     *parse_dtype(config.precision.compute), backend, options);
  } catch (const TooLarge& e) {
    fail(ErrorCode::usage,
         format("a step of {} rows of {} tokens needs {}B, this machine has {}B", batch.rows,
                batch.width, short_number(e.kept + e.call), short_number(e.memory)),
         "fewer or shorter rows need less");
  }
}

// Adds loss and gradient at the start.
void probe_gradient(const ProbeArguments& a, const Model& model, Stepper& stepper,
                    const StepBatch& batch, OrderedJson& report) {
  const double loss = stepper.gradient(batch).loss;
  const std::vector<Stepper::Array> gradients = stepper.gradients();
  OrderedJson norms = OrderedJson::object();
  std::vector<StoredTensor> headers;
  double squares = 0;
  model.visit_own(gradients, [&](const Model::OwnTensor& own) {
    headers.push_back({.name = own.name, .type = StoredType::f32, .shape = own.shape});
    const double norm = norm_of(own.elements);
    squares += norm * norm;
    norms[own.name] = number(norm);
  });
  report["loss_sum"] = number(loss * batch.weight_sum);
  report["loss_weight"] = static_cast<std::int64_t>(batch.weight_sum);
  report["loss"] = number(loss);
  report["grad_norm"] = number(std::sqrt(squares));
  report["steps"] = OrderedJson::array();
  report["grad_norms"] = std::move(norms);
  if (!a.grads.empty()) write_grads(a.grads, model, gradients, headers);
}

void probe_steps(const ProbeArguments& a, Stepper& stepper, const StepBatch& batch, double lr,
                 OrderedJson& report) {
  Console console(stderr, stderr_options(a.verbosity));
  std::int64_t updates = 0;
  for (std::int64_t step = 0; step < a.steps; ++step) {
    if (stop_signal() != 0) throw Stopped{stop_signal()};
    const StepResult r = stepper.step(batch, {.step = step, .update = updates + 1, .lr = lr});
    updates += r.committed ? 1 : 0;
    report["steps"].push_back(number(r.loss));
    console.progress({.what = "step", .unit = "steps", .done = step + 1, .total = a.steps});
  }
  console.end_progress();
}

// In the order of the batch's rows, without pads.
void write_logits(const ProbeArguments& a, Stepper& stepper, const StepBatch& batch,
                  const DispatchPlan& plan, std::int64_t vocab_size) {
  if (a.logits.empty()) return;
  const std::vector<std::byte> logits = stepper.logits(batch);
  const StoredTensor header = {.name = "logits",
                               .type = StoredType::f32,
                               .shape = {plan.global_batch(), batch.width, vocab_size}};
  const std::size_t row_bytes = logits.size() / static_cast<std::size_t>(batch.rows);
  replace_file(a.logits, ErrorCode::checkpoint, [&](const Path& partial) {
    SafetensorsWriter writer(partial, ErrorCode::checkpoint, {header});
    for (std::int64_t row = 0; row < plan.global_batch(); ++row) {
      const auto at = static_cast<std::size_t>(physical_row(plan, row));
      writer.write(std::span(logits).subspan(at * row_bytes, row_bytes));
    }
    writer.finish();
  });
}

}  // namespace

int probe_command(const Arguments& arguments) {
  ProbeArguments a;
  if (parse_probe(arguments, a)) return 0;
  check_arguments(a);
  require_standard_output();
  const Model model(a.model);
  const TrainConfig config = probe_config(model.run_config(), a);
  const StepBatch rows = read_probe_batch(a.batch, config.model);
  const LMObjective objective(models::CausalTransformer(config.model), {.seq_len = rows.width});
  const Arrangement arrangement =
      arrangement_of(a.devices, probe_layout(config.layout), objective.model());
  check_simulated(arrangement.mesh.devices());
  const DispatchPlan plan({.global_batch = rows.rows,
                           .seq_len = rows.width,
                           .batch_shards = arrangement.batch_shards()});
  const StepBatch batch = spread(rows, plan);
  watch_stop_signals();
  const std::unique_ptr<Backend> backend = cpu_devices(arrangement.mesh.devices());
  const std::unique_ptr<Stepper> stepper =
      make_stepper(config, objective, batch, {.arrangement = arrangement, .probe = true}, *backend);
  model.load(*stepper);
  OrderedJson report;
  write_logits(a, *stepper, batch, plan, config.model.vocab_size);
  probe_gradient(a, model, *stepper, batch, report);
  probe_steps(a, *stepper, batch, config.optimizer.lr, report);
  print(report.dump() + "\n");
  return 0;
}

}  // namespace dew::cli
