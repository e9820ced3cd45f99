// What is in a checkpoint, and what the compiler makes of a config.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/cli/cli.h"
#include "dew/cli/inspect_text.h"
#include "dew/cli/model.h"
#include "dew/dew.h"
#include "dew/train/registers.h"
#include "dew/train/step.h"

namespace dew::cli {
namespace {

struct InspectArguments {
  std::string model, show, devices = "cpu";
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
plans with their memory.)";

bool parse_inspect(const Arguments& arguments, InspectArguments& a) {
  CLI::App app("What is in a model, a checkpoint or a compiled config.", "dew inspect");
  app.footer(kExample);
  app.add_option("MODEL", a.model, std::string(kModelHelp) + "; with --show a config")->required();
  app.add_option("KEY=VALUE", a.overrides, "section.key=value, on top of the config");
  app.add_option("--show", a.show, "program or plan, of a config")->type_name("STAGE");
  app.add_flag("--digest", a.digest,
               "with the XXH3-64 of each array; equal states have equal ones");
  app.add_option("--devices", a.devices, "'cpu': one device with all cores")->type_name("D");
  app.add_flag("--json", a.json, "print one JSON document");
  add_unbuilt_option(app, "--mesh");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

void check_arguments(const InspectArguments& a) {
  if (a.devices != "cpu") refuse_unbuilt("dew inspect --devices " + a.devices);
  if (a.show == "sharding" || a.show == "partition") refuse_unbuilt("dew inspect --show " + a.show);
  if (!a.show.empty() && a.show != "program" && a.show != "plan") {
    fail(ErrorCode::usage, format("--show = '{}', but it must be program or plan", a.show));
  }
  if (!a.show.empty() && a.digest) {
    fail(ErrorCode::usage, "--digest is for a model and --show for a config: keep one");
  }
  if (!a.show.empty()) return;
  if (!a.overrides.empty()) {
    fail(ErrorCode::usage, format("'{}' is for a config, which --show takes", a.overrides[0]));
  }
  if (file_kind(a.model, ErrorCode::usage) == FileKind::regular) {
    fail(ErrorCode::usage, format("'{}' is a file: of a config one stage is shown", a.model),
         "--show program or --show plan");
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

std::uint64_t digest_of_line(const Model& model, const ArrayLine& line) {
  if (const CheckpointReader* reader = model.checkpoint())
    return reader->digest(*reader->find(line.name));
  std::vector<float> values(static_cast<std::size_t>(line.elements()));
  model.hugging_face()->read(line.name.substr(std::string_view(registers::kParameter).size()),
                             values);
  return digest_of(std::as_bytes(std::span(values)));
}

void add_digests(const InspectArguments& a, const Model& model, std::vector<ArrayLine>& lines) {
  Console console(stderr, stderr_options(a.verbosity));
  const std::int64_t total = totals_of(lines).bytes;
  std::int64_t done = 0;
  for (ArrayLine& line : lines) {
    if (const int signal = stop_signal()) throw Stopped{signal};
    line.digest = digest_text(digest_of_line(model, line));
    done += line.bytes;
    console.progress({.what = "digest", .unit = "B", .done = done, .total = total});
  }
  console.end_progress();
}

// One device holds all of every array.
OrderedJson array_json(const ArrayLine& line) {
  OrderedJson json = {{"name", line.name},
                      {"shape", line.shape},
                      {"dtype", line.dtype},
                      {"axes", line.axes},
                      {"spec", "P()"},
                      {"local_shape", line.shape},
                      {"bytes_per_device", line.bytes}};
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
  if (a.digest) add_digests(a, model, lines);
  if (a.json) {
    print(model_json(lines, reader != nullptr ? reader->info().clocks.step : 0));
    return 0;
  }
  const std::string head = reader != nullptr ? checkpoint_text(*reader, lines)
                                             : hugging_face_text(*model.hugging_face(), lines);
  print(head + "\n" + arrays_text(lines, a.digest || a.verbosity.verbose));
  return 0;
}

// ---- a config

Module module_of(const TrainConfig& config) {
  const LMObjective objective(models::CausalTransformer(config.model),
                              {.seq_len = config.data.seq_len, .z_loss = config.objective.z_loss});
  const DispatchPlan plan({.global_batch = config.data.global_batch,
                           .seq_len = config.data.seq_len,
                           .accumulate = config.data.accumulate,
                           .micro_batch = config.data.micro_batch});
  return training_module(objective, config.optimizer, step_shape(plan),
                         *parse_dtype(config.precision.compute));
}

void show_programs(const InspectArguments& a, const Module& module) {
  OrderedJson stages = OrderedJson::array();
  std::string text;
  const Dump dump = [&](const std::string& name, const std::string& program) {
    if (a.json) stages.push_back({{"name", name}, {"text", program}});
    if (!a.json) text += format("==== {} ====\n{}\n", name, program);
  };
  for (const Program& program : module.programs) optimize(program, dump);
  print(a.json ? OrderedJson{{"stages", std::move(stages)}}.dump() + "\n" : text);
}

void show_plans(const InspectArguments& a, Module module) {
  const std::unique_ptr<Backend> backend = cpu_devices();
  const std::unique_ptr<Executable> executable = compile(std::move(module), *backend);
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
  Module module = module_of(load_config(a.model, a.overrides));
  if (a.show == "program") {
    show_programs(a, module);
  } else {
    show_plans(a, std::move(module));
  }
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
