// The table of commands, and the one place where errors become lines and exit statuses.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "dew/base/format.h"
#include "dew/base/nearest.h"
#include "dew/cli/cli.h"
#include "dew/cli/job.h"

namespace dew::cli {
namespace {

constexpr const char* kIntroduction =
    R"(dew trains transformer language models.

Usage: dew COMMAND [ARGUMENTS]
       dew COMMAND --help

)";

constexpr const char* kExample = R"(
Example:
  dew tokenize bible.txt --out data/bible
  dew train examples/demo.toml data.path=data/bible run.dir=runs/bible
  dew eval runs/bible --data data/bible
  dew generate runs/bible --prompt "In the beginning"
)";

std::string help() {
  std::string built, rest;
  for (const Command& c : commands()) {
    (c.run != nullptr ? built : rest) += format("  {:<12}{}\n", c.name, c.summary);
  }
  return kIntroduction + ("Commands:\n" + built) + "\nNot built yet:\n" + rest + kExample;
}

// Files must not get the numbers 0 to 2, or what is printed would end in them. A closed standard
// output becomes one that refuses to be written to; nobody misses the others.
void keep_standard_streams() {
  for (const auto& [fd, mode] :
       {std::pair{STDIN_FILENO, O_RDONLY}, std::pair{STDOUT_FILENO, O_RDONLY},
        std::pair{STDERR_FILENO, O_WRONLY}}) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", mode);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left is an error like others, not a death
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that became larger than ulimit -f allows
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) {
    fail(ErrorCode::usage, "no command was given", "dew --help lists the commands");
  }
  const std::string& name = arguments[0];
  if (name == "--version") {
    print(format("dew {}\n", kVersion));
    return 0;
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print(help());
    return 0;
  }
  const auto command = std::ranges::find(commands(), name, &Command::name);
  if (command == commands().end()) {
    std::vector<std::string_view> names;
    for (const Command& c : commands()) names.emplace_back(c.name);
    fail(ErrorCode::usage,
         format("there is no command '{}'; the nearest is {}", name.substr(0, 160),
                nearest(name, names)),
         "dew --help lists the commands");
  }
  if (command->run == nullptr) refuse_unbuilt("dew " + name);
  if (!command->in_processes) require_one_process(name);
  return command->run({arguments.begin() + 1, arguments.end()});
}

int report(const Error& error) {
  note("dew: error: " + one_line(error.what()));
  if (!error.hint().empty()) note("hint: " + one_line(error.hint()));
  return static_cast<int>(error.code());
}

int end_with(ErrorCode code, const std::string& message, const std::string& hint) {
  return leave_job(Error(code, message, hint));
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"tokenize", "text files to a directory of token ids", tokenize_command},
      {"train", "train a model as a config says, or go on with a run", train_command, true},
      {"eval", "loss and accuracy of a model on validation data", eval_command, true},
      {"generate", "text from a model", generate_command},
      {"probe", "compare with another framework on one batch", probe_command},
      {"inspect", "what is in a model, a checkpoint or a compiled config", inspect_command},
      {"tokenizer", "train, encode and decode with tokenizer files", tokenizer_command},
      {"dispatch", "which rows go where on a mesh", dispatch_command},
      {"import", "Hugging Face models in", import_command},
      {"export", "Hugging Face models out", export_command},
      {"plan", "memory and time of a run before it starts", nullptr},
      {"bench", "the benchmark suite", bench_command},
  };
  return all;
}

int run(const Arguments& arguments) {
  keep_standard_streams();
  set_report(report);
  try {
    return leave_job(dispatch(arguments));
  } catch (const Stopped& stopped) {
    return leave_job(128 + stopped.signal);
  } catch (const Error& error) {
    return leave_job(error);
  } catch (const std::bad_alloc&) {
    return end_with(ErrorCode::usage, "out of memory", "a smaller batch or model needs less");
  } catch (const std::exception& error) {
    return end_with(ErrorCode::internal, format("unexpected: {}", error.what()),
                    "please report this");
  } catch (...) {
    return end_with(ErrorCode::internal, "unexpected: an exception of unknown type",
                    "please report this");
  }
}

}  // namespace dew::cli
