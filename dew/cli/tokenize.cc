#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/cli/cli.h"
#include "dew/data/tokenize.h"
#include "dew/data/tokenizer.h"
#include "dew/train/console.h"

namespace dew::cli {
namespace {

struct TokenizeArguments {
  Arguments inputs;
  std::string out, tokenizer = "byte";
  double val_fraction = 0.02;
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew tokenize books/ letters.txt --out data/mine
writes data/mine/train.bin, val.bin and meta.json.)";

bool parse_tokenize(const Arguments& arguments, TokenizeArguments& a) {
  CLI::App app("Text files to a directory of token ids, in streaming memory.", "dew tokenize");
  app.footer(kExample);
  app.add_option("TEXT", a.inputs, "text files, and directories of them")->required();
  app.add_option("--out", a.out, "directory to write; it must not exist or be empty")
      ->required()
      ->type_name("DIR");
  app.add_option("--tokenizer", a.tokenizer, "'byte': an id is a byte")->type_name("NAME");
  add_number(app, "--val-fraction", a.val_fraction,
             "share of the ids, from the front, for val.bin [0.02]");
  app.add_flag("--json", a.json, "print the result as one JSON document");
  add_unbuilt_option(app, "--text-field");
  add_unbuilt_flag(app, "--add-bos");
  add_verbosity(app, a.verbosity);
  return parse(app, arguments);
}

void show_progress(Console& console, const TokenizeProgress& p) {
  if (const int signal = stop_signal()) throw Stopped{signal};  // leaves nothing behind
  console.progress({.what = "tokenize", .unit = "B", .done = p.bytes, .total = p.total_bytes});
}

void report_tokens(const TokenizeResult& r, const TokenizeArguments& a, Console& console) {
  const TokenMeta& m = r.meta;
  if (a.json) {
    const OrderedJson json = {{"out", one_line(a.out)},
                              {"bytes", r.bytes},
                              {"documents", m.documents.value_or(0)},
                              {"vocab_size", m.vocab_size},
                              {"train_tokens", m.train_tokens},
                              {"val_tokens", m.val_tokens}};
    print(json.dump() + "\n");
  }
  console.line(format("{}: {} training and {} validation tokens from {} document(s)",
                      one_line(a.out), m.train_tokens, m.val_tokens, m.documents.value_or(0)));
}

void report_left_out(const TokenizeResult& r, Console& console) {
  if (r.empty_documents > 0) console.warning(format("{} empty file(s)", r.empty_documents));
  if (r.hidden > 0) console.detail(format("{} hidden name(s) left out", r.hidden));
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  TokenizeArguments a;
  if (parse_tokenize(arguments, a)) return 0;
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(a.tokenizer);
  if (a.json) require_standard_output();
  watch_stop_signals();
  Console console(stderr, stderr_options(a.verbosity));
  const TokenizeOptions options{
      .inputs = {a.inputs.begin(), a.inputs.end()},
      .out = a.out,
      .val_fraction = a.val_fraction,
      .progress = [&](const TokenizeProgress& p) { show_progress(console, p); }};
  const TokenizeResult result = tokenize(*tokenizer, options);
  console.end_progress();
  report_left_out(result, console);
  report_tokens(result, a, console);
  return 0;
}

}  // namespace dew::cli
