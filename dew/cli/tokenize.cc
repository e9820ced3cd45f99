#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/cli/cli.h"
#include "dew/data/tokenize.h"
#include "dew/data/tokenizers/load.h"
#include "dew/train/console.h"

namespace dew::cli {
namespace {

struct TokenizeArguments {
  Arguments inputs;
  std::string out, tokenizer = "byte";
  double val_fraction = 0.02;
  std::string text_field = "text";
  bool has_text_field = false, add_bos = false, parse_special = false, skip_invalid = false;
  bool json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew tokenize books/ web.jsonl.zst --tokenizer tokenizer.json --out data/mine
writes data/mine/train.bin, val.bin, meta.json and the tokenizer's file.)";

bool parse_tokenize(const Arguments& arguments, TokenizeArguments& a) {
  CLI::App app("Text to a directory of token ids, on all cores, in streaming memory.",
               "dew tokenize");
  app.footer(kExample);
  app.add_option("TEXT", a.inputs,
                 "text files, JSON lines (.jsonl), both also .gz and .zst, directories of them; -: "
                 "standard "
                 "input")
      ->required();
  app.add_option("--out", a.out, "directory to write; it must not exist or be empty")
      ->required()
      ->type_name("DIR");
  app.add_option("--tokenizer", a.tokenizer,
                 "'byte': an id is a byte; or a tokenizer's file or directory")
      ->type_name("FILE");
  add_number(app, "--val-fraction", a.val_fraction,
             "share of the ids, from the front, for val.bin [0.02]");
  app.add_flag("--json", a.json, "print the result as one JSON document");
  app.add_option("--text-field", a.text_field,
                 "the member of JSON lines that is the text; standard input is JSON lines then")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_flag("--add-bos", a.add_bos, "begin every document with the tokenizer's begin token");
  app.add_flag("--parse-special", a.parse_special,
               "find control tokens that the text spells; otherwise text is text");
  app.add_flag("--skip-invalid", a.skip_invalid,
               "leave out lines that are not UTF-8 or not such JSON, and count them");
  add_verbosity(app, a.verbosity);
  if (parse(app, arguments)) return true;
  a.has_text_field = app.count("--text-field") > 0;
  return false;
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
                              {"skipped", r.skipped},
                              {"vocab_size", m.vocab_size},
                              {"train_tokens", m.train_tokens},
                              {"val_tokens", m.val_tokens}};
    print(json.dump() + "\n");
  }
  console.line(format("{}: {} training and {} validation tokens from {} document(s)",
                      one_line(a.out), m.train_tokens, m.val_tokens, m.documents.value_or(0)));
}

void report_left_out(const TokenizeResult& r, Console& console) {
  if (r.empty_documents > 0) console.warning(format("{} empty document(s)", r.empty_documents));
  if (r.skipped > 0) console.warning(format("{} broken line(s) left out", r.skipped));
  if (r.hidden > 0) console.detail(format("{} hidden name(s) left out", r.hidden));
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  TokenizeArguments a;
  if (parse_tokenize(arguments, a)) return 0;
  OpenedTokenizer opened = open_tokenizer(a.tokenizer);
  if (a.json) require_standard_output();
  watch_stop_signals();
  Console console(stderr, stderr_options(a.verbosity));
  const TokenizeOptions options{
      .inputs = {a.inputs.begin(), a.inputs.end()},
      .out = a.out,
      .val_fraction = a.val_fraction,
      .text_field = a.text_field,
      .stdin_is_json_lines = a.has_text_field,
      .add_bos = a.add_bos,
      .special_in_text = a.parse_special,
      .skip_invalid = a.skip_invalid,
      .files = std::move(opened.files),
      .progress = [&](const TokenizeProgress& p) { show_progress(console, p); }};
  const TokenizeResult result = tokenize(*opened.tokenizer, options);
  console.end_progress();
  report_left_out(result, console);
  report_tokens(result, a, console);
  return 0;
}

}  // namespace dew::cli
