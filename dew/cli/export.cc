// Models out, as Hugging Face directories.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/partial_directory.h"
#include "dew/cli/cli.h"
#include "dew/cli/model.h"
#include "dew/cli/model_files.h"
#include "dew/hf/end_ids.h"
#include "dew/hf/export.h"
#include "dew/train/registers.h"

namespace dew::cli {
namespace {

struct ExportArguments {
  std::string model, out, dtype = "f32";
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew export runs/mine --out mine-hf --dtype bf16
writes config.json, model.safetensors and the tokenizer, as transformers loads them.)";

bool parse_export(const Arguments& arguments, ExportArguments& a) {
  CLI::App app("A model to a Hugging Face directory: weights, config and tokenizer.", "dew export");
  app.footer(kExample);
  app.add_option("MODEL", a.model, kModelHelp)->required();
  app.add_option("--out", a.out, "directory to write; it must not exist or be empty")
      ->required()
      ->type_name("HF_DIR");
  app.add_option("--dtype", a.dtype, "f32 or bf16")->capture_default_str()->type_name("TYPE");
  app.add_flag("--json", a.json, "print the result as one JSON document");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

hf::ExportOptions options_of(const ExportArguments& a, const Model& model) {
  if (a.dtype != "f32" && a.dtype != "bf16") {
    fail(ErrorCode::usage, format("--dtype = '{}', but it must be f32 or bf16", a.dtype));
  }
  hf::ExportOptions options;
  options.dtype = *parse_dtype(a.dtype);
  // An imported model's config says its own.
  const CheckpointReader* trained = model.checkpoint();
  if (trained != nullptr && !trained->info().config.empty())
    options.eos_id = trained->info().tokenizer.eos_id;
  return options;
}

// Generating follows generation_config.json where that says what ends a text.
std::string exported_file(const std::string& name, const std::string& text,
                          const hf::ExportOptions& options) {
  const hf::ConfigText file = {text, name};
  const bool speaks = name == kGenerationFile && !hf::end_ids(file, std::nullopt).empty();
  return speaks && options.eos_id ? hf::with_end_id(file, *options.eos_id) : text;
}

void copy_tokenizer(const Model& model, const hf::ExportOptions& options, const Path& to) {
  for (const std::string name : kTokenizerFiles) {
    if (const auto text = model.carried_file(name))
      write_file_atomic(to / name, exported_file(name, *text, options), ErrorCode::checkpoint);
  }
}

// One parameter at a time, by name.
hf::FindOurs reader_of(const Model& model, std::vector<float>& buffer) {
  const models::CausalTransformer ours(model.config());
  std::map<std::string, std::int64_t> elements;
  for (const ParamSpec& param : ours.params()) {
    for (std::int64_t slot = 0; slot < param.layers(); ++slot)
      elements[param.layer_name(slot)] = param.layer_elements();
  }
  return [&model, &buffer, elements](const std::string& name) -> std::span<const float> {
    if (const int signal = stop_signal()) throw Stopped{signal};
    buffer.resize(static_cast<std::size_t>(elements.at(name)));
    model.read_parameter(name, buffer);
    return buffer;
  };
}

}  // namespace

int export_command(const Arguments& arguments) {
  ExportArguments a;
  if (parse_export(arguments, a)) return 0;
  if (a.json) require_standard_output();
  const Model model(a.model);
  const hf::ExportOptions options = options_of(a, model);
  const hf::Target target =
      hf::find_target(model.config(), model.origin_file(kOriginFile).value_or(""), options);
  watch_stop_signals();
  std::vector<float> buffer;
  PartialDirectory directory(a.out, ErrorCode::usage, ErrorCode::checkpoint);
  hf::write_model(directory.path(), target, model.config(), reader_of(model, buffer), options);
  copy_tokenizer(model, options, directory.path());
  directory.commit();
  Console console(stderr, stderr_options(a.verbosity));
  console.line(format("{}: {} model in {}", a.out, target.family->name, a.dtype));
  if (a.json) {
    const OrderedJson json = {
        {"out", one_line(a.out)}, {"family", target.family->name}, {"dtype", a.dtype}};
    print(json.dump() + "\n");
  }
  return 0;
}

}  // namespace dew::cli
