#include "dew/train/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dew/base/format.h"
#include "dew/base/text.h"

namespace dew {
namespace {

constexpr double kBarPeriod = 0.1, kLinePeriod = 10;
constexpr int kBarCells = 24, kMinWidth = 20;
constexpr std::string_view kYellow = "\033[33m", kGreen = "\033[32m", kPlain = "\033[0m";
constexpr std::string_view kLineStart = "\r", kClearRest = "\033[K";

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col < kMinWidth) return 80;
  return size.ws_col;
}

void put(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

void copy_to_log(FileAppender* log, std::string_view prefix, std::string_view text) {
  if (log != nullptr) log->append(format("{}{}\n", prefix, text));
}

std::string cells(double fraction) {
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarCells);
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarCells - full), '.') + "]";
}

}  // namespace

ConsoleOptions console_options(std::FILE* stream, const char* no_color, const char* term) {
  ConsoleOptions options;
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  options.terminal = ::isatty(::fileno(stream)) != 0 && !dumb;
  // https://no-color.org: set and not empty.
  options.color = options.terminal && (no_color == nullptr || *no_color == '\0');
  if (options.terminal) options.width = terminal_width(stream);
  return options;
}

Console::Console(std::FILE* stream, const ConsoleOptions& options)
    : stream_(stream), options_(options) {
  if (options_.clock == nullptr) options_.clock = steady_seconds;
  if (options_.silent) options_.quiet = true;
}

Console::~Console() { end_progress(); }

// The private functions expect the mutex to be held.

void Console::write(std::string_view text, std::string_view color) {
  if (!bar_.empty()) put(stream_, format("{}{}", kLineStart, kClearRest));
  const bool colored = options_.color && !color.empty();
  const std::string& prefix = options_.prefix;
  put(stream_,
      colored ? format("{}{}{}{}\n", prefix, color, text, kPlain) : format("{}{}\n", prefix, text));
  draw_bar();
}

void Console::draw_bar() {
  if (!bar_.empty()) put(stream_, format("{}{}{}", kLineStart, bar_, kClearRest));
  std::fflush(stream_);
}

void Console::line(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (!options_.quiet) write(text, "");
  copy_to_log(options_.log, "", text);
}

void Console::detail(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (options_.verbose && !options_.quiet) write(text, "");
  copy_to_log(options_.log, "", text);
}

void Console::warning(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  if (!options_.silent) write(format("warning: {}", text), kYellow);
  copy_to_log(options_.log, "warning: ", text);
}

void Console::begin(const Progress& p, double now) {
  what_ = p.what;
  begin_done_ = p.done;
  begin_time_ = now;
  shown_time_ = options_.terminal ? now - 2 * kBarPeriod : now;  // a bar at once, a line later
}

// "120/400  35.2 steps/s  0:08 left  loss 3.5792"
std::string Console::numbers(const Progress& p, double now) const {
  std::string text = p.total > 0 ? format("{}/{}", p.done, p.total) : format("{}", p.done);
  const double passed = now - begin_time_;
  if (p.done > begin_done_ && passed > 0) {
    const double rate = static_cast<double>(p.done - begin_done_) / passed;
    text += format("  {} {}/s", short_number(rate), p.unit);
    if (p.total >= p.done) {
      text += format("  {} left", duration_text(static_cast<double>(p.total - p.done) / rate));
    }
  }
  return p.note.empty() ? text : format("{}  {}", text, p.note);
}

// "step [####....] 120/400 ..."; where that does not fit, without the cells, and cut.
std::string Console::bar(const Progress& p, double now) const {
  const std::string text = numbers(p, now);
  const auto width = static_cast<std::size_t>(std::max(options_.width, kMinWidth)) - 1;
  if (p.total > 0 && p.what.size() + kBarCells + text.size() + 4 <= width) {
    const std::string drawn = cells(static_cast<double>(p.done) / static_cast<double>(p.total));
    return options_.color ? format("{} {}{}{} {}", p.what, kGreen, drawn, kPlain, text)
                          : format("{} {} {}", p.what, drawn, text);
  }
  return format("{} {}", p.what, text).substr(0, width);
}

void Console::progress(const Progress& p) {
  if (options_.quiet || (!options_.terminal && p.own_lines)) return;
  const std::scoped_lock lock(mutex_);
  const double now = options_.clock();
  if (what_ != p.what) begin(p, now);
  const double period = options_.terminal ? kBarPeriod : kLinePeriod;
  if (now - shown_time_ < period) return;
  shown_time_ = now;
  if (!options_.terminal) return write(format("{} {}", p.what, numbers(p, now)), "");
  bar_ = bar(p, now);
  draw_bar();
}

void Console::end_progress() {
  const std::scoped_lock lock(mutex_);
  if (!bar_.empty()) put(stream_, format("{}{}", kLineStart, kClearRest));
  std::fflush(stream_);
  bar_.clear();
  what_.clear();
}

std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const auto total = static_cast<std::int64_t>(std::ceil(std::max(seconds, 0.0)));
  const std::int64_t s = total % 60, m = total / 60 % 60, h = total / 3600 % 24, d = total / 86400;
  if (d > 0) return format("{} d {}:{:02}:{:02}", d, h, m, s);
  if (h > 0) return format("{}:{:02}:{:02}", h, m, s);
  return format("{}:{:02}", m, s);
}

}  // namespace dew
