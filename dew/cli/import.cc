// Hugging Face models in: a directory that every command takes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/partial_directory.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/writer.h"
#include "dew/cli/cli.h"
#include "dew/cli/machine.h"
#include "dew/cli/model.h"
#include "dew/cli/model_files.h"
#include "dew/hf/model.h"
#include "dew/nn/transformer.h"
#include "dew/train/config.h"
#include "dew/train/registers.h"

namespace dew::cli {
namespace {

struct ImportArguments {
  std::string model, out;
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew import Qwen3-0.6B --out models/qwen3
  dew generate models/qwen3 --prompt "Once"
docs/hugging_face.md lists the families.)";

bool parse_import(const Arguments& arguments, ImportArguments& a) {
  CLI::App app("A Hugging Face model directory to one of ours: weights, config and tokenizer.",
               "dew import");
  app.footer(kExample);
  app.add_option("HF_DIR", a.model, "directory with config.json and *.safetensors")->required();
  app.add_option("--out", a.out, "directory to write; it must not exist or be empty")
      ->required()
      ->type_name("DIR");
  app.add_flag("--json", a.json, "print the result as one JSON document");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

CheckpointInfo about(const hf::Model& model) {
  CheckpointInfo info;
  info.run = fresh_run_id();
  info.model = model_toml(model.config());
  info.program = format("dew {}", kVersion);
  info.tokenizer = tokenizer_of(model);
  return info;
}

// Every parameter a layer at a time: no more than one tensor is in memory.
void write_parameters(const hf::Model& model, CheckpointWriter& writer, Console& console) {
  const models::CausalTransformer ours(model.config());
  const std::int64_t total = 4 * parameter_count(ours.params());
  std::int64_t done = 0;
  const auto name_of = [](const ParamSpec& param, std::int64_t slot) {
    return registers::parameter(param.layer_name(slot));
  };
  for (const ParamSpec& param : ours.params()) {
    AxisNames axes = param.axes;
    if (!param.stack.empty()) axes.erase(axes.begin());
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
      writer.declare({.name = name_of(param, slot),
                      .dtype = DType::f32,
                      .shape = param.layer_shape(),
                      .axes = axes,
                      .pieces = {}});
    }
  }
  std::vector<float> values;
  for (const ParamSpec& param : ours.params()) {
    values.resize(static_cast<std::size_t>(param.layer_elements()));
    for (std::int64_t slot = 0; slot < param.layers(); ++slot) {
      if (const int signal = stop_signal()) throw Stopped{signal};
      model.read(param.layer_name(slot), values);
      writer.add(name_of(param, slot), std::as_bytes(std::span(values)));
      done += 4 * param.layer_elements();
      console.progress({.what = "import", .unit = "B", .done = done, .total = total});
    }
  }
  console.end_progress();
}

void add_files(const hf::Model& model, CheckpointWriter& writer) {
  writer.add_file(kOriginFile, model.config_text());
  for (const char* name : kTokenizerFiles) {
    const Path path = model.path() / name;
    if (file_kind(path, ErrorCode::checkpoint) != FileKind::regular) continue;
    writer.add_file(name, read_file(path, ErrorCode::checkpoint, kMaxTokenizerBytes));
  }
}

}  // namespace

int import_command(const Arguments& arguments) {
  ImportArguments a;
  if (parse_import(arguments, a)) return 0;
  if (a.json) require_standard_output();
  const hf::Model model(a.model);
  watch_stop_signals();
  Console console(stderr, stderr_options(a.verbosity));
  PartialDirectory directory(a.out, ErrorCode::usage, ErrorCode::checkpoint);
  CheckpointWriter writer(checkpoints_of_run(directory.path()), about(model));
  write_parameters(model, writer, console);
  add_files(model, writer);
  const Path made = checkpoints_of_run(a.out) / writer.commit().filename();
  directory.commit();
  const std::int64_t parameters =
      parameter_count(models::CausalTransformer(model.config()).params());
  console.line(
      format("{}: {} model of {} parameters", made.string(), model.family().name, parameters));
  if (a.json) {
    const OrderedJson json = {
        {"out", one_line(a.out)}, {"family", model.family().name}, {"parameters", parameters}};
    print(json.dump() + "\n");
  }
  return 0;
}

}  // namespace dew::cli
