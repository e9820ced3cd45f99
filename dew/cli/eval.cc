#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"
#include "dew/cli/cli.h"
#include "dew/dew.h"
#include "dew/train/config.h"

namespace dew::cli {
namespace {

struct EvalArguments {
  std::string model, data, devices = "cpu";
  std::int64_t batches = 0;
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew eval runs/mine --data data/mine
reads the newest complete checkpoint; runs/mine/checkpoints/step_00000400 is one of them.)";

bool parse_eval(const Arguments& arguments, EvalArguments& a) {
  CLI::App app("Loss and accuracy of a model on validation data, every window once.", "dew eval");
  app.footer(kExample);
  app.add_option("MODEL", a.model, "a run directory, or a checkpoint directory inside it")
      ->required();
  app.add_option("--data", a.data, "token directory")->required()->type_name("DIR");
  add_integer(app, "--batches", a.batches, "stop after so many; 0: all");
  app.add_option("--devices", a.devices, "'cpu': one device with all cores")->type_name("D");
  app.add_flag("--json", a.json, "print one JSON document: loss, perplexity, accuracy, tokens");
  add_unbuilt_option(app, "--mesh");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

Path find_checkpoint(const Path& model, Console& console) {
  if (file_kind(model / "config.json", ErrorCode::checkpoint) == FileKind::regular) {
    refuse_unbuilt(format("dew eval of a Hugging Face directory ('{}')", model.string()));
  }
  return resolve_checkpoint(model, [&](const std::string& line) { console.warning(line); });
}

// The config that a checkpoint carries. What is wrong with it is wrong with the checkpoint.
TrainConfig config_of(const CheckpointReader& reader) {
  try {
    return parse_config(reader.info().config, reader.path().string());
  } catch (const Error& error) {
    fail(ErrorCode::checkpoint, error.what(), error.hint());
  }
}

WindowData load_data(const EvalArguments& a, const CheckpointInfo& info,
                     const TrainConfig& config) {
  const TokenWindows windows{
      .path = a.data, .seq_len = info.data.seq_len, .stride = info.data.stride};
  WindowData data = windows.load({.batch = config.data.global_batch});
  const bool other = !info.tokenizer.name.empty() && info.tokenizer.name != data.meta.tokenizer;
  if (other || data.meta.vocab_size > config.model.vocab_size) {
    fail(ErrorCode::data,
         format("'{}' has tokenizer '{}' with {} ids, the model '{}' with {}", a.data,
                data.meta.tokenizer, data.meta.vocab_size, info.tokenizer.name,
                config.model.vocab_size),
         "tokenize the text as the model's training data was");
  }
  return data;
}

EvalResult evaluate(const EvalArguments& a, const CheckpointReader& reader,
                    const TrainConfig& config, const WindowData& data, Console& console) {
  const LMObjective objective(models::CausalTransformer(config.model),
                              {.seq_len = data.options.seq_len});
  const DispatchPlan plan({.global_batch = config.data.global_batch,
                           .seq_len = data.options.seq_len,
                           .accumulate = config.data.accumulate,
                           .micro_batch = config.data.micro_batch});
  ValidationPass pass(data.val, plan, a.batches);
  const std::unique_ptr<Backend> backend = cpu_devices();
  Stepper stepper(objective, step_shape(plan), *parse_dtype(config.precision.compute), *backend);
  stepper.restore(reader);
  std::int64_t batch = 0;
  const auto before_batch = [&] {
    console.progress({.what = "eval", .unit = "batches", .done = batch++, .total = pass.batches()});
    return stop_signal() != 0;
  };
  const std::optional<EvalResult> result = stepper.evaluate(pass, before_batch);
  console.end_progress();
  if (!result) throw Stopped{stop_signal()};
  return *result;
}

std::string json_text(const EvalResult& r) {
  const auto number = [](double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(); };
  const OrderedJson json = {{"loss", number(r.loss)},
                            {"perplexity", number(r.perplexity)},
                            {"accuracy", number(r.accuracy)},
                            {"tokens", static_cast<std::int64_t>(r.tokens)}};
  return json.dump() + "\n";
}

std::string plain_text(const EvalResult& r, const WindowData& data) {
  std::string text =
      format("loss           {:.4f}\nperplexity     {:.4f}\naccuracy       {:.2f}%\n", r.loss,
             r.perplexity, 100 * r.accuracy);
  if (data.meta.tokenizer == "byte") {
    text += format("bits per byte  {:.4f}\n", r.loss / std::numbers::ln2);
  }
  return text + format("tokens         {}\n", static_cast<std::int64_t>(r.tokens));
}

}  // namespace

int eval_command(const Arguments& arguments) {
  EvalArguments a;
  if (parse_eval(arguments, a)) return 0;
  if (a.devices != "cpu") refuse_unbuilt("dew eval --devices " + a.devices);
  require_standard_output();
  Console console(stderr, stderr_options(a.verbosity));
  const CheckpointReader reader(find_checkpoint(a.model, console));
  const TrainConfig config = config_of(reader);
  const WindowData data = load_data(a, reader.info(), config);
  watch_stop_signals();
  const EvalResult result = evaluate(a, reader, config, data, console);
  console.line(
      format("{} ids after the last whole window were not evaluated", data.val.ids_left()));
  print(a.json ? json_text(result) : plain_text(result, data));
  return 0;
}

}  // namespace dew::cli
