#include "tests/cli/program.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"

namespace dew {
namespace {

constexpr uid_t kNobody = 65534;

const char* program() {
  const char* path = std::getenv("DEW_PROGRAM");
  return path != nullptr ? path : "build/release/dew";
}

void redirect(int fd, const Path& to) {
  const int file = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, fd);
  ::close(file);
}

void break_stdout() {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(127);
  ::close(ends[0]);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
}

void keep_one_core() {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  ::sched_getaffinity(0, sizeof(all), &all);
  int core = 0;
  while (!CPU_ISSET(core, &all)) ++core;
  CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof(one), &one);
}

// What is run: the program, or mpirun with it.
Words command(const Path& absolute, const Words& arguments, const Start& start) {
  Words words;
  if (start.processes > 1) {
    words = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
             std::to_string(start.processes)};
    if (!start.wrapped.empty())
      words.insert(words.end(), {"/bin/sh", "-c", start.wrapped, "wrapped"});
  }
  words.push_back(absolute.string());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::string file_text(const Path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The process of this rank that `mpirun` has started; -1 if there is none.
int pid_of_rank(int mpirun, int rank) {
  const std::string variable = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::istringstream stat(file_text(entry.path() / "stat"));
    std::string pid, program, state;
    int parent = 0;
    stat >> pid >> program >> state >> parent;
    const std::string variables = '\0' + file_text(entry.path() / "environ");
    if (parent == mpirun && variables.find('\0' + variable + '\0') != variables.npos)
      return std::stoi(name);
  }
  return -1;
}

// In the child: everything up to exec.
[[noreturn]] void become(const Words& words, const Start& start, const Path& files) {
  redirect(STDOUT_FILENO, files / "out");
  redirect(STDERR_FILENO, files / "err");
  if (!start.standard_input.empty()) {
    const int file = ::open(start.standard_input.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  if (start.close_stdout) ::close(STDOUT_FILENO);
  if (start.full_stdout) redirect(STDOUT_FILENO, "/dev/full");
  // Whoever started the tests in the background has it ignored, and that is inherited.
  ::signal(SIGINT, SIG_DFL);
  if (start.broken_stdout) break_stdout();
  if (start.one_core) keep_one_core();
  if (start.as_nobody && ::getuid() == 0 && ::setuid(kNobody) != 0) ::_exit(127);
  if (!start.directory.empty() && ::chdir(start.directory.c_str()) != 0) ::_exit(127);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  ::_exit(127);
}

}  // namespace

Running::Running(const Words& arguments, const Start& start) {
  const Path file = start.program.empty() ? std::filesystem::absolute(program()) : start.program;
  const Words words = command(file, arguments, start);
  pid_ = ::fork();
  if (pid_ == 0) become(words, start, files_.path());
}

Running::~Running() {
  if (done_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Running::signal(int number) { ::kill(pid_, number); }

void Running::signal_rank(int rank, int number) {
  const int pid = pid_of_rank(pid_, rank);
  ASSERT_GT(pid, 0) << "no process of rank " << rank;
  ::kill(pid, number);
}

bool Running::wait_for(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    if (read_text(files_ / "err").find(text) != std::string::npos) return true;
    if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
      done_ = true;
      return read_text(files_ / "err").find(text) != std::string::npos;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

bool Running::ends_within(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done_ && std::chrono::steady_clock::now() < deadline) {
    done_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    if (!done_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return done_;
}

Outcome Running::finish() {
  if (!done_) ::waitpid(pid_, &status_, 0);
  done_ = true;
  const int status = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {status, read_text(files_ / "out"), read_text(files_ / "err")};
}

Outcome dew(const Words& arguments, const Start& start) {
  return Running(arguments, start).finish();
}

Outcome shell(const std::string& command, const Path& directory) {
  const std::string output = (directory / "shell-output").string();
  const std::string text =
      "cd '" + directory.string() + "' && (" + command + ") > '" + output + "' 2>&1";
  const int status = std::system(text.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(output), ""};
}

void expect_done(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("error"), std::string::npos) << outcome.err;
}

void expect_error(const Outcome& outcome, int status, const std::string& text) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  int errors = 0, hints = 0, others = 0;
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    const bool error = line.starts_with("dew: error: ");
    const bool hint = line.starts_with("hint: ");
    errors += error;
    hints += hint;
    others += !error && !hint;
    if (error) {
      EXPECT_NE(line.find(text), std::string::npos) << outcome.err << "\nwanted: " << text;
    }
  }
  EXPECT_EQ(errors, 1) << outcome.err;
  EXPECT_LE(hints, 1) << outcome.err;
  EXPECT_EQ(others, 0) << outcome.err;
}

void make_unreadable(const Path& path) {
  std::filesystem::permissions(path.parent_path(), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::none);
}

std::vector<std::pair<std::string, std::string>> snapshot(const Path& directory) {
  std::vector<std::pair<std::string, std::string>> files;
  if (!std::filesystem::is_directory(directory)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    constexpr std::uintmax_t kMost = std::uintmax_t{1} << 26;  // larger ones are holes
    const bool large = entry.is_regular_file() && entry.file_size() > kMost;
    const std::string text = large                     ? std::to_string(entry.file_size())
                             : entry.is_regular_file() ? read_text(entry.path())
                                                       : std::string();
    files.emplace_back(entry.path().string(), text);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Json> metrics_of(const Path& run_directory) {
  std::vector<Json> lines;
  std::ifstream file(run_directory / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    lines.push_back(parse_json(line, "metrics.jsonl", ErrorCode::internal));
  }
  return lines;
}

std::vector<std::pair<std::string, std::uint64_t>> digests_of(const Path& run_directory) {
  const CheckpointReader reader(resolve_checkpoint(run_directory));
  reader.verify_all();
  std::vector<std::pair<std::string, std::uint64_t>> digests;
  for (const TensorRecord& tensor : reader.tensors()) {
    digests.emplace_back(tensor.name, reader.digest(tensor));
  }
  return digests;
}

Words train_notebook(const Path& run_directory, const Words& overrides) {
  Words words = {"train", "examples/notebook.toml", "run.dir=" + run_directory.string()};
  words.insert(words.end(), overrides.begin(), overrides.end());
  return words;
}

}  // namespace dew
