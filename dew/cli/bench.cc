// dew bench: runs the Google Benchmark programs that were built or installed beside this one, and
// joins what they report.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/nearest.h"
#include "dew/cli/cli.h"

extern char** environ;

namespace dew::cli {
namespace {

constexpr std::int64_t kMostReport = 64 << 20;

struct BenchArguments {
  std::vector<std::string> names;
  std::string filter;
  double min_time = 0.5;
  bool list = false;
};

constexpr const char* kExample =
    R"(Example:
  dew bench train_step --filter one > step.json
Times vary with what else the machine does; ratios inside one report are what to compare.)";

bool parse_bench(const Arguments& arguments, BenchArguments& a) {
  CLI::App app("Runs the benchmark suite, or the named programs of it, and prints one JSON report.",
               "dew bench");
  app.footer(kExample);
  app.add_option("NAME", a.names, "programs of the suite (all)");
  app.add_option("--filter", a.filter, "benchmarks whose names match this regular expression");
  add_number(app, "--min-time", a.min_time, "seconds that each benchmark runs at least (0.5)");
  app.add_flag("--list", a.list, "print the names of the programs");
  return parse(app, arguments);
}

// In the build folder beside the program; installed, in ../libexec/dew.
std::vector<Path> suite_folders() {
  std::error_code error;
  const Path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  return {self.parent_path() / "bench", self.parent_path().parent_path() / "libexec/dew/bench"};
}

std::vector<Path> programs_in(const Path& folder) {
  std::vector<Path> programs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.is_regular_file(error) && ::access(entry.path().c_str(), X_OK) == 0)
      programs.push_back(entry.path());
  }
  std::ranges::sort(programs);
  return programs;
}

std::vector<Path> suite() {
  for (const Path& folder : suite_folders()) {
    std::vector<Path> programs = programs_in(folder);
    if (!programs.empty()) return programs;
  }
  fail(ErrorCode::usage, "this program was built without its benchmarks",
       "build them: cmake --build build/release --target bench");
}

std::vector<Path> chosen(const std::vector<Path>& all, const std::vector<std::string>& names) {
  if (names.empty()) return all;
  std::vector<Path> programs;
  for (const std::string& name : names) {
    const auto same = [&](const Path& p) { return p.filename() == name; };
    const auto at = std::ranges::find_if(all, same);
    if (at == all.end()) {
      std::vector<std::string> known;
      for (const Path& p : all) known.push_back(p.filename().string());
      fail(ErrorCode::usage, format("there is no benchmark program '{}'", name),
           format("there are: {}", fmt::join(known, ", ")));
    }
    programs.push_back(*at);
  }
  return programs;
}

// Runs it to its end; what it prints goes where ours does, and its report to `out`.
void run_program(const Path& program, const BenchArguments& a, const Path& out) {
  std::vector<std::string> words = {program.string(), format("--benchmark_out={}", out.string()),
                                    "--benchmark_out_format=json",
                                    format("--benchmark_min_time={}", a.min_time)};
  if (!a.filter.empty()) words.push_back("--benchmark_filter=" + a.filter);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // Its table for people; standard output carries the report alone.
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    fail(ErrorCode::internal, format("'{}' does not start: {}", program.string(),
                                     std::generic_category().message(error)));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM))
    throw Stopped{WTERMSIG(status)};
  if (status != 0)
    fail(ErrorCode::internal,
         format("the benchmark program '{}' ended with status {}", program.string(),
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

class TemporaryFile {
 public:
  TemporaryFile() {
    std::string name = (std::filesystem::temp_directory_path() / "dew-bench-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    if (fd < 0) fail(ErrorCode::usage, format("no temporary file '{}' can be made", name));
    ::close(fd);
    path_ = name;
  }
  ~TemporaryFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

}  // namespace

int bench_command(const Arguments& arguments) {
  BenchArguments a;
  if (parse_bench(arguments, a)) return 0;
  if (a.min_time <= 0)
    fail(ErrorCode::usage, format("--min-time = {}, but it must be above 0", a.min_time));
  require_standard_output();
  const std::vector<Path> programs = chosen(suite(), a.names);
  if (a.list) {
    for (const Path& p : programs) print(p.filename().string() + "\n");
    return 0;
  }
  OrderedJson report = {{"context", nullptr}, {"benchmarks", OrderedJson::array()}};
  for (const Path& program : programs) {
    const TemporaryFile out;
    run_program(program, a, out.path());
    // A filter that matches nothing leaves the file empty.
    if (std::filesystem::file_size(out.path()) == 0) continue;
    const Json part = read_json(out.path(), kMostReport, ErrorCode::internal);
    report["context"] = part.at("context");
    for (const Json& benchmark : part.at("benchmarks")) {
      OrderedJson row = {{"program", program.filename().string()}};
      for (const auto& [key, value] : benchmark.items()) row[key] = value;
      report["benchmarks"].push_back(std::move(row));
    }
  }
  if (report["benchmarks"].empty())
    fail(ErrorCode::usage, format("no benchmark matches --filter '{}'", a.filter));
  print(report.dump(2) + "\n");
  return 0;
}

}  // namespace dew::cli
