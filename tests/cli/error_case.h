// One row of a table of errors: what somebody did wrong, and what they are told. Every command has
// one table; a row is run by refuse().
#pragma once

#include <functional>

#include "tests/cli/program.h"

namespace dew {

struct ErrorCase {
  const char* name;
  Words words;  // behind the command's name
  int status;
  std::vector<std::string> says;  // all of it in the one line of the error: values, what works
  // What is made or damaged in the working directory first.
  std::function<void(const Path& here)> prepare = {};
  Start start = {};
  std::string hint = {};  // in the second line
};

// So that a failed row prints its name.
inline void PrintTo(const ErrorCase& row, std::ostream* out) { *out << row.name; }

inline std::string name_of(const testing::TestParamInfo<ErrorCase>& row) { return row.param.name; }

// Runs `dew COMMAND` in the directory `here`: one line with everything that the row says, its
// status, nothing on standard output, and every file is as it was. Skips where the row needs the
// unprivileged user and there is none.
void refuse(const char* command, const ErrorCase& row, const Path& here);

// ---- for `prepare`

void write_file(const Path& path, const std::string& text);  // its directory as well
// One occurrence of `from`, which must be there.
void replace_in(const Path& path, const std::string& from, const std::string& to);
void cut_file(const Path& path, std::uintmax_t bytes);
void make_huge(const Path& path);  // a terabyte of nothing
void make_directory(const Path& path);
// A directory where a file was.
void replace_by_directory(const Path& path);
// Everybody may look into the test's directory, nobody may write there.
void make_read_only(const Path& directory);

// Rows that every command has, `good` being words with which it works: options that do not exist,
// and values for flags. With `printing`, words with which it prints to standard output and writes
// nothing: that this is closed, full, or read by nobody.
std::vector<ErrorCase> common_errors(const std::string& command, const Words& good,
                                     const Words& printing = {});
std::vector<ErrorCase> operator+(std::vector<ErrorCase> rows, const std::vector<ErrorCase>& more);

}  // namespace dew
