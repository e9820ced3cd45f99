// CLI11 at work: the options that commands share, and errors in our form.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "dew/base/format.h"
#include "dew/base/nearest.h"
#include "dew/cli/cli.h"

namespace dew::cli {
namespace {

constexpr std::size_t kMostShown = 160;  // of what somebody typed

// "; the nearest is --json", of the options that the help text shows.
std::string nearest_option(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string_view typed = word.substr(0, word.find('='));
  std::vector<std::string_view> views;  // those that it begins, or all
  if (typed.size() > 2)
    std::ranges::copy_if(names, std::back_inserter(views),
                         [&](const std::string& name) { return name.starts_with(typed); });
  if (views.empty()) views.assign(names.begin(), names.end());
  return format("; the nearest is {}", nearest(typed, views));
}

// A number of values other than the one of an option or the none of a flag, in our words.
std::string wrong_count(std::string_view message) {
  std::string option(message.substr(0, message.find_first_of(": ")));
  if (!option.starts_with('-')) option.insert(0, option.size() > 1 ? "--" : "-");
  if (message.ends_with("missing")) return format("{} needs a value", option);
  if (message.ends_with("override")) return format("{} takes no value", option);
  return format("{} is given more than once", option);
}

std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  // What nobody understands first: it tells more than what is missing because of it.
  const std::vector<std::string> extras = app.remaining();
  for (const std::string& word : extras) {
    if (!word.starts_with('-')) continue;
    return format("there is no option '{}'{}", word.substr(0, kMostShown),
                  nearest_option(app, word));
  }
  const bool missing = error.get_name() == "RequiredError";
  if (!extras.empty() && !missing)
    return format("'{}' is one argument too many", extras[0].substr(0, kMostShown));
  return error.get_name() == "ArgumentMismatch" ? wrong_count(error.what()) : error.what();
}

}  // namespace

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
  for (CLI::Option* option : app.get_options()) option->disable_flag_override();
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // it takes them from the back
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return true;
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::usage, one_line(format("{}: {}", app.get_name(), complaint(app, error))),
         format("{} --help says how it is called", app.get_name()));
  }
  return false;
}

}  // namespace dew::cli
