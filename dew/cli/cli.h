// The commands of the program `dew`, and what they share: arguments, output, exit statuses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dew/base/error.h"
#include "dew/train/console.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace dew::cli {

inline constexpr const char* kVersion = "0.1.0";

using Arguments = std::vector<std::string>;  // without the program's name

// Each parses what follows its name and returns the exit status. Errors are thrown.
int tokenize_command(const Arguments& arguments);
int tokenizer_command(const Arguments& arguments);
int tokenizer_train_command(const Arguments& arguments);  // dew tokenizer train
int train_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int dispatch_command(const Arguments& arguments);
int probe_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
int import_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int generate_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);  // nullptr: its issue is still to come
  bool in_processes = false;     // may run in several
};

// All of `design/cli.md`, in the order of the help text.
const std::vector<Command>& commands();

// Runs the command that the arguments name and prints what goes wrong. Returns the exit status.
int run(const Arguments& arguments);

// ---- for commands

// Options that every command has.
struct Verbosity {
  bool quiet = false;    // standard error carries errors and warnings only
  bool verbose = false;  // and more than usual
};
void add_verbosity(CLI::App& app, Verbosity& verbosity);
// Of a console on standard error, as the environment and these options want it.
ConsoleOptions stderr_options(const Verbosity& verbosity);

// An option that takes a whole number; CLI11 would cut one off that does not fit.
void add_integer(CLI::App& app, const std::string& option, std::int64_t& value,
                 const std::string& description);
// The same for a finite number.
void add_number(CLI::App& app, const std::string& option, double& value,
                const std::string& description);

// An option or flag that is documented and not built: given, it is refused by name.
void add_unbuilt_flag(CLI::App& app, const std::string& flag);
void add_unbuilt_option(CLI::App& app, const std::string& option);
[[noreturn]] void refuse_unbuilt(const std::string& what);

// True if the help text was asked for; it is printed then. Throws ErrorCode::usage on arguments
// that are not understood.
bool parse(CLI::App& app, const Arguments& arguments);

// All of it to standard output, or ErrorCode::usage: output that nobody can read was not asked for
// rightly.
void print(std::string_view text);
// The same question before there is anything to say.
void require_standard_output();
// A line to standard error. Whether anybody reads it changes nothing.
void note(std::string_view line);

// What may hold anything, as one line of a message: control characters and broken UTF-8 escaped.
std::string one_line(std::string_view text);

// ---- SIGINT and SIGTERM

// From here on the first signal is remembered; a second one ends the process at once.
void watch_stop_signals();
// The signal that came, or 0.
int stop_signal();
// Thrown by work that a signal ends; exit status 128 + signal.
struct Stopped {
  int signal;
};

}  // namespace dew::cli
