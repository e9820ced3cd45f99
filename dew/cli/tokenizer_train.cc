// A byte-level BPE from text.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/text.h"
#include "dew/cli/cli.h"
#include "dew/data/count_words.h"
#include "dew/data/tokenizers/bpe_trainer.h"

namespace dew::cli {
namespace {

struct TrainTokenizerArguments {
  Arguments inputs, special = {"<|endoftext|>"};
  std::string out, text_field = "text";
  std::int64_t vocab_size = 0, min_count = 2;
  bool has_text_field = false, skip_invalid = false, json = false;
  Verbosity verbosity;
};

constexpr const char* kExample =
    R"(Example:
  dew tokenizer train books/ web.jsonl.zst --vocab-size 16384 --out tokenizer.json
  dew tokenize books/ --tokenizer tokenizer.json --out data/mine
The same text gives the same file, whatever the order of the files and the number of cores.)";

bool parse_train(const Arguments& arguments, TrainTokenizerArguments& a) {
  CLI::App app("Byte-level BPE from text, as a tokenizer.json.", "dew tokenizer train");
  app.footer(kExample);
  app.add_option("TEXT", a.inputs,
                 "text files, JSON lines (.jsonl), both also .gz and .zst, directories of them; -: "
                 "standard input")
      ->required();
  add_integer(app, "--vocab-size", a.vocab_size,
              "tokens, the 256 bytes and control tokens included");
  app.get_option("--vocab-size")->required();
  app.add_option("--out", a.out, "file to write; it must not exist")->required()->type_name("FILE");
  add_integer(app, "--min-count", a.min_count, "pairs that occur less become no tokens [2]");
  app.add_option("--special", a.special,
                 "a control token, which takes a first id; once for each [<|endoftext|>]")
      ->type_name("TOKEN")
      ->allow_extra_args(false);
  app.add_option("--text-field", a.text_field,
                 "the member of JSON lines that is the text; standard input is JSON lines then")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_flag("--skip-invalid", a.skip_invalid,
               "leave out lines that are not UTF-8 or not such JSON, and count them");
  app.add_flag("--json", a.json, "print the result as one JSON document");
  add_verbosity(app, a.verbosity);
  if (parse(app, arguments)) return true;
  a.has_text_field = app.count("--text-field") > 0;
  return false;
}

void check(const TrainTokenizerArguments& a) {
  if (a.min_count < 1)
    fail(ErrorCode::usage, format("--min-count = {}, but it must be 1 or more", a.min_count));
  if (a.out.empty()) fail(ErrorCode::usage, "--out is empty");
  if (file_kind(a.out, ErrorCode::usage) != FileKind::missing) {
    fail(ErrorCode::usage, format("'{}' exists: nothing is written over", a.out),
         "give another --out, or move that one away");
  }
}

CountedWords count(const TrainTokenizerArguments& a, Console& console) {
  CountWordsOptions options{.inputs = {a.inputs.begin(), a.inputs.end()},
                            .text_field = a.text_field,
                            .stdin_is_json_lines = a.has_text_field,
                            .skip_invalid = a.skip_invalid};
  options.progress = [&](std::int64_t bytes, std::int64_t total) {
    if (const int signal = stop_signal()) throw Stopped{signal};
    console.progress({.what = "count", .unit = "B", .done = bytes, .total = total});
  };
  CountedWords counted = count_words(byte_level_words(), options);
  console.end_progress();
  if (counted.bytes == 0) fail(ErrorCode::data, "there is no text");
  if (counted.skipped > 0) console.warning(format("{} broken line(s) left out", counted.skipped));
  return counted;
}

TrainedBpe learn(const TrainTokenizerArguments& a, const CountedWords& counted, Console& console) {
  BpeTraining training{.vocab_size = a.vocab_size, .special = a.special, .min_count = a.min_count};
  training.progress = [&](std::int64_t tokens) {
    if (const int signal = stop_signal()) throw Stopped{signal};
    console.progress({.what = "train", .unit = "tokens", .done = tokens, .total = a.vocab_size});
  };
  TrainedBpe trained = train_bpe(counted.words, training);
  console.end_progress();
  return trained;
}

}  // namespace

int tokenizer_train_command(const Arguments& arguments) {
  TrainTokenizerArguments a;
  if (parse_train(arguments, a)) return 0;
  check(a);
  train_bpe({}, {.vocab_size = a.vocab_size, .special = a.special});  // says what cannot be, first
  if (a.json) require_standard_output();
  watch_stop_signals();
  Console console(stderr, stderr_options(a.verbosity));
  const CountedWords counted = count(a, console);
  const TrainedBpe trained = learn(a, counted, console);
  write_file_atomic(a.out, tokenizer_json_of(trained), ErrorCode::data);
  if (trained.vocab_size() < a.vocab_size) {
    console.warning(format("{} tokens, not {}: no other pair occurs {} times", trained.vocab_size(),
                           a.vocab_size, a.min_count));
  }
  console.line(format("{}: {} tokens from {} words of {}B", one_line(a.out), trained.vocab_size(),
                      counted.words.size(), short_number(static_cast<double>(counted.bytes))));
  if (a.json) {
    const OrderedJson json = {
        {"out", one_line(a.out)},          {"vocab_size", trained.vocab_size()},
        {"merges", trained.merges.size()}, {"words", counted.words.size()},
        {"documents", counted.documents},  {"bytes", counted.bytes},
        {"skipped", counted.skipped}};
    print(json.dump() + "\n");
  }
  return 0;
}

}  // namespace dew::cli
