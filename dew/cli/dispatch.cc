#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>

#include "dew/base/file.h"
#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/cli/cli.h"
#include "dew/sharding/cluster.h"

namespace dew::cli {
namespace {

// The plan itself has no limit; lists of more devices than any cluster has only take memory.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 22;
constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 26;

struct DispatchArguments {
  std::string mesh, process_file;
  std::int64_t global_batch = 0, seq_len = 8192, microbatches = 1;
  std::int64_t per_process = 0, accumulate = 0, micro = 0;
  bool json = false;
  Verbosity verbosity;
  bool per_process_given = false, accumulate_given = false, micro_given = false;
};

constexpr const char* kExample =
    R"(Example:
  dew dispatch --mesh fsdp=16,tensor=16 --global-batch 17 --per-process 4
needs no devices: it plans for a cluster that one does not have.)";

bool parse_dispatch(const Arguments& arguments, DispatchArguments& a) {
  CLI::App app("Which rows of a batch go where on a mesh, and which process reads them.",
               "dew dispatch");
  app.footer(kExample);
  app.add_option("--mesh", a.mesh,
                 "sizes of axes, 'fsdp=16,tensor=16'; absent ones, data too, are 1")
      ->type_name("M");
  add_integer(app, "--global-batch", a.global_batch, "rows of an optimizer step");
  add_integer(app, "--seq-len", a.seq_len, "tokens of a row [8192]");
  add_integer(app, "--per-process", a.per_process,
              "devices of a process, in mesh order; all in one");
  app.add_option("--process-file", a.process_file,
                 "process numbers of all devices in mesh order, between blanks or line ends")
      ->type_name("F")
      ->excludes("--per-process");
  add_integer(app, "--accumulate", a.accumulate, "micro steps of a step");
  add_integer(app, "--micro", a.micro, "rows of a batch shard in a micro step");
  add_integer(app, "--microbatches", a.microbatches, "microbatches of a pipeline [1]");
  app.get_option("--global-batch")->required();
  app.add_flag("--json", a.json, "print one JSON document, with the rows of every process");
  add_verbosity(app, a.verbosity);
  if (parse(app, arguments)) return true;
  a.per_process_given = app.count("--per-process") > 0;
  a.accumulate_given = app.count("--accumulate") > 0;
  a.micro_given = app.count("--micro") > 0;
  return false;
}

std::int64_t parse_process(std::string_view word, const std::string& path) {
  std::int64_t process = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), process);
  if (error == std::errc() && end == word.data() + word.size() && process >= 0) return process;
  fail(ErrorCode::usage,
       format("'{}' in '{}' is no process number", one_line(word.substr(0, 64)), one_line(path)));
}

std::vector<std::int64_t> read_processes(const std::string& path) {
  const std::string text = read_file(path, ErrorCode::usage, kMostFileBytes);
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::int64_t> processes;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    processes.push_back(parse_process(std::string_view(text).substr(at, end - at), path));
    at = text.find_first_not_of(kBlanks, end);
  }
  return processes;
}

std::vector<std::int64_t> processes_of(const DispatchArguments& a, std::int64_t devices) {
  if (!a.process_file.empty()) return read_processes(a.process_file);
  if (!a.per_process_given) return consecutive_processes(devices, devices);
  if (a.per_process < 1)
    fail(ErrorCode::usage, format("--per-process {}, but it must be at least 1", a.per_process));
  return consecutive_processes(devices, a.per_process);
}

ClusterPlan plan_of(const DispatchArguments& a, const Mesh& mesh) {
  if (mesh.devices() > kMostDevices) {
    fail(ErrorCode::usage, format("--mesh {} has {} devices, dew dispatch takes up to {}", a.mesh,
                                  mesh.devices(), kMostDevices));
  }
  DispatchOptions options{
      .global_batch = a.global_batch, .seq_len = a.seq_len, .microbatches = a.microbatches};
  if (a.accumulate_given) options.accumulate = a.accumulate;
  if (a.micro_given) options.micro_batch = a.micro;
  return ClusterPlan(device_grid(mesh, processes_of(a, mesh.devices())), options);
}

std::string json_text(const ClusterPlan& cluster) {
  const DispatchPlan& plan = cluster.plan();
  OrderedJson processes = OrderedJson::array();
  for (std::int64_t p = 0; p < cluster.processes(); ++p) {
    OrderedJson rows = OrderedJson::array();
    for (const auto& [begin, end] : cluster.rows(p)) rows.push_back({begin, end});
    processes.push_back({{"process", p}, {"rows", std::move(rows)}, {"owned", cluster.owned(p)}});
  }
  const std::optional<std::string> advice = plan.advice();
  const OrderedJson json = {{"batch_shards", plan.batch_shards()},
                            {"sequence_shards", plan.sequence_shards()},
                            {"micro", plan.micro_batch()},
                            {"steps", plan.steps()},
                            {"rows_per_shard", plan.rows_per_shard()},
                            {"physical_batch", plan.physical_batch()},
                            {"pads", plan.pads()},
                            {"pad_share", plan.pad_share()},
                            {"read_amplification", cluster.read_amplification()},
                            {"row_weight", plan.row_weight()},
                            {"advice", advice ? OrderedJson(*advice) : OrderedJson()},
                            {"processes", std::move(processes)}};
  return json.dump() + "\n";
}

// "0..7 64..71", "-" for none.
std::string rows_text(const std::vector<RowRange>& ranges) {
  std::string text;
  for (const auto& [begin, end] : ranges) {
    text += text.empty() ? "" : " ";
    text += end - begin == 1 ? format("{}", begin) : format("{}..{}", begin, end - 1);
  }
  return text.empty() ? "-" : text;
}

// A line for each run of processes that read and own the same.
std::string process_lines(const ClusterPlan& cluster) {
  std::string text = format("{:<16} {:>8}  {}\n", "process", "owns", "rows it needs");
  std::int64_t first = 0;
  while (first < cluster.processes()) {
    const std::vector<RowRange> rows = cluster.rows(first);
    const std::int64_t owned = cluster.owned(first);
    std::int64_t next = first + 1;
    while (next < cluster.processes() && cluster.owned(next) == owned && cluster.rows(next) == rows)
      ++next;
    const std::string name =
        next - first == 1 ? format("{}", first) : format("{}-{}", first, next - 1);
    text += format("{:<16} {:>8}  {}\n", name, owned, rows_text(rows));
    first = next;
  }
  return text;
}

std::string plain_text(const ClusterPlan& cluster, const Mesh& mesh) {
  const DispatchPlan& plan = cluster.plan();
  return format("{}\n{}\narrays [{}], of a device [{}]; a row weighs {:.6g}, a token {:.6g}\n\n{}",
                to_string(mesh), cluster.summary(), join(plan.global_shape()),
                join(plan.device_shape()), plan.row_weight(), plan.token_weight(),
                process_lines(cluster));
}

}  // namespace

int dispatch_command(const Arguments& arguments) {
  DispatchArguments a;
  if (parse_dispatch(arguments, a)) return 0;
  const Mesh mesh = parse_sizes(a.mesh);
  const ClusterPlan cluster = plan_of(a, mesh);
  print(a.json ? json_text(cluster) : plain_text(cluster, mesh));
  Console console(stderr, stderr_options(a.verbosity));
  for (const std::string& warning : cluster.plan().warnings()) console.warning(warning);
  if (const std::optional<std::string> advice = cluster.plan().advice())
    console.line("advice: " + *advice);
  return 0;
}

}  // namespace dew::cli
