#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <optional>
#include <ranges>
#include <sstream>

#include "dew/base/format.h"
#include "dew/base/machine.h"
#include "dew/base/text.h"
#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"
#include "dew/cli/cli.h"
#include "dew/cli/job.h"
#include "dew/cli/machine.h"
#include "dew/cli/model.h"
#include "dew/cli/model_files.h"
#include "dew/cli/reporter.h"
#include "dew/cli/run_directory.h"
#include "dew/data/tokenizers/load.h"
#include "dew/dew.h"
#include "dew/train/config.h"
#include "dew/train/profile.h"
#include "dew/train/step_memory.h"

namespace dew::cli {
namespace {

struct TrainArguments {
  std::string config, dump;
  Arguments overrides;
  Verbosity verbosity;
  bool check_replicas = false, profile = false;
};

constexpr const char* kExample =
    R"(Example:
  dew train examples/demo.toml data.path=data/mine run.dir=runs/mine run.steps=400
The same command again goes on where the run stopped. docs/config.md lists the keys.)";

bool parse_train(const Arguments& arguments, TrainArguments& a) {
  CLI::App app("Trains a model as a config says, or goes on with the run in its directory.",
               "dew train");
  app.footer(kExample);
  app.add_option("CONFIG", a.config, "the config, a TOML file")->required();
  app.add_option("KEY=VALUE", a.overrides, "section.key=value, on top of the config");
  app.add_option("--dump", a.dump, "directory for the programs after each pass, and the plans")
      ->type_name("DIR");
  app.add_flag("--check-replicas", a.check_replicas,
               "compute what several devices hold for each, and demand equal bits (slow)");
  app.add_flag("--profile", a.profile,
               "trace ten steps: a table of where their time goes, and RUN/profile.json for a "
               "trace viewer");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

// ---- from the config to what the library takes

WindowData load_data(const TrainConfig& config) {
  const DataConfig& d = config.data;
  const TokenWindows windows{.path = d.path,
                             .seq_len = d.seq_len,
                             .stride = d.stride,
                             .val_batches = d.val_batches,
                             .shuffle = d.shuffle,
                             .seed = static_cast<std::uint64_t>(config.run.seed)};
  WindowData data = windows.load({.batch = d.global_batch});
  if (data.meta.vocab_size > config.model.vocab_size) {
    fail(ErrorCode::usage,
         format("model.vocab_size = {} is below the {} of '{}'", config.model.vocab_size,
                data.meta.vocab_size, d.path),
         format("model.vocab_size={}", data.meta.vocab_size));
  }
  return data;
}

LMObjective make_objective(const TrainConfig& config, int processes) {
  const LMObjectiveOptions options{.seq_len = config.data.seq_len,
                                   .z_loss = config.objective.z_loss};
  LMObjective objective(models::CausalTransformer(config.model), options);
  if (processes > 1) return objective;  // each holds parts of it, on machines that differ
  // Parameters, the optimizer's state, gradients, and a copy to write, before activations.
  const double state = 1 + static_cast<double>(state_slots(config.optimizer).size());
  const bool copies = config.run.snapshots && config.run.checkpoint_every > 0;
  const double arrays = 1 + (copies ? 2 : 1) * state;
  const double bytes = 4 * arrays * static_cast<double>(parameter_count(objective.params()));
  if (const double most = memory_bytes(); bytes > most) {
    fail(ErrorCode::usage,
         format("a model of {} parameters needs {}B to train, this machine has {}B",
                parameter_count(objective.params()), short_number(bytes), short_number(most)),
         copies ? "run.snapshots=false, fewer or smaller layers need less"
                : "fewer or smaller layers need less");
  }
  return objective;
}

Resume parse_resume(const std::string& text) {
  if (text == "never") return Resume::never;
  return text == "must" ? Resume::must : Resume::automatic;
}

CheckpointInfo about(const TrainConfig& config, const TokenMeta& meta) {
  CheckpointInfo info;
  info.run = fresh_run_id();
  info.tokenizer = {.name = meta.tokenizer, .eos_id = meta.eos_id, .bos_id = meta.bos_id};
  info.model = model_toml(config.model);
  info.config = to_toml(config);
  info.processor = processor_kind();
  info.program = format("dew {}", kVersion);
  return info;
}

// Of the data's tokenizer, if it is one of files.
std::vector<CarriedFile> tokenizer_files(const TrainConfig& config) {
  std::vector<CarriedFile> files;
  for (const std::string_view name : tokenizer_file_names()) {
    const Path path = Path(config.data.path) / name;
    if (file_kind(path, ErrorCode::data) != FileKind::regular) continue;
    files.push_back({std::string(name), read_file(path, ErrorCode::data, kMostTokenizerBytes)});
  }
  return files;
}

FitOptions fit_options(const TrainConfig& config) {
  const RunConfig& run = config.run;
  return {.steps = run.steps,
          .log_every = run.log_every,
          .eval_every = run.eval_every,
          .checkpoint_every = run.checkpoint_every,
          .agree_every = run.agree_every,
          .lr = [=, schedule = config.schedule, peak = config.optimizer.lr](
                    std::int64_t committed) { return rate(schedule, peak, run.steps, committed); },
          .should_stop = [] { return stop_signal() != 0; }};
}

// ---- what is in the run's directory already

void refuse_earlier(const TrainConfig& config, const Path& checkpoints) {
  if (config.run.resume != "never") return;
  const NewestCheckpoint newest = newest_checkpoint(checkpoints);
  if (!newest.found) return;
  fail(ErrorCode::checkpoint,
       format("'{}' holds a run at step {}, and run.resume is \"never\"", config.run.dir,
              newest.found->step),
       "give another run.dir, or move that one away");
}

// Keys that may not change are refused, all in one message; the result tells of the others.
std::vector<std::string> compare_configs(const CheckpointInfo& earlier, const TrainConfig& config) {
  if (earlier.config.empty()) return {};
  const TrainConfig before = parse_config(earlier.config, "the checkpoint's config");
  std::vector<std::string> refused, noted;
  for (const ConfigChange& change : config_changes(before, config)) {
    const auto value = [](const std::string& text) { return text.empty() ? "not set" : text; };
    std::string text =
        format("{} was {}, is {}", change.key, value(change.before), value(change.now));
    if (change.on_resume == OnResume::noted) noted.push_back("Changed: " + text);
    if (change.on_resume == OnResume::refused) refused.push_back(std::move(text));
  }
  if (!refused.empty()) {
    fail(ErrorCode::checkpoint,
         format("cannot resume the run in '{}': {}", config.run.dir, fmt::join(refused, "; ")),
         "set them back, or train in another run.dir");
  }
  return noted;
}

// What somebody who goes on with the run should know.
std::vector<std::string> differences(const CheckpointInfo& earlier, const TrainConfig& config) {
  if (earlier.clocks.step > config.run.steps) {
    fail(ErrorCode::usage,
         format("the run in '{}' is at step {}, and run.steps = {}", config.run.dir,
                earlier.clocks.step, config.run.steps),
         "run.steps is the total of all runs in the directory; give a larger one");
  }
  std::vector<std::string> lines = compare_configs(earlier, config);
  if (const std::string here = processor_kind(); earlier.processor != here) {
    lines.push_back(
        format("Changed: the processor was {}, is {}; from here on sums may round "
               "differently",
               earlier.processor, here));
  }
  return lines;
}

// ---- the run

const char* signal_name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

void check_sizes(const TrainConfig& config, const Arrangement& arrangement, int prefetch,
                 Processes& processes) {
  const DispatchPlan plan({.global_batch = config.data.global_batch,
                           .seq_len = config.data.seq_len,
                           .batch_shards = arrangement.batch_shards(),
                           .accumulate = config.data.accumulate,
                           .micro_batch = config.data.micro_batch});
  expect_room(plan,
              {.model = config.model,
               .compute = *parse_dtype(config.precision.compute),
               .shards = std::ssize(shards_of_process(arrangement, processes)),
               .batch_copies = prefetch + 2},
              memory_bytes());
}

// Before anything is written.
void check_arguments(const TrainConfig& config, const LMObjective& objective,
                     const TrainArguments& a, const WindowData& data, Processes& processes) {
  if (config.run.dir.empty()) {
    fail(ErrorCode::usage, "run.dir is not set: a run needs a directory", "run.dir=runs/NAME");
  }
  if (config.run.resume == "must" &&
      file_kind(config.run.dir, ErrorCode::usage) == FileKind::missing) {
    fail(ErrorCode::checkpoint,
         format("run.resume is \"must\" and there is no '{}'", config.run.dir));
  }
  const std::int64_t devices = device_count(config.devices, processes.count());
  check_simulated(devices);
  check_sizes(config, arrange(config.mesh, devices, config.layout, objective.model()),
              data.load.prefetch, processes);
  if (!a.dump.empty()) create_directories(a.dump, ErrorCode::usage);
}

// The model that a run begins from, if it begins and is told to.
std::optional<Model> starting_model(const TrainConfig& config, const Path& checkpoints) {
  const std::string& path = config.run.init_from;
  if (path.empty() || newest_checkpoint(checkpoints).found) return std::nullopt;
  std::optional<Model> model(path);
  model->require_model_of(config, path);
  return model;
}

// The table, and a file for each process.
void report_profile(const Trace& trace, const TrainConfig& config, Processes& processes,
                    Console& console) {
  const int rank = processes.rank();
  const std::string suffix = rank == 0 ? "" : format("-{}", rank);
  const Path file = Path(config.run.dir) / format("profile{}.json", suffix);
  const std::int64_t devices = device_count(config.devices, processes.count()) / processes.count();
  write_file_atomic(file, trace_events(trace, rank, devices), ErrorCode::checkpoint);
  if (rank > 0) return;
  console.line(format("Wrote {}", file.string()));
  std::istringstream lines(profile_table(trace));
  for (std::string line; std::getline(lines, line);) console.line(line);
}

// Files of the published model that the run began from, now or before, if it began from one: what
// is exported from the run keeps what they say.
std::vector<CarriedFile> origin_files(const Model& start) {
  std::vector<CarriedFile> files;
  for (const std::string name : {kOriginFile, kGenerationFile}) {
    if (std::optional<std::string> text = start.origin_file(name))
      files.push_back({name, *std::move(text)});
  }
  return files;
}

// Of the newest checkpoint in which they are whole: what is wrong with a newer one is said when the
// run goes on.
std::vector<CarriedFile> origin_files(const Path& checkpoints) {
  std::vector<CarriedFile> files;
  const auto read = [&](const CheckpointReader& reader) {
    files.clear();
    for (const std::string name : {kOriginFile, kGenerationFile}) {
      if (reader.has_file(name)) files.push_back({name, reader.read_extra_file(name)});
    }
    return std::vector<std::string>();
  };
  const std::vector<std::string> names = checkpoint_names(checkpoints);
  for (const std::string& name : names | std::views::reverse) {
    CheckpointEntry entry = named_checkpoint(checkpoints, name);
    if (open_checkpoint(entry, read) != nullptr) return files;
  }
  return {};
}

struct Beginning {
  std::optional<Model> start;      // run.init_from, where that counts
  std::vector<CarriedFile> files;  // that the run's checkpoints carry
};
Beginning beginning_of(const TrainConfig& config) {
  const Path checkpoints = checkpoints_of_run(config.run.dir);
  Beginning b{.start = starting_model(config, checkpoints), .files = tokenizer_files(config)};
  std::ranges::move(b.start ? origin_files(*b.start) : origin_files(checkpoints),
                    std::back_inserter(b.files));
  return b;
}

struct RunInputs {
  Processes& processes;
  const WindowData& data;
  const LMObjective& objective;
  const Beginning& beginning;
};

// `directory` is null where another process works in it for all.
int train(const TrainConfig& config, const TrainArguments& a, const RunInputs& in,
          RunDirectory* directory) {
  ConsoleOptions console_options = stderr_options(a.verbosity);
  if (directory != nullptr) console_options.log = &directory->log();
  Console console(stderr, console_options);
  console.detail(format("Model: {} parameters", parameter_count(in.objective.params())));
  if (in.processes.count() > 1) console.detail(in.processes.name(in.processes.rank()));

  const std::optional<Model>& start = in.beginning.start;
  const Path checkpoints = checkpoints_of_run(config.run.dir);
  refuse_earlier(config, checkpoints);
  std::vector<std::string> changes;
  const auto resume = [&](const CheckpointInfo& from) { changes = differences(from, config); };
  const auto begin = [&](std::int64_t step, std::optional<MetricsWriter>& metrics) {
    directory->begin();
    if (step == 0 && start) changes.push_back("Weights of " + config.run.init_from);
    write_file_atomic(directory->path() / "config.toml", to_toml(config), ErrorCode::checkpoint);
    metrics.emplace(directory->path() / "metrics.jsonl", step);
    for (const std::string& line : changes) console.line(line);
  };
  Reporter reporter(console, resume, begin);
  const std::unique_ptr<Backend> backend =
      cpu_devices(device_count(config.devices, in.processes.count()));
  std::function<void(Stepper&)> first_parameters;
  if (start) first_parameters = [&](Stepper& stepper) { start->load(stepper); };
  std::function<void(const Trace&)> profile;
  if (a.profile)
    profile = [&](const Trace& t) { report_profile(t, config, in.processes, console); };
  Trainer trainer(in.objective, config.optimizer,
                  {.seed = static_cast<std::uint64_t>(config.run.seed),
                   .devices = backend.get(),
                   .mesh = config.mesh,
                   .layout = config.layout,
                   .accumulate_full = config.data.accumulate_full,
                   .check_replicas = a.check_replicas,
                   .compute = *parse_dtype(config.precision.compute),
                   .accumulate = config.data.accumulate,
                   .micro_batch = config.data.micro_batch,
                   .checkpoints = checkpoints,
                   .retention = {.newest = config.run.keep,
                                 .best = config.run.keep_best,
                                 .every = config.run.keep_every},
                   .snapshots = config.run.snapshots,
                   .resume = parse_resume(config.run.resume),
                   .about = about(config, in.data.meta),
                   .files = in.beginning.files,
                   .dump = a.dump,
                   .profile = profile,
                   .first_parameters = first_parameters,
                   .observer = &reporter});
  const FitResult result = trainer.fit(in.data, fit_options(config));
  console.end_progress();
  if (!result.stopped) return 0;
  const auto signal = static_cast<int>(in.processes.largest(stop_signal(), "the signal that came"));
  console.line(format("Stopped by {} at step {} of {}; the same command goes on from there",
                      signal_name(signal), result.clocks.step, config.run.steps));
  return 128 + signal;
}

// Not to be written there is no second error: this one says already what is wrong.
void log_if_possible(FileAppender& log, const Error& error) {
  try {
    log.append(format("dew: error: {}\n", one_line(error.what())));
  } catch (const Error&) {
  }
}

// The config says how long processes wait for each other; where it is bad they meet to say so once.
TrainConfig load_together(const TrainArguments& a) {
  try {
    return load_config(a.config, a.overrides);
  } catch (const Error&) {
    join_processes();
    throw;
  }
}

}  // namespace

int train_command(const Arguments& arguments) {
  TrainArguments a;
  if (parse_train(arguments, a)) return 0;
  const TrainConfig config = load_together(a);
  Processes& processes = join_processes(config.comm);
  const WindowData data = load_data(config);
  expect_same_start(processes, config, data.identity().corpus, a.check_replicas);
  const LMObjective objective = make_objective(config, processes.count());
  check_arguments(config, objective, a, data, processes);
  const Beginning beginning = beginning_of(config);
  watch_stop_signals();
  std::optional<RunDirectory> directory;
  first_does(processes, "the run's directory", [&] { directory.emplace(config.run.dir); });
  try {
    return train(config, a, {processes, data, objective, beginning},
                 directory ? &*directory : nullptr);
  } catch (const Error& error) {
    if (directory) log_if_possible(directory->log(), error);
    throw;
  }
}

}  // namespace dew::cli
