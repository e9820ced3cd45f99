// Standard output and standard error.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "dew/base/format.h"
#include "dew/cli/cli.h"

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

// Bytes of the UTF-8 character at the front of `text`, 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (n == 0 || lead > 0xf4 || n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return n;
}

}  // namespace

ConsoleOptions stderr_options(const Verbosity& verbosity) {
  ConsoleOptions options = console_options(stderr, std::getenv("NO_COLOR"), std::getenv("TERM"));
  options.quiet = verbosity.quiet;
  options.verbose = verbosity.verbose;
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
    const std::size_t n = character_bytes(text);
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
