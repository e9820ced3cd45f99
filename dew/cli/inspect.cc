// What is in a checkpoint, and what the compiler makes of a config.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/cli/cli.h"
#include "dew/cli/devices.h"
#include "dew/cli/inspect_text.h"
#include "dew/cli/model.h"
#include "dew/dew.h"
#include "dew/partition/partition.h"
#include "dew/train/registers.h"
#include "dew/train/step.h"

namespace dew::cli {
namespace {

struct InspectArguments {
  std::string model, show;
  DeviceArguments devices;
  Arguments overrides;
  bool digest = false, json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew inspect runs/mine
lists parameters and state; like layers are one line, with --digest or --verbose each has its own.
  dew inspect examples/demo.toml model.num_layers=2 --show plan
prints what the compiler makes of a config, without training: the programs after each pass, or the
plans with their memory; on several devices also where each value lives (sharding) and the programs
of one of them (partition).)";

bool parse_inspect(const Arguments& arguments, InspectArguments& a) {
  CLI::App app("What is in a model, a checkpoint or a compiled config.", "dew inspect");
  app.footer(kExample);
  app.add_option("MODEL", a.model, std::string(kModelHelp) + "; with --show a config")->required();
  app.add_option("KEY=VALUE", a.overrides, "section.key=value, on top of the config");
  app.add_option("--show", a.show, "of a config: program, sharding, partition or plan")
      ->type_name("STAGE");
  app.add_flag("--digest", a.digest,
               "with the XXH3-64 of each array; equal states have equal ones");
  add_device_options(app, a.devices);
  app.add_flag("--json", a.json, "print one JSON document");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

void check_arguments(const InspectArguments& a) {
  constexpr std::array kStages = {"program", "sharding", "partition", "plan"};
  if (!a.show.empty() && std::ranges::find(kStages, a.show) == kStages.end()) {
    fail(ErrorCode::usage,
         format("--show = '{}', but it must be one of {}", a.show, fmt::join(kStages, ", ")));
  }
  if (!a.show.empty() && (a.devices.devices != "cpu" || !a.devices.mesh.empty())) {
    fail(ErrorCode::usage, "--mesh and --devices are for a model; a config says its own",
         "devices.spec=cpu:4 mesh.fsdp=2");
  }
  if (!a.show.empty() && a.digest) {
    fail(ErrorCode::usage, "--digest is for a model and --show for a config: keep one");
  }
  if (!a.show.empty() && file_kind(a.model, ErrorCode::usage) == FileKind::directory) {
    fail(ErrorCode::usage,
         format("'{}' is a directory: --show {} is of a config", one_line(a.model), a.show),
         "the config of a run is config.toml in its directory");
  }
  if (!a.show.empty()) return;
  if (!a.overrides.empty()) {
    fail(ErrorCode::usage, format("'{}' is for a config, which --show takes", a.overrides[0]));
  }
  if (file_kind(a.model, ErrorCode::usage) == FileKind::regular) {
    fail(ErrorCode::usage, format("'{}' is a file: of a config one stage is shown", a.model),
         "--show program, sharding, partition or plan");
  }
}

// ---- a model

std::vector<ArrayLine> lines_of(const CheckpointReader& reader) {
  std::vector<ArrayLine> lines;
  for (const TensorRecord& t : reader.tensors()) {
    lines.push_back({.name = t.name,
                     .shape = t.shape,
                     .dtype = std::string(name(t.dtype)),
                     .axes = t.axes,
                     .bytes = element_count(t.shape) * byte_size(t.dtype)});
  }
  return lines;
}

// Its parameters as ours, which is what a run would begin with.
std::vector<ArrayLine> lines_of(const hf::Model& model) {
  std::vector<ArrayLine> lines;
  const models::CausalTransformer ours(model.config());
  for (const ParamSpec& param : ours.params()) {
    AxisNames axes = param.axes;
    if (!param.stack.empty()) axes.erase(axes.begin());
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
      lines.push_back({.name = registers::parameter(param.layer_name(slot)),
                       .shape = param.layer_shape(),
                       .dtype = std::string(name(DType::f32)),
                       .axes = axes,
                       .bytes = param.layer_elements() * byte_size(DType::f32)});
    }
  }
  return lines;
}

// Where each array lives on a mesh: state follows its parameter.
void place_lines(const Model& model, const Arrangement& arrangement,
                 std::vector<ArrayLine>& lines) {
  const models::CausalTransformer ours(model.config());
  std::map<std::string, Spec> specs;  // by the layer's outside name
  for (const ParamSpec& param : ours.params()) {
    Spec spec = state_spec(arrangement, param);
    if (!param.stack.empty()) spec.dims.erase(spec.dims.begin());
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) specs[param.layer_name(slot)] = spec;
  }
  for (ArrayLine& line : lines) {
    const auto found = specs.find(line.name.substr(group_of(line.name).size()));
    line.placed = found != specs.end() ? found->second : whole_spec(line.shape.size());
    line.spec = to_user_string(arrangement.mesh, line.placed);
    line.local_shape = local_shape(arrangement.mesh, line.shape, line.placed);
    line.bytes_per_device =
        line.bytes / std::max<std::int64_t>(line.elements(), 1) * element_count(line.local_shape);
  }
}

// The array as the devices of a mesh read it: each its own box.
std::uint64_t digest_through(const CheckpointReader& reader, const Mesh& mesh,
                             const ArrayLine& line) {
  const TensorRecord& tensor = *reader.find(line.name);
  const std::int64_t size = byte_size(tensor.dtype);
  std::vector<std::byte> all(static_cast<std::size_t>(line.bytes));
  std::vector<std::byte> part(static_cast<std::size_t>(element_count(line.local_shape) * size));
  std::set<Dims> seen;
  for (std::int64_t device = 0; device < mesh.devices(); ++device) {
    Box box{Dims(line.shape.size(), 0), line.local_shape};
    for (std::size_t d = 0; d < line.shape.size(); ++d)
      box.start[d] = mesh.block(line.placed.dims[d], device) * line.local_shape[d];
    if (part.empty() || !seen.insert(box.start).second) continue;
    reader.read(tensor, box, part);
    copy_part(box, size, box, part, whole(line.shape), all);
  }
  return digest_of(all);
}

std::uint64_t digest_of_line(const Model& model, const Mesh& mesh, const ArrayLine& line) {
  if (const CheckpointReader* reader = model.checkpoint()) {
    return mesh.atoms.empty() ? reader->digest(*reader->find(line.name))
                              : digest_through(*reader, mesh, line);
  }
  std::vector<float> values(static_cast<std::size_t>(line.elements()));
  model.hugging_face()->read(line.name.substr(group_of(line.name).size()), values);
  return digest_of(std::as_bytes(std::span(values)));
}

void add_digests(const InspectArguments& a, const Model& model, const Mesh& mesh,
                 std::vector<ArrayLine>& lines) {
  Console console(stderr, stderr_options(a.verbosity));
  const std::int64_t total = totals_of(lines).bytes;
  std::int64_t done = 0;
  for (ArrayLine& line : lines) {
    if (const int signal = stop_signal()) throw Stopped{signal};
    line.digest = digest_text(digest_of_line(model, mesh, line));
    done += line.bytes;
    console.progress({.what = "digest", .unit = "B", .done = done, .total = total});
  }
  console.end_progress();
}

OrderedJson array_json(const ArrayLine& line) {
  OrderedJson json = {{"name", line.name},
                      {"shape", line.shape},
                      {"dtype", line.dtype},
                      {"axes", line.axes},
                      {"spec", line.spec},
                      {"local_shape", line.local_shape},
                      {"bytes_per_device", line.bytes_per_device}};
  if (!line.digest.empty()) json["digest"] = line.digest;
  return json;
}

std::string model_json(const std::vector<ArrayLine>& lines, std::int64_t step) {
  OrderedJson tensors = OrderedJson::array();
  for (const ArrayLine& line : lines) tensors.push_back(array_json(line));
  const ArrayTotals totals = totals_of(lines);
  const OrderedJson json = {{"parameters", totals.parameters},
                            {"bytes", totals.bytes},
                            {"step", step},
                            {"tensors", std::move(tensors)}};
  return json.dump() + "\n";
}

int inspect_model(const InspectArguments& a) {
  const Model model(a.model);
  const CheckpointReader* reader = model.checkpoint();
  watch_stop_signals();
  std::vector<ArrayLine> lines =
      reader != nullptr ? lines_of(*reader) : lines_of(*model.hugging_face());
  const Arrangement arrangement = arrangement_of(a.devices, model.run_config().layout,
                                                 models::CausalTransformer(model.config()));
  place_lines(model, arrangement, lines);
  if (a.digest) add_digests(a, model, arrangement.mesh, lines);
  if (a.json) {
    print(model_json(lines, reader != nullptr ? reader->info().clocks.step : 0));
    return 0;
  }
  const std::string head = reader != nullptr ? checkpoint_text(*reader, lines)
                                             : hugging_face_text(*model.hugging_face(), lines);
  print(head + "\n" +
        arrays_text(lines, a.digest || a.verbosity.verbose, !arrangement.mesh.atoms.empty()));
  return 0;
}

// ---- a config

// What a run of a config compiles.
struct Compilation {
  Module module;
  Placement placement;
  // Filled by the partition; has an address of its own.
  std::unique_ptr<std::vector<DroppedPin>> dropped = std::make_unique<std::vector<DroppedPin>>();
};

Compilation compilation_of(const TrainConfig& config) {
  const LMObjective objective(models::CausalTransformer(config.model),
                              {.seq_len = config.data.seq_len, .z_loss = config.objective.z_loss});
  Arrangement arrangement =
      arrange(config.mesh, *parse_devices(config.devices.spec), config.layout, objective.model());
  arrangement.accumulate_full = config.data.accumulate_full;
  const DispatchPlan plan({.global_batch = config.data.global_batch,
                           .seq_len = config.data.seq_len,
                           .batch_shards = arrangement.batch_shards(),
                           .accumulate = config.data.accumulate,
                           .micro_batch = config.data.micro_batch});
  Compilation c;
  c.module = training_module(objective, config.optimizer, step_shape(plan),
                             *parse_dtype(config.precision.compute));
  c.placement = place_module(c.module, objective.params(), arrangement, c.dropped.get());
  return c;
}

// Stages as text, or as a document.
class Stages {
 public:
  explicit Stages(bool json) : json_(json) {}

  void add(const std::string& name, const std::string& text) {
    if (json_) stages_.push_back({{"name", name}, {"text", text}});
    if (!json_) text_ += format("==== {} ====\n{}\n", name, text);
  }
  void print_all() const { print(json_ ? OrderedJson{{"stages", stages_}}.dump() + "\n" : text_); }

 private:
  bool json_;
  OrderedJson stages_ = OrderedJson::array();
  std::string text_;
};

void show_programs(const Compilation& c, Stages& stages) {
  const Dump dump = [&](const std::string& name, const std::string& text) {
    stages.add(name, text);
  };
  for (const Program& program : c.module.programs) optimize(program, dump);
}

// Every value with its spec, or the programs of one device.
void show_partition(const std::string& what, Compilation c, Stages& stages) {
  if (c.placement.mesh.atoms.empty()) {
    fail(ErrorCode::usage, format("--show {} of one device: nothing is split", what),
         "devices.spec=cpu:4 mesh.fsdp=2 mesh.tensor=2");
  }
  for (Program& program : c.module.programs) program = optimize(program);
  const Partitioned parts = partition(c.module, c.placement);
  if (what == "sharding") {
    stages.add("specs", annotated(c.module, c.placement.mesh, parts));
    std::string dropped;
    for (const DroppedPin& pin : *c.dropped) dropped += to_string(c.placement.mesh, pin) + "\n";
    if (!dropped.empty()) stages.add("whole", dropped);
    std::string detours;
    for (const Detour& detour : parts.detours)
      detours += to_string(c.placement.mesh, detour) + "\n";
    if (!detours.empty()) stages.add("detours", detours);
    return;
  }
  for (const Program& program : parts.module.programs)
    stages.add(program.name() + ".device", dew::print(program));
}

void show_plans(const InspectArguments& a, Compilation c) {
  const std::unique_ptr<Backend> backend = cpu_devices(c.placement.mesh.devices());
  const std::unique_ptr<Executable> executable =
      compile(std::move(c.module), *backend, {.placement = std::move(c.placement)});
  const std::vector<CallMemory> calls = calls_of(*executable);
  if (!a.json) return print(plan_text(*executable, calls));
  OrderedJson list = OrderedJson::array();
  for (const CallMemory& call : calls) {
    list.push_back({{"list", call.list},
                    {"program", call.program},
                    {"input_bytes", call.inputs},
                    {"output_bytes", call.outputs},
                    {"arena_bytes", call.arena}});
  }
  const OrderedJson json = {{"peak_bytes", executable->planned_bytes()},
                            {"calls", std::move(list)},
                            {"text", executable->describe()}};
  print(json.dump() + "\n");
}

int inspect_config(const InspectArguments& a) {
  Compilation c = compilation_of(load_config(a.model, a.overrides));
  if (a.show == "plan") {
    show_plans(a, std::move(c));
    return 0;
  }
  Stages stages(a.json);
  if (a.show == "program") {
    show_programs(c, stages);
  } else {
    show_partition(a.show, std::move(c), stages);
  }
  stages.print_all();
  return 0;
}

}  // namespace

int inspect_command(const Arguments& arguments) {
  InspectArguments a;
  if (parse_inspect(arguments, a)) return 0;
  check_arguments(a);
  require_standard_output();
  return a.show.empty() ? inspect_model(a) : inspect_config(a);
}

}  // namespace dew::cli
