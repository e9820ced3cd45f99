// CLI11 at work: the options that commands share, and errors in our form.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "dew/base/format.h"
#include "dew/cli/cli.h"

namespace dew::cli {

void add_verbosity(CLI::App& app, Verbosity& verbosity) {
  CLI::Option* quiet =
      app.add_flag("-q,--quiet", verbosity.quiet, "print errors and warnings only");
  app.add_flag("-v,--verbose", verbosity.verbose, "print more")->excludes(quiet);
}

void add_integer(CLI::App& app, const std::string& option, std::int64_t& value,
                 const std::string& description) {
  const auto read = [&value, option](const std::string& text) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end) return;
    fail(ErrorCode::usage,
         format("{} = '{}', but it must be a whole number below 2^63", option, one_line(text)));
  };
  app.add_option_function<std::string>(option, read, description)->type_name("N");
}

void add_number(CLI::App& app, const std::string& option, double& value,
                const std::string& description) {
  const auto read = [&value, option](const std::string& text) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && std::isfinite(value)) return;
    fail(ErrorCode::usage,
         format("{} = '{}', but it must be a finite number", option, one_line(text)));
  };
  app.add_option_function<std::string>(option, read, description)->type_name("X");
}

void refuse_unbuilt(const std::string& what) {
  fail(ErrorCode::usage, format("{} is not built yet", what));
}

void add_unbuilt_flag(CLI::App& app, const std::string& flag) {
  const std::string what = app.get_name() + " " + flag;
  app.add_flag_callback(flag, [what] { refuse_unbuilt(what); })->group("");
}

void add_unbuilt_option(CLI::App& app, const std::string& option) {
  const std::string what = app.get_name() + " " + option;
  const auto refuse = [what](const std::string&) { refuse_unbuilt(what); };
  app.add_option_function<std::string>(option, refuse)->group("");
}

bool parse(CLI::App& app, const Arguments& arguments) {
  app.set_help_flag("-h,--help", "print this text");
  app.get_formatter()->column_width(34);
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // it takes them from the back
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return true;
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::usage, one_line(error.what()),
         format("{} --help says how it is called", app.get_name()));
  }
  return false;
}

}  // namespace dew::cli
