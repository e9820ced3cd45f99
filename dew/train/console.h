// What a person sees of long work: lines, warnings and a progress bar.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "dew/base/file.h"

namespace dew {

struct ConsoleOptions {
  bool terminal = false;    // a bar that is drawn over itself; otherwise plain lines only
  bool color = false;       // warnings and the bar
  bool quiet = false;       // warnings only
  bool verbose = false;     // details too
  bool silent = false;      // nothing at all: another process speaks
  std::string prefix = {};  // of every line
  int width = 80;           // of the terminal
  // Gets every line as well, details too, whatever the rest says.
  FileAppender* log = nullptr;
  // Seconds since some moment; empty: the steady clock. Tests have their own.
  double (*clock)() = nullptr;
};

// For a stream as it is, a terminal or not. `no_color` and `term` are the values of those
// environment variables, nullptr where unset; who calls reads them.
ConsoleOptions console_options(std::FILE* stream, const char* no_color, const char* term);

// Lines may come from any thread. A line that the stream does not take is lost, so a closed
// terminal ends no run; one that the log does not take is the log's error.
class Console {
 public:
  Console(std::FILE* stream, const ConsoleOptions& options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  void line(std::string_view text);
  void detail(std::string_view text);   // if verbose
  void warning(std::string_view text);  // always, as "warning: text"

  // How far work of `total` units is. On a terminal the bar shows it with rate and time left, at
  // most ten times a second; elsewhere a plain line says so every ten seconds, unless the work
  // has `own_lines` that tell. `note` ends the bar: "loss 3.5792". A change of `what` begins anew.
  struct Progress {
    std::string_view what, unit;  // "step", "steps"
    std::int64_t done = 0, total = 0;
    std::string_view note = {};
    bool own_lines = false;
  };
  void progress(const Progress& progress);
  // Takes the bar away.
  void end_progress();

 private:
  void write(std::string_view text, std::string_view color);
  void draw_bar();
  void begin(const Progress& progress, double now);
  std::string numbers(const Progress& progress, double now) const;
  std::string bar(const Progress& progress, double now) const;

  std::mutex mutex_;
  std::FILE* stream_;
  ConsoleOptions options_;
  std::string what_, bar_;  // the work shown; the bar on the screen, empty if none is
  std::int64_t begin_done_ = 0;
  double begin_time_ = 0, shown_time_ = 0;
};

// "0:07", "2:03", "1:02:03", "3 d 4:05:06".
std::string duration_text(double seconds);

}  // namespace dew
