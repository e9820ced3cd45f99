// Runs the built program from outside, as a user or a script does.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dew/base/file.h"
#include "dew/base/file_test_support.h"
#include "dew/base/json.h"

namespace dew {

struct Outcome {
  int status = 0;  // exit status; 128 + signal if one ended it
  std::string out, err;
};

// How a program is started, beside its arguments.
struct Start {
  Path program = {};           // empty: the built one
  Path directory = {};         // working directory; empty: the repository's root
  bool close_stdout = false;   // not open at all, as in `dew ... >&-`
  bool broken_stdout = false;  // a pipe whose reader has gone
  bool full_stdout = false;    // /dev/full, as a disk without room
  Path standard_input = {};    // an absolute name; empty: that of the test
  bool one_core = false;
  bool as_nobody = false;    // where this user is root, who may read and write everything
  int processes = 1;         // above 1: mpirun starts so many, more than there may be cores
  std::string wrapped = {};  // a shell script that ends with "$@": how each of them is started
};

using Words = std::vector<std::string>;

// The program with these arguments, to its end.
Outcome dew(const Words& arguments, const Start& start = {});

// A line for the shell, run in a directory: its status and everything that was printed, in `out`.
Outcome shell(const std::string& command, const Path& directory);

// Started and left running.
class Running {
 public:
  explicit Running(const Words& arguments, const Start& start = {});
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();

  void signal(int number);
  // To one of several processes. REQUIRES: they have begun to train.
  void signal_rank(int rank, int number);
  // Until standard error contains `text`; false if the program ends or a minute passes before.
  bool wait_for(const std::string& text);
  bool ends_within(double seconds);
  Outcome finish();

 private:
  TemporaryDirectory files_;  // for the two outputs
  int pid_ = -1;
  int status_ = -1;  // as of waitpid
  bool done_ = false;
};

// It ended as wanted; otherwise what it said.
void expect_done(const Outcome& outcome);

// One line "dew: error: ..." that contains `text`, at most one hint, nothing on standard output,
// and that status.
void expect_error(const Outcome& outcome, int status, const std::string& text);

// Nobody may read it; whoever wants may use the directory that it is in.
void make_unreadable(const Path& path);

// Every file below the directory with its bytes; empty for a missing one.
std::vector<std::pair<std::string, std::string>> snapshot(const Path& directory);

// The lines of a metrics.jsonl.
std::vector<Json> metrics_of(const Path& run_directory);

// Digests of all arrays of the newest checkpoint of a run, every byte of which is verified.
std::vector<std::pair<std::string, std::uint64_t>> digests_of(const Path& run_directory);

// The notebook's configuration in a run directory, `overrides` added.
Words train_notebook(const Path& run_directory, const Words& overrides = {});

}  // namespace dew
