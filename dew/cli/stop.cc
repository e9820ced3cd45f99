#include <csignal>

#include "dew/cli/cli.h"

namespace dew::cli {
namespace {

volatile std::sig_atomic_t signal_that_came = 0;

void remember(int signal) {
  signal_that_came = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void watch_stop_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    // What the parent ignores (nohup, background jobs of sh) stays ignored.
    if (std::signal(signal, remember) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

int stop_signal() { return signal_that_came; }

}  // namespace dew::cli
