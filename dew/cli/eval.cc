#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/machine.h"
#include "dew/cli/cli.h"
#include "dew/cli/devices.h"
#include "dew/cli/job.h"
#include "dew/cli/model.h"
#include "dew/data/tokenizers/load.h"
#include "dew/dew.h"
#include "dew/train/step_memory.h"

namespace dew::cli {
namespace {

struct EvalArguments {
  std::string model, data;
  DeviceArguments devices;
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
  app.add_option("MODEL", a.model, kModelHelp)->required();
  app.add_option("--data", a.data, "token directory")->required()->type_name("DIR");
  add_integer(app, "--batches", a.batches, "stop after so many; 0: all");
  add_device_options(app, a.devices);
  app.add_flag("--json", a.json, "print one JSON document: loss, perplexity, accuracy, tokens");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

// Tokenizers of files have the same name: what counts is in them.
void require_same_files(const std::string& data, const Model& model, const std::string& tokenizer) {
  const Path path = Path(data) / tokenizer;
  if (tokenizer == "byte" || file_kind(path, ErrorCode::data) != FileKind::regular) return;
  const auto own = model.carried_file(tokenizer);
  if (!own || *own == read_file(path, ErrorCode::data, kMostTokenizerBytes)) return;
  fail(ErrorCode::data,
       format("'{}' was made by another tokenizer than the model's: their files '{}' differ", data,
              tokenizer),
       "tokenize the text as the model's training data was");
}

WindowData load_data(const EvalArguments& a, const Model& model) {
  const TrainConfig& config = model.run_config();
  const TokenizerState tokenizer =
      model.checkpoint() != nullptr ? model.checkpoint()->info().tokenizer : TokenizerState();
  const TokenWindows windows{
      .path = a.data, .seq_len = config.data.seq_len, .stride = config.data.stride};
  WindowData data = windows.load({.batch = config.data.global_batch});
  const bool other = !tokenizer.name.empty() && tokenizer.name != data.meta.tokenizer;
  if (other || data.meta.vocab_size > config.model.vocab_size) {
    fail(ErrorCode::data,
         format("'{}' has tokenizer '{}' with {} ids, the model '{}' with {}", a.data,
                data.meta.tokenizer, data.meta.vocab_size, tokenizer.name, config.model.vocab_size),
         "tokenize the text as the model's training data was");
  }
  require_same_files(a.data, model, data.meta.tokenizer);
  return data;
}

// Refuses what cannot fit before it is planned, where that is plain, or when it has been.
std::unique_ptr<Stepper> make_stepper(const LMObjective& objective, const DispatchPlan& plan,
                                      const Arrangement& arrangement, Backend& backend,
                                      const StepSizes& sizes) {
  expect_room(plan, sizes, memory_bytes());
  try {
    return std::make_unique<Stepper>(objective, step_shape(plan), sizes.compute, backend,
                                     StepperOptions{.arrangement = arrangement});
  } catch (const TooLarge& e) {
    refuse_step(plan, sizes, e);
  }
}

EvalResult evaluate(const EvalArguments& a, const Model& model, const WindowData& data,
                    Console& console, Processes& processes) {
  const TrainConfig& config = model.run_config();
  const LMObjective objective(models::CausalTransformer(config.model),
                              {.seq_len = data.options.seq_len});
  const Arrangement arrangement =
      arrangement_of(a.devices, config.layout, objective.model(), processes.count());
  check_simulated(arrangement.mesh.devices());
  const DispatchPlan plan({.global_batch = config.data.global_batch,
                           .seq_len = data.options.seq_len,
                           .batch_shards = arrangement.batch_shards(),
                           .accumulate = config.data.accumulate,
                           .micro_batch = config.data.micro_batch});
  const std::vector<std::int64_t> shards = shards_of_process(arrangement, processes);
  const std::unique_ptr<Backend> backend = cpu_devices(arrangement.mesh.devices());
  const std::unique_ptr<Stepper> stepper =
      make_stepper(objective, plan, arrangement, *backend,
                   {.model = config.model,
                    .compute = *parse_dtype(config.precision.compute),
                    .trains = false,
                    .shards = std::ssize(shards),
                    .batch_copies = 2});
  ValidationPass pass(data.val, plan, a.batches, shards);
  model.load(*stepper);
  processes.steps_begin();
  std::int64_t batch = 0;
  int signal = 0;
  const auto before_batch = [&] {
    console.progress({.what = "eval", .unit = "batches", .done = batch++, .total = pass.batches()});
    signal = static_cast<int>(processes.largest(stop_signal(), "a batch of an evaluation"));
    return signal != 0;
  };
  const std::optional<EvalResult> result = stepper->evaluate(pass, before_batch);
  console.end_progress();
  if (!result) throw Stopped{signal};
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
  if (a.batches < 0) {
    fail(ErrorCode::usage, format("--batches = {}, but it must be 0 or more", a.batches));
  }
  require_standard_output();
  Processes& processes = join_processes();
  Console console(stderr, stderr_options(a.verbosity));
  const Model model(a.model);
  const WindowData data = load_data(a, model);
  watch_stop_signals();
  const EvalResult result = evaluate(a, model, data, console, processes);
  console.line(
      format("{} ids after the last whole window were not evaluated", data.val.ids_left()));
  if (speaks()) print(a.json ? json_text(result) : plain_text(result, data));
  return 0;
}

}  // namespace dew::cli
