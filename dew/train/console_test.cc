#include "dew/train/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dew/base/text.h"

#include "dew/base/file_test_support.h"

namespace dew {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

double now;
double test_clock() { return now; }

// A console that writes into memory.
class Screen {
 public:
  explicit Screen(ConsoleOptions options) {
    now = 0;
    options.clock = test_clock;
    stream_ = ::open_memstream(&text_, &size_);
    console_ = std::make_unique<Console>(stream_, options);
  }
  ~Screen() {
    console_.reset();
    std::fclose(stream_);
    std::free(text_);
  }
  Console* operator->() { return console_.get(); }
  std::string take() {
    std::fflush(stream_);
    std::string text(text_ + seen_, size_ - seen_);
    seen_ = size_;
    return text;
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0, seen_ = 0;
  std::FILE* stream_;
  std::unique_ptr<Console> console_;
};

TEST(Console, PlainLines) {
  Screen screen({});
  screen->line("step 10: loss 3.5792");
  screen->detail("not asked for");
  screen->warning("careful");
  EXPECT_EQ(screen.take(), "step 10: loss 3.5792\nwarning: careful\n");
}

TEST(Console, QuietAndVerbose) {
  Screen quiet({.quiet = true});
  quiet->line("a");
  quiet->detail("b");
  quiet->progress({.what = "step", .unit = "steps", .done = 1, .total = 2});
  quiet->warning("c");
  EXPECT_EQ(quiet.take(), "warning: c\n");
  Screen verbose({.verbose = true});
  verbose->detail("b");
  EXPECT_EQ(verbose.take(), "b\n");
}

TEST(Console, TheLogGetsEverythingPlain) {
  const TemporaryDirectory directory;
  FileAppender log(directory / "log.txt", ErrorCode::checkpoint);
  {
    Screen screen({.terminal = true, .color = true, .quiet = true, .log = &log});
    screen->line("a");
    screen->detail("b");
    screen->warning("c");
    screen->progress({.what = "step", .unit = "steps", .done = 1, .total = 2});
  }
  EXPECT_EQ(read_text(directory / "log.txt"), "a\nb\nwarning: c\n");
}

// A full disk is an error, but what there is to say is on the screen.
TEST(Console, ALogThatIsFullIsAnError) {
  FileAppender log("/dev/full", ErrorCode::checkpoint);
  Screen screen({.log = &log});
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { screen->line("a"); }),
              HasSubstr("No space left"));
  EXPECT_THAT(error_of(ErrorCode::checkpoint, [&] { screen->warning("b"); }),
              HasSubstr("/dev/full"));
  EXPECT_EQ(screen.take(), "a\nwarning: b\n");
}

TEST(Console, ProgressInAFileIsALineNowAndThen) {
  Screen screen({});
  for (int i = 0; i <= 25; ++i) {
    now = i;
    screen->progress(
        {.what = "tokenize", .unit = "bytes", .done = i * 2'000'000, .total = 100'000'000});
  }
  EXPECT_EQ(screen.take(),
            "tokenize 20000000/100000000  2.00M bytes/s  0:40 left\n"
            "tokenize 40000000/100000000  2.00M bytes/s  0:30 left\n");
  now = 100;
  screen->progress({.what = "step", .unit = "steps", .done = 1, .total = 2, .own_lines = true});
  EXPECT_EQ(screen.take(), "");
}

TEST(Console, TheBarIsDrawnOverItself) {
  Screen screen({.terminal = true, .width = 100});
  Console::Progress p = {.what = "step", .unit = "steps", .done = 0, .total = 48};
  screen->progress(p);
  EXPECT_EQ(screen.take(), "\rstep [........................] 0/48\033[K");
  now = 2, p.done = 12, p.note = "loss 3.5792";
  screen->progress(p);
  EXPECT_EQ(screen.take(),
            "\rstep [######..................] 12/48  6.00 steps/s  0:06 left  loss 3.5792\033[K");
  now = 2.05, p.done = 13;
  screen->progress(p);
  EXPECT_EQ(screen.take(), "");  // too soon
  screen->line("step 12: loss 3.5792");
  EXPECT_EQ(screen.take(),
            "\r\033[Kstep 12: loss 3.5792\n"
            "\rstep [######..................] 12/48  6.00 steps/s  0:06 left  loss 3.5792\033[K");
  screen->end_progress();
  EXPECT_EQ(screen.take(), "\r\033[K");
  screen->line("done");
  EXPECT_EQ(screen.take(), "done\n");
}

TEST(Console, ColorsOnlyWhereAsked) {
  Screen color({.terminal = true, .color = true});
  color->warning("w");
  color->progress({.what = "a", .unit = "b", .done = 0, .total = 2});
  const std::string text = color.take();
  EXPECT_THAT(text, HasSubstr("\033[33mwarning: w\033[0m\n"));
  EXPECT_THAT(text, HasSubstr("a \033[32m[....."));
  Screen plain({.terminal = true});
  plain->warning("w");
  EXPECT_EQ(plain.take(), "warning: w\n");
}

TEST(Console, TheBarFitsTheTerminal) {
  for (const int width : {1, 20, 40, 60, 80}) {
    Screen screen({.terminal = true, .width = width});
    Console::Progress p = {.what = "step", .unit = "steps", .done = 0, .total = 400};
    screen->progress(p);
    screen.take();
    now = 1, p.done = 100, p.note = "loss 3.5792";
    screen->progress(p);
    EXPECT_LT(screen.take().size(), static_cast<std::size_t>(std::max(width, 20)) + 4);
  }
}

TEST(Console, WorkOfUnknownSizeAndWorkThatChanges) {
  Screen screen({.terminal = true});
  screen->progress({.what = "read", .unit = "lines", .done = 5});
  EXPECT_EQ(screen.take(), "\rread 5\033[K");
  now = 1;
  screen->progress({.what = "read", .unit = "lines", .done = 10});
  EXPECT_EQ(screen.take(), "\rread 10  5.00 lines/s\033[K");
  screen->progress({.what = "evaluate", .unit = "batches", .done = 0, .total = 3});
  EXPECT_THAT(screen.take(), HasSubstr("evaluate [....."));
}

TEST(Console, LinesFromSeveralThreadsStayWhole) {
  Screen screen({.terminal = true});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) screen->line("0123456789");
      });
    }
  }
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += "0123456789\n";
  EXPECT_EQ(screen.take(), expected);
}

TEST(Console, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  const ConsoleOptions options = console_options(file, nullptr, "xterm");
  std::fclose(file);
  EXPECT_FALSE(options.terminal);
  EXPECT_FALSE(options.color);
}

TEST(Console, APseudoTerminalIsOne) {
  const int main_end = ::posix_openpt(O_RDWR);
  if (main_end < 0 || ::grantpt(main_end) != 0 || ::unlockpt(main_end) != 0) GTEST_SKIP();
  std::FILE* file = std::fopen(::ptsname(main_end), "w");
  if (file == nullptr) GTEST_SKIP();
  EXPECT_TRUE(console_options(file, nullptr, "xterm").color);
  EXPECT_TRUE(console_options(file, "", "xterm").color);
  EXPECT_FALSE(console_options(file, "1", "xterm").color);
  EXPECT_TRUE(console_options(file, "1", "xterm").terminal);
  EXPECT_FALSE(console_options(file, nullptr, "dumb").terminal);
  EXPECT_FALSE(console_options(file, nullptr, nullptr).terminal);
  EXPECT_GE(console_options(file, nullptr, "xterm").width, 20);
  std::fclose(file);
  ::close(main_end);
}

TEST(Console, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(6.2), "0:07");
  EXPECT_EQ(duration_text(123), "2:03");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(273906), "3 d 4:05:06");
  EXPECT_EQ(duration_text(1e300), "?");
  EXPECT_EQ(duration_text(-1), "0:00");
}

TEST(Console, ShortNumbers) {
  EXPECT_EQ(short_number(0.314), "0.31");
  EXPECT_EQ(short_number(9.996), "10.0");
  EXPECT_EQ(short_number(35.23), "35.2");
  EXPECT_EQ(short_number(99.96), "100");
  EXPECT_EQ(short_number(999.4), "999");
  EXPECT_EQ(short_number(999.6), "1.00k");
  EXPECT_EQ(short_number(12345678), "12.3M");
}

}  // namespace
}  // namespace dew
