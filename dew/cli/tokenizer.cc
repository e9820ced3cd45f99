// Tokenizers by themselves: texts to ids and back, line by line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/nearest.h"
#include "dew/cli/cli.h"
#include "dew/data/tokenizers/load.h"

namespace dew::cli {
namespace {

constexpr std::size_t kRead = std::size_t{1} << 16;
constexpr std::size_t kMostLine = std::size_t{1} << 30;

constexpr const char* kHelp = R"(Tokenizers by themselves.

Usage: dew tokenizer train TEXT... --vocab-size N --out FILE [OPTIONS]
       dew tokenizer encode|decode FILE [OPTIONS]

  train     byte-level BPE from text
  encode    JSON strings from standard input, a line each, to JSON arrays of ids
  decode    the reverse

Example:
  echo '"In the beginning"' | dew tokenizer encode tokenizer.json

`dew tokenizer COMMAND --help` says more.
)";

// What there is, at least a byte; nothing at the end.
std::size_t read_some(std::string& piece) {
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EINTR) continue;
    fail(ErrorCode::data,
         format("cannot read standard input: {}", std::generic_category().message(errno)));
  }
}

// Calls visit(line, its number) for each line of standard input, without its end.
template <typename Visit>
void each_line(Visit visit) {
  std::string held;
  std::string piece(kRead, '\0');
  std::int64_t number = 0;
  for (;;) {
    const std::size_t got = read_some(piece);
    std::string_view rest = std::string_view(piece).substr(0, got);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      held += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      visit(held, ++number);
      held.clear();
    }
    held += rest;
    if (held.size() > kMostLine) {
      fail(ErrorCode::data,
           format("line {} of standard input is longer than {} MiB", number + 1, kMostLine >> 20));
    }
    if (got == 0) break;
  }
  if (!held.empty()) visit(held, ++number);
}

std::string line_name(std::int64_t number) { return format("standard input, line {}", number); }

// What goes wrong with a line is said with its number.
template <typename Work>
void with_line(std::int64_t number, Work work) {
  try {
    work();
  } catch (const Error& error) {
    const std::string place = line_name(number);
    if (std::string_view(error.what()).starts_with(place)) throw;
    fail(error.code(), format("{}: {}", place, error.what()), error.hint());
  }
}

int encode(const Arguments& arguments) {
  std::string file;
  bool plain = false;
  Verbosity verbosity;
  CLI::App app("JSON strings from standard input, a line each, to JSON arrays of ids.",
               "dew tokenizer encode");
  app.add_option("FILE", file, "a tokenizer's file or directory, or 'byte'")->required();
  app.add_flag("--plain", plain, "without the tokens that the file puts around a text");
  add_verbosity(app, verbosity);
  app.footer("Example:\n  echo '\"In the beginning\"' | dew tokenizer encode tokenizer.json");
  if (parse(app, arguments)) return 0;
  const OpenedTokenizer opened = open_tokenizer(file);
  require_standard_output();
  const auto encoder = opened.tokenizer->encoder({.special_in_text = true, .frame = !plain});
  each_line([&](const std::string& line, std::int64_t number) {
    with_line(number, [&] {
      const Json text = parse_json(line, line_name(number), ErrorCode::data);
      if (!text.is_string()) fail(ErrorCode::data, "a JSON string is expected");
      std::vector<std::int32_t> ids;
      encoder->feed(text.get_ref<const std::string&>(), ids);
      encoder->finish(ids);
      print(format("[{}]\n", fmt::join(ids, ",")));
    });
  });
  return 0;
}

std::vector<std::int32_t> ids_of(const Json& json) {
  if (!json.is_array()) fail(ErrorCode::data, "a JSON array of ids is expected");
  std::vector<std::int32_t> ids;
  for (const Json& id : json) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7fffffff)
      fail(ErrorCode::data, format("{} is no id", id.dump().substr(0, 40)));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

// An array as anybody writes it, without the tree that JSON makes of it; none if it is another one.
std::optional<std::vector<std::int32_t>> plain_ids(std::string_view line) {
  if (line.size() < 3 || line.front() != '[' || line.back() != ']') return std::nullopt;
  std::vector<std::int32_t> ids;
  const char* at = line.data();  // "[" or ","
  const char* const end = at + line.size() - 1;
  do {
    at += at + 1 != end && at[1] == ' ' ? 2 : 1;
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    const bool odd = *at == '-' || (*at == '0' && stop - at > 1);
    if (error != std::errc() || odd || (stop != end && *stop != ',')) return std::nullopt;
    ids.push_back(id);
    at = stop;
  } while (at != end);
  return ids;
}

std::vector<std::int32_t> read_ids(const std::string& line, std::int64_t number) {
  if (auto ids = plain_ids(line)) return std::move(*ids);
  return ids_of(parse_json(line, line_name(number), ErrorCode::data));
}

int decode(const Arguments& arguments) {
  std::string file;
  bool all = false;
  Verbosity verbosity;
  CLI::App app("JSON arrays of ids from standard input, a line each, to JSON strings.",
               "dew tokenizer decode");
  app.add_option("FILE", file, "a tokenizer's file or directory, or 'byte'")->required();
  app.add_flag("--all", all, "with control tokens, which are left out otherwise");
  add_verbosity(app, verbosity);
  app.footer("Example:\n  echo '[1, 2, 3]' | dew tokenizer decode tokenizer.json");
  if (parse(app, arguments)) return 0;
  const OpenedTokenizer opened = open_tokenizer(file);
  require_standard_output();
  each_line([&](const std::string& line, std::int64_t number) {
    with_line(number, [&] {
      const std::string text =
          opened.tokenizer->decode(read_ids(line, number), {.skip_special = !all});
      // What is no text is shown as such: JSON can hold nothing else.
      print(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    });
  });
  return 0;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print(kHelp);
    return 0;
  }
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (name == "encode") return encode(rest);
  if (name == "decode") return decode(rest);
  if (name == "train") return tokenizer_train_command(rest);
  constexpr std::string_view kNames[] = {"train", "encode", "decode"};
  fail(ErrorCode::usage,
       format("there is no command 'tokenizer {}'; the nearest is {}", name.substr(0, 160),
              nearest(name, kNames)),
       "dew tokenizer --help lists the commands");
}

}  // namespace dew::cli
