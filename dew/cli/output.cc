// Standard output and standard error.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dew/base/format.h"
#include "dew/base/utf8.h"
#include "dew/cli/cli.h"
#include "dew/cli/job.h"

namespace dew::cli {
namespace {

// Writes all of it; otherwise errno says why not.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

[[noreturn]] void refuse_output() {
  fail(ErrorCode::usage, format("cannot write to standard output ({})", std::strerror(errno)));
}

}  // namespace

ConsoleOptions stderr_options(const Verbosity& verbosity) {
  ConsoleOptions options = console_options(stderr, std::getenv("NO_COLOR"), std::getenv("TERM"));
  options.quiet = verbosity.quiet;
  options.verbose = verbosity.verbose;
  options.silent = !speaks() && !verbosity.verbose;
  if (verbosity.verbose) options.prefix = rank_prefix();
  return options;
}

void print(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text)) refuse_output();
}

void require_standard_output() {
  // A write of nothing fails on a descriptor that cannot be written to, and does nothing else.
  if (::write(STDOUT_FILENO, "", 0) < 0) refuse_output();
}

void note(std::string_view line) { write_all(STDERR_FILENO, std::string(line) + "\n"); }

std::string one_line(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const Utf8Front front = utf8_front(text);
    const std::size_t n = front.kind == Utf8Front::Kind::character ? front.bytes : 0;
    const auto c = static_cast<unsigned char>(text[0]);
    if (c == '\n') {
      line += ' ';
    } else if (n == 0 || c < 0x20 || c == 0x7f) {
      line += format("\\x{:02x}", c);
    } else {
      line += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return line;
}

}  // namespace dew::cli
