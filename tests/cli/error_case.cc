#include "tests/cli/error_case.h"

#include <sstream>

namespace dew {
namespace {

std::string line_that_begins(const std::string& text, const std::string& with) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(with)) return line;
  }
  return {};
}

}  // namespace

void refuse(const char* command, const ErrorCase& row, const Path& here) {
  // Nobody may look into the test's directory; what else is denied, the row denies.
  if (row.start.as_nobody) std::filesystem::permissions(here, std::filesystem::perms{0755});
  if (row.prepare) row.prepare(here);
  const auto before = snapshot(here);
  Words all = {command};
  all.insert(all.end(), row.words.begin(), row.words.end());
  Start start = row.start;
  start.directory = here;
  const Outcome outcome = dew(all, start);
  if (start.as_nobody && outcome.status == 127) GTEST_SKIP() << "nobody may not run the program";
  expect_error(outcome, row.status, row.says.empty() ? "" : row.says[0]);
  const std::string error = line_that_begins(outcome.err, "dew: error: ");
  for (const std::string& text : row.says) {
    EXPECT_NE(error.find(text), error.npos) << error << "\nwanted: " << text;
  }
  const std::string hint = line_that_begins(outcome.err, "hint: ");
  EXPECT_NE(hint.find(row.hint), hint.npos) << outcome.err << "\nwanted: " << row.hint;
  EXPECT_EQ(snapshot(here), before);
}

void write_file(const Path& path, const std::string& text) {
  create_directories(path.parent_path(), ErrorCode::internal);
  write_text(path, text);
}

void replace_in(const Path& path, const std::string& from, const std::string& to) {
  std::string text = read_text(path);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, text.npos) << from;
  write_text(path, text.replace(at, from.size(), to));
}

void cut_file(const Path& path, std::uintmax_t bytes) { std::filesystem::resize_file(path, bytes); }

void make_huge(const Path& path) {
  if (!std::filesystem::exists(path)) write_text(path, "x");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
}

void make_directory(const Path& path) { create_directories(path, ErrorCode::internal); }

void replace_by_directory(const Path& path) {
  remove_quietly(path);
  make_directory(path);
}

void make_read_only(const Path& directory) {
  std::filesystem::permissions(directory, std::filesystem::perms{0555});
}

std::vector<ErrorCase> operator+(std::vector<ErrorCase> rows, const std::vector<ErrorCase>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

std::vector<ErrorCase> common_errors(const std::string& command, const Words& good,
                                     const Words& printing) {
  std::vector<ErrorCase> rows = {
      {.name = "UnknownOption",
       .words = {"--quite"},
       .status = 2,
       .says = {command, "no option '--quite'", "the nearest is --quiet"},
       .hint = command + " --help"},
      {.name = "UnknownOptionWithValue",
       .words = {"--verbos=3"},
       .status = 2,
       .says = {"no option '--verbos=3'", "--verbose"}},
      {.name = "FlagWithValue", .words = {"--quiet=3"}, .status = 2, .says = {"--quiet takes no"}},
      {.name = "QuietAndVerbose",
       .words = {"--quiet", "--verbose"},
       .status = 2,
       .says = {"--verbose", "--quiet"}},
  };
  for (ErrorCase& row : rows) row.words.insert(row.words.begin(), good.begin(), good.end());
  if (printing.empty()) return rows;
  const auto output = [&](const char* name, const Start& start, const char* reason) {
    rows.push_back({.name = name,
                    .words = printing,
                    .status = 2,
                    .says = {"cannot write to standard output", reason},
                    .start = start});
    rows.back().words.emplace_back("--quiet");  // nothing but the error on standard error
  };
  output("ClosedOutput", {.close_stdout = true}, "Bad file descriptor");
  output("FullOutput", {.full_stdout = true}, "No space left on device");
  output("BrokenOutput", {.broken_stdout = true}, "Broken pipe");
  return rows;
}

}  // namespace dew
