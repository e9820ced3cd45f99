#include "dew/generate/generate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "dew/base/format.h"
#include "dew/base/json.h"
#include "dew/base/machine.h"
#include "dew/base/text.h"
#include "dew/base/utf8.h"
#include "dew/cli/cli.h"
#include "dew/cli/model.h"
#include "dew/data/tokenizers/load.h"
#include "dew/dew.h"

namespace dew::cli {
namespace {

constexpr std::int64_t kMostTokens = 2147483647;  // positions are i32
constexpr std::int64_t kMostPromptBytes = std::int64_t{1} << 26;
constexpr std::int64_t kChunk = 512;  // tokens of a prompt that are read in one call at most

struct GenerateArguments {
  std::string model, prompt, prompt_file, ids;
  bool has_ids = false, has_file = false;
  std::int64_t tokens = 256, top_k = 0, seed = 0;
  double temperature = 1, top_p = 1;
  bool ignore_eos = false, json = false;
  Verbosity verbosity;

  Sampling sampling() const {
    return {.temperature = temperature,
            .top_k = top_k,
            .top_p = top_p,
            .seed = static_cast<std::uint64_t>(seed)};
  }
};

constexpr const char* kExample =
    R"(Example:
  dew generate runs/mine --prompt "In the beginning" --tokens 100 --temperature 0.8
Prints the new text alone. The same seed gives the same text. Without a prompt, a model that has an
end token begins a document.)";

void add_options(CLI::App& app, GenerateArguments& a) {
  app.add_option("MODEL", a.model, kModelHelp)->required();
  CLI::Option* prompt = app.add_option("--prompt", a.prompt, "text to go on from")->type_name("T");
  CLI::Option* file =
      app.add_option("--prompt-file", a.prompt_file, "the same from a file; -: standard input")
          ->type_name("F");
  CLI::Option* ids =
      app.add_option("--ids", a.ids, "token ids to go on from, 1,2,3; new ids are printed")
          ->type_name("IDS");
  prompt->excludes(file)->excludes(ids);
  file->excludes(ids);
  add_integer(app, "--tokens", a.tokens, "new tokens at most [256]");
  add_number(app, "--temperature", a.temperature,
             "above 1 wilder, below 1 tamer; 0: the most probable token [1]");
  add_integer(app, "--top-k", a.top_k, "draw from the K most probable tokens only; 0: all [0]");
  add_number(app, "--top-p", a.top_p,
             "draw from the fewest tokens that have this probability together [1]");
  add_integer(app, "--seed", a.seed, "of the draws [0]");
  app.add_flag("--ignore-eos", a.ignore_eos, "go on behind the end token");
  app.add_flag("--json", a.json,
               "print one JSON document: prompt_ids, ids, text, tokens_per_s, finish");
}

void check(const GenerateArguments& a) {
  if (a.tokens < 1 || a.tokens > kMostTokens) {
    fail(ErrorCode::usage,
         format("--tokens = {}, but it must be from 1 to {}", a.tokens, kMostTokens));
  }
  if (a.seed < 0) fail(ErrorCode::usage, format("--seed = {}, but it must be 0 or more", a.seed));
  validate(a.sampling());
}

bool parse_generate(const Arguments& arguments, GenerateArguments& a) {
  CLI::App app("Text from a model, as it comes.", "dew generate");
  app.footer(kExample);
  add_options(app, a);
  add_verbosity(app, a.verbosity);
  if (parse(app, arguments)) return true;
  a.has_ids = app.count("--ids") > 0;
  a.has_file = app.count("--prompt-file") > 0;
  check(a);
  return false;
}

// ---- the prompt

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    const bool more = stop + 1 < end && *stop == ',';
    if (error != std::errc() || (stop != end && !more)) {
      fail(ErrorCode::usage,
           format("--ids = '{}', but it must be whole numbers with commas between", one_line(text)),
           "--ids 1,2,3");
    }
    ids.push_back(id);
    at = stop == end ? end : stop + 1;
  }
  return ids;
}

std::string prompt_text(const GenerateArguments& a) {
  if (!a.has_file) return a.prompt;
  return read_file(a.prompt_file == "-" ? "/dev/stdin" : a.prompt_file, ErrorCode::data,
                   kMostPromptBytes);
}

std::unique_ptr<Tokenizer> make_tokenizer_of(const Model& model, const std::string& path) {
  const TokenizerState state = model.tokenizer();
  if (state.name.empty()) {
    fail(ErrorCode::data, format("'{}' does not say its tokenizer", path),
         "--ids 1,2,3 needs none");
  }
  return carried_tokenizer(
      state.name, state.eos_id.has_value(),
      [&](const std::string& name) { return model.carried_file(name); }, path);
}

// The ids of a text to go on from: framed as the model has seen documents. A model of ours has seen
// what `dew tokenize` made; another one what its tokenizer's file says.
std::vector<std::int32_t> encode_prompt(const std::string& text, const Tokenizer& tokenizer,
                                        const Model& model) {
  const bool ours = model.checkpoint() != nullptr && !model.checkpoint()->info().config.empty();
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.special_in_text = true, .frame = !ours});
  const auto trained = ours ? model.tokenizer().bos_id : std::nullopt;
  if (trained) ids.insert(ids.begin(), static_cast<std::int32_t>(*trained));
  // The text may spell the token that begins it, too.
  const auto bos =
      trained ? std::optional(static_cast<std::int32_t>(*trained)) : tokenizer.bos_id();
  while (ids.size() > 1 && bos == ids[0] && ids[0] == ids[1]) ids.erase(ids.begin());
  return ids;
}

// Those that the model can say.
std::vector<std::int32_t> end_ids(const Model& model) {
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : model.end_ids()) {
    if (id < model.config().vocab_size) ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

// Ids to go on from: what was given, or the token behind which documents begin.
std::vector<std::int32_t> prompt_ids(const GenerateArguments& a, const Tokenizer* tokenizer,
                                     const Model& model, const std::vector<std::int32_t>& ends) {
  std::vector<std::int32_t> ids =
      tokenizer == nullptr ? parse_ids(a.ids) : encode_prompt(prompt_text(a), *tokenizer, model);
  if (ids.empty() && !ends.empty()) ids.push_back(ends.front());
  if (ids.empty()) {
    fail(ErrorCode::usage, "the prompt is empty, and the model has no end token to begin behind",
         "give --prompt, --prompt-file or --ids");
  }
  return ids;
}

// ---- the model

CacheShape cache_shape(const GenerateArguments& a, std::int64_t prompt,
                       const models::TransformerConfig& config) {
  const std::int64_t most = config.max_seq_len > 0 ? config.max_seq_len : kMostTokens;
  if (prompt > most) {
    fail(ErrorCode::usage,
         format("the prompt has {} tokens, the model has positions for {} (model.max_seq_len)",
                prompt, most),
         "a shorter prompt");
  }
  const std::int64_t calls = (prompt + kChunk - 1) / kChunk;
  // The last token is drawn and not read.
  return {.rows = 1,
          .capacity = std::min(prompt + a.tokens - 1, most),
          .chunk = (prompt + calls - 1) / calls};
}

// Before it is asked for: a text may be long, and a cache is large.
void check_memory(const models::CausalTransformer& model, const CacheShape& shape, DType compute) {
  const models::TransformerConfig& c = model.config();
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double size = number(byte_size(compute));
  const double bytes = 2 * size * number(c.num_layers) * number(shape.capacity) *
                           number(c.num_kv_heads) * number(c.head_dim) +
                       size * number(parameter_count(model.params()));
  if (const double there = memory_bytes(); bytes > there) {
    fail(ErrorCode::usage,
         format("the model with a text of {} tokens needs {}B, this machine has {}B",
                shape.capacity, short_number(bytes), short_number(there)),
         "fewer --tokens need less");
  }
}

// ---- what is printed

// Ids become text as far as it is certain, valid UTF-8 whatever they are.
class TextOutput {
 public:
  // No tokenizer: numbers with blanks between. `live`: printed as it comes.
  TextOutput(const Tokenizer* tokenizer, bool live)
      : decoder_(tokenizer != nullptr ? tokenizer->decoder() : nullptr), live_(live) {}

  void add(std::int32_t id) {
    std::string bytes;
    if (decoder_ != nullptr) {
      decoder_->feed(id, bytes);
    } else {
      bytes = format("{}{}", text_.empty() ? "" : " ", id);
    }
    std::string valid;
    utf8_.feed(bytes, valid);
    emit(valid);
  }

  void finish() {
    std::string bytes, valid;
    if (decoder_ != nullptr) decoder_->finish(bytes);
    utf8_.feed(bytes, valid);
    utf8_.finish(valid);
    emit(valid);
    if (live_) print("\n");
  }

  OrderedJson json() const { return decoder_ != nullptr ? OrderedJson(text_) : OrderedJson(); }

 private:
  void emit(const std::string& text) {
    text_ += text;
    if (live_ && !text.empty()) print(text);
  }

  std::unique_ptr<TokenDecoder> decoder_;
  Utf8Stream utf8_;
  std::string text_;
  bool live_;
};

const char* name(Finish finish) {
  switch (finish) {
    case Finish::tokens:
      return "tokens";
    case Finish::end:
      return "end";
    case Finish::full:
      return "full";
    case Finish::stopped:
      break;
  }
  return "stopped";
}

// Of the tokens behind the first one, which comes with the prompt.
double tokens_per_second(const GenerateResult& result) {
  const auto count = static_cast<double>(result.texts[0].ids.size());
  return count > 1 ? (count - 1) / result.tokens_s : count / result.prompt_s;
}

std::string json_text(const std::vector<std::int32_t>& prompt, const GenerateResult& result,
                      const TextOutput& output) {
  const Generated& text = result.texts[0];
  const OrderedJson json = {{"prompt_ids", prompt},
                            {"ids", text.ids},
                            {"text", output.json()},
                            {"tokens_per_s", tokens_per_second(result)},
                            {"finish", name(text.finish)}};
  return json.dump() + "\n";
}

void report(std::size_t prompt, const GenerateResult& result, const Model& model,
            Console& console) {
  const Generated& text = result.texts[0];
  const std::size_t total = prompt + text.ids.size();
  console.detail(format("{} tokens read in {:.3f} s, {} made, {} a second", prompt, result.prompt_s,
                        text.ids.size(), short_number(tokens_per_second(result))));
  if (text.finish == Finish::full) {
    console.line(
        format("Stopped: the model has no position for another token (model.max_seq_len = {})",
               model.config().max_seq_len));
  }
  const auto trained = static_cast<std::size_t>(model.run_config().data.seq_len);
  if (model.checkpoint() != nullptr && total > trained) {
    console.detail(
        format("The text has {} tokens, the model learned from rows of {}", total, trained));
  }
}

void load(CachedTransformer& cached, const Model& model) {
  if (model.checkpoint() != nullptr) return cached.load(*model.checkpoint());
  cached.load([&](const ParamSpec& param, std::int64_t slot, std::span<float> out) {
    model.read_parameter(param.layer_name(slot), out);
  });
}

int generate_text(const GenerateArguments& a, const Model& model) {
  const std::unique_ptr<Tokenizer> tokenizer =
      a.has_ids ? nullptr : make_tokenizer_of(model, a.model);
  const std::vector<std::int32_t> ends = end_ids(model);
  const std::vector<std::int32_t> prompt = prompt_ids(a, tokenizer.get(), model, ends);
  const models::CausalTransformer transformer(model.config());
  const CacheShape shape = cache_shape(a, static_cast<std::int64_t>(prompt.size()), model.config());
  const DType compute = *parse_dtype(model.run_config().precision.compute);
  check_memory(transformer, shape, compute);

  watch_stop_signals();
  Console console(stderr, stderr_options(a.verbosity));
  console.detail(format("{} parameters in {}, a text of at most {} tokens",
                        parameter_count(transformer.params()), name(compute), shape.capacity + 1));
  const std::unique_ptr<Backend> backend = cpu_devices();
  CachedTransformer cached(transformer, shape, compute, *backend);
  load(cached, model);
  TextOutput output(tokenizer.get(), !a.json);
  GenerateOptions options{.tokens = a.tokens, .sampling = a.sampling()};
  if (!a.ignore_eos) options.end_ids = ends;
  if (tokenizer != nullptr)
    options.vocab_size = std::min(tokenizer->vocab_size(), model.config().vocab_size);
  options.should_stop = [] { return stop_signal() != 0; };
  options.on_token = [&](std::int64_t, std::int32_t id) {
    const bool ends_it = std::ranges::find(options.end_ids, id) != options.end_ids.end();
    if (!ends_it || tokenizer == nullptr) output.add(id);
  };
  const Ids ids(prompt);
  const GenerateResult result = generate(cached, {&ids, 1}, options);
  output.finish();
  if (result.texts[0].finish == Finish::stopped) throw Stopped{stop_signal()};
  if (a.json) print(json_text(prompt, result, output));
  report(prompt.size(), result, model, console);
  return 0;
}

}  // namespace

int generate_command(const Arguments& arguments) {
  GenerateArguments a;
  if (parse_generate(arguments, a)) return 0;
  require_standard_output();
  return generate_text(a, Model(a.model));
}

}  // namespace dew::cli
