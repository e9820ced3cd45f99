// dew generate, and everything that a user or the world can do wrong with it.
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>

#include "dew/base/utf8.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

constexpr const char* kAnyBytes = "1e6";  // a temperature at which all ids are as probable

// One trained run of each kind for all tests.
const Path& trained(const std::string& name, const Words& overrides) {
  static const TemporaryDirectory directory;
  static std::map<std::string, Path> runs;
  const auto [it, fresh] = runs.emplace(name, directory / name);
  if (fresh) {
    Words all = {"run.steps=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    expect_done(dew(train_notebook(it->second, all)));
  }
  return it->second;
}

const Path& short_model() { return trained("short", {}); }  // max_seq_len = 32
const Path& long_model() { return trained("long", {"model.max_seq_len=2000000"}); }

// With an end token, 255.
const Path& ended_model() {
  static const TemporaryDirectory directory;
  if (!std::filesystem::exists(directory / "tokens")) {
    std::filesystem::copy("tests/data/notebook-tokens", directory / "tokens");
    std::string meta = read_text(directory / "tokens/meta.json");
    meta.replace(meta.find("null"), 4, "255");
    write_text(directory / "tokens/meta.json", meta);
  }
  return trained("ended",
                 {"data.path=" + (directory / "tokens").string(), "model.max_seq_len=5000"});
}

Outcome generate(const Path& model, const Words& words, const Start& start = {}) {
  Words all = {"generate", model.string()};
  all.insert(all.end(), words.begin(), words.end());
  return dew(all, start);
}

Json generate_json(const Path& model, Words words) {
  words.push_back("--json");
  const Outcome outcome = generate(model, words);
  expect_done(outcome);
  return parse_json(outcome.out, "standard output", ErrorCode::internal);
}

std::vector<int> bytes_of(const std::string& text) {
  std::vector<int> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

std::string repaired(const std::vector<int>& bytes) {
  Utf8Stream stream;
  std::string text;
  for (const int byte : bytes) stream.feed(std::string(1, static_cast<char>(byte)), text);
  stream.finish(text);
  return text;
}

TEST(Generate, StreamsTheNewText) {
  const Words words = {"--prompt", "In the", "--tokens", "20"};
  const Outcome outcome = generate(short_model(), words);
  expect_done(outcome);
  EXPECT_EQ(outcome.err, "");
  const Json json = generate_json(short_model(), words);
  EXPECT_EQ(json.size(), 5u);
  EXPECT_EQ(json["prompt_ids"], bytes_of("In the"));
  EXPECT_EQ(json["ids"].size(), 20u);
  EXPECT_EQ(json["text"], repaired(json["ids"]));
  EXPECT_GT(json["tokens_per_s"], 0);
  EXPECT_EQ(json["finish"], "tokens");
  EXPECT_EQ(outcome.out, json["text"].get<std::string>() + "\n");
}

TEST(Generate, SeedsDecide) {
  const auto ids = [](const Words& more) {
    Words words = {"--prompt", "In the", "--tokens", "20"};
    words.insert(words.end(), more.begin(), more.end());
    return generate_json(short_model(), words)["ids"];
  };
  EXPECT_EQ(ids({}), ids({"--seed", "0"}));
  EXPECT_EQ(ids({"--seed", "1"}), ids({"--seed", "1"}));
  EXPECT_NE(ids({"--seed", "1"}), ids({"--seed", "0"}));
  EXPECT_EQ(ids({"--temperature", "0", "--seed", "1"}), ids({"--temperature", "0", "--seed", "2"}));
  EXPECT_EQ(ids({"--temperature", "0"}), ids({"--top-k", "1", "--seed", "3"}));
  EXPECT_EQ(ids({"--temperature", "0"}), ids({"--top-p", "1e-9", "--seed", "4"}));
}

TEST(Generate, SameTextOnOneCore) {
  const Words words = {"--prompt", "In the", "--tokens", "20"};
  EXPECT_EQ(generate(short_model(), words, {.one_core = true}).out,
            generate(short_model(), words).out);
}

TEST(Generate, PromptsFromEverywhere) {
  const TemporaryDirectory directory;
  write_text(directory / "prompt", "In the\n");
  const Words rest = {"--tokens", "9", "--json"};
  const auto ids = [&](Words words) {
    const Json json = generate_json(short_model(), words);
    EXPECT_EQ(json["prompt_ids"], bytes_of("In the\n"));
    return json["ids"];
  };
  const Json want = ids({"--prompt", "In the\n"});
  EXPECT_EQ(ids({"--prompt-file", (directory / "prompt").string()}), want);
  EXPECT_EQ(ids({"--ids", "73,110,32,116,104,101,10"}), want);
  const std::string command = "printf 'In the\\n' | '" + std::string(std::getenv("DEW_PROGRAM")) +
                              "' generate '" + short_model().string() +
                              "' --prompt-file - --json > '" + (directory / "out").string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const Json json =
      parse_json(read_text(directory / "out"), "standard output", ErrorCode::internal);
  EXPECT_EQ(json["prompt_ids"], bytes_of("In the\n"));
}

TEST(Generate, IdsInIdsOut) {
  const Words words = {"--ids", "7", "--tokens", "5"};
  const Json json = generate_json(short_model(), words);
  EXPECT_EQ(json["prompt_ids"], std::vector<int>{7});
  EXPECT_TRUE(json["text"].is_null());
  std::string want;
  for (const int id : json["ids"]) want += (want.empty() ? "" : " ") + std::to_string(id);
  const Outcome outcome = generate(short_model(), words);
  expect_done(outcome);
  EXPECT_EQ(outcome.out, want + "\n");
}

TEST(Generate, ValidUtf8Whatever) {
  const Words words = {"--prompt", "x", "--tokens", "3000", "--temperature", kAnyBytes};
  const Json json = generate_json(long_model(), words);
  EXPECT_EQ(json["ids"].size(), 3000u);
  EXPECT_EQ(json["text"], repaired(json["ids"]));
  EXPECT_EQ(generate(long_model(), words).out, json["text"].get<std::string>() + "\n");
}

TEST(Generate, EndToken) {
  const Words words = {"--prompt", "x", "--tokens", "3000", "--temperature", kAnyBytes};
  const Json json = generate_json(ended_model(), words);
  std::vector<int> ids = json["ids"];
  EXPECT_EQ(json["finish"], "end");
  EXPECT_LT(ids.size(), 3000u);
  EXPECT_EQ(ids.back(), 255);
  ids.pop_back();
  EXPECT_EQ(std::ranges::count(ids, 255), 0);
  EXPECT_EQ(json["text"], repaired(ids));
  Words on = words;
  on.push_back("--ignore-eos");
  const Json more = generate_json(ended_model(), on);
  EXPECT_EQ(more["ids"].size(), 3000u);
  EXPECT_EQ(more["finish"], "tokens");
  EXPECT_EQ(std::vector<int>(more["ids"].begin(),
                             more["ids"].begin() + static_cast<std::ptrdiff_t>(ids.size())),
            ids);
}

TEST(Generate, WithoutAPromptADocumentBegins) {
  for (const Words& words : {Words{}, Words{"--prompt", ""}, Words{"--ids", ""}}) {
    Words all = words;
    all.insert(all.end(), {"--tokens", "5"});
    EXPECT_EQ(generate_json(ended_model(), all)["prompt_ids"], std::vector<int>{255});
  }
}

TEST(Generate, FullModelSaysSo) {
  const Words words = {"--prompt", "In the", "--tokens", "100"};
  const Json json = generate_json(short_model(), words);
  EXPECT_EQ(json["ids"].size(),
            27u);  // 32 positions, 6 of them the prompt's, and one that is not read
  EXPECT_EQ(json["finish"], "full");
  const Outcome outcome = generate(short_model(), words);
  expect_done(outcome);
  EXPECT_EQ(outcome.err,
            "Stopped: the model has no position for another token (model.max_seq_len = 32)\n");
  Words quiet = words;
  quiet.push_back("-q");
  EXPECT_EQ(generate(short_model(), quiet).err, "");
  EXPECT_EQ(generate_json(short_model(), {"--prompt", std::string(32, 'a')})["ids"].size(), 1u);
}

TEST(Generate, EveryKindOfModel) {
  const Words kinds[] = {
      {"model.positions=learned", "model.norm=layer", "model.mlp=gelu", "model.qk_norm=false",
       "model.attention_bias=true", "model.mlp_bias=true"},
      {"model.num_kv_heads=1", "model.tie_embeddings=false", "model.window_pattern=[3,0]"},
      {"precision.compute=bf16", "model.logit_softcap=5", "model.attention_softcap=5"}};
  for (std::size_t k = 0; k < std::size(kinds); ++k) {
    const Path& run = trained("kind" + std::to_string(k), kinds[k]);
    EXPECT_EQ(generate_json(run, {"--prompt", "In the", "--tokens", "20"})["ids"].size(), 20u);
  }
}

TEST(Generate, HuggingFaceDirectories) {
  const TemporaryDirectory directory;
  const Path& run = trained("llama", {"model.qk_norm=false", "model.num_kv_heads=2"});
  expect_done(dew({"export", run.string(), "--out", (directory / "hf").string()}));
  expect_done(dew({"import", (directory / "hf").string(), "--out", (directory / "own").string()}));
  const Words words = {"--ids", "7,8,9", "--tokens", "20"};
  const Json want = generate_json(run, words)["ids"];
  EXPECT_EQ(generate_json(directory / "hf", words)["ids"], want);
  EXPECT_EQ(generate_json(directory / "own", words)["ids"], want);
  expect_error(generate(directory / "hf", {"--prompt", "x"}), 4, "does not say its tokenizer");
}

TEST(Generate, InterruptedEndsItsLine) {
  for (const bool json : {false, true}) {
    Words words = {"generate", long_model().string(), "--prompt", "x", "-v", "--tokens", "1000000"};
    if (json) words.push_back("--json");
    Running running(words);
    ASSERT_TRUE(running.wait_for("at most 1000001 tokens"));
    running.signal(SIGINT);
    const Outcome outcome = running.finish();
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    EXPECT_EQ(outcome.err.find("error"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out.empty(), json);
    EXPECT_TRUE(json || outcome.out.back() == '\n');
  }
}

// ---- errors

struct BadGenerate {
  const char* name;
  Words words;  // behind "generate"
  int status;
  const char* text;
};

class GenerateErrors : public testing::TestWithParam<BadGenerate> {
 protected:
  GenerateErrors() {
    std::filesystem::create_symlink(short_model(), directory_ / "run");
    write_text(directory_ / "file", "text");
    write_text(directory_ / "nothing", "");
    create_directories(directory_ / "hf", ErrorCode::internal);
    write_text(directory_ / "hf/config.json", "{}");
  }
  TemporaryDirectory directory_;
};

TEST_P(GenerateErrors, Refused) {
  Words words = {"generate"};
  words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
  expect_error(dew(words, {.directory = directory_.path()}), GetParam().status, GetParam().text);
}

const BadGenerate kBadGenerates[] = {
    {"NoArguments", {}, 2, "MODEL is required"},
    {"ModelMissing", {"none", "--prompt", "x"}, 5, "'none' does not exist"},
    {"ModelIsAFile", {"file", "--prompt", "x"}, 5, "file"},
    {"HuggingFace", {"hf", "--prompt", "x"}, 5, "hf/config.json: model_type is missing"},
    {"NoPrompt", {"run"}, 2, "the prompt is empty, and the model has no end token"},
    {"EmptyPrompt", {"run", "--prompt", ""}, 2, "the prompt is empty"},
    {"EmptyFile", {"run", "--prompt-file", "nothing"}, 2, "the prompt is empty"},
    {"EmptyIds", {"run", "--ids", ""}, 2, "the prompt is empty"},
    {"TwoPrompts", {"run", "--prompt", "x", "--ids", "1"}, 2, "--ids"},
    {"TwoPromptsToo", {"run", "--prompt", "x", "--prompt-file", "file"}, 2, "--prompt-file"},
    {"PromptTooLong",
     {"run", "--prompt", "123456789 123456789 123456789 123"},
     2,
     "the prompt has 33 tokens, the model has positions for 32 (model.max_seq_len)"},
    {"PromptFileMissing", {"run", "--prompt-file", "none"}, 4, "none"},
    {"PromptFileIsADirectory", {"run", "--prompt-file", "hf"}, 4, "hf"},
    {"PromptFileEndless",
     {"run", "--prompt-file", "/dev/zero"},
     4,
     "larger than the 67108864 bytes"},
    {"IdsText", {"run", "--ids", "one"}, 2, "--ids = 'one', but it must be whole numbers"},
    {"IdsBlanks", {"run", "--ids", "1, 2"}, 2, "whole numbers"},
    {"IdsCommaLast", {"run", "--ids", "1,"}, 2, "whole numbers"},
    {"IdsCommaFirst", {"run", "--ids", ",1"}, 2, "whole numbers"},
    {"IdsFraction", {"run", "--ids", "1.5"}, 2, "whole numbers"},
    {"IdsHuge", {"run", "--ids", "99999999999"}, 2, "whole numbers"},
    {"IdsNegative", {"run", "--ids=-1"}, 2, "id -1 of the prompt is outside"},
    {"IdsOutside",
     {"run", "--ids", "1,256"},
     2,
     "id 256 of the prompt is outside the model's vocabulary of 256"},
    {"TokensZero", {"run", "--prompt", "x", "--tokens", "0"}, 2, "--tokens = 0, but"},
    {"TokensNegative", {"run", "--prompt", "x", "--tokens", "-5"}, 2, "--tokens = -5, but"},
    {"TokensHuge", {"run", "--prompt", "x", "--tokens", "9999999999999999999"}, 2, "below 2^63"},
    {"TokensBeyondPositions", {"run", "--prompt", "x", "--tokens", "3000000000"}, 2, "2147483647"},
    {"TokensUnit", {"run", "--prompt", "x", "--tokens", "1k"}, 2, "1k"},
    {"TemperatureNegative", {"run", "--prompt", "x", "--temperature", "-1"}, 2, "temperature = -1"},
    {"TemperatureNan", {"run", "--prompt", "x", "--temperature", "nan"}, 2, "finite number"},
    {"TemperatureInf", {"run", "--prompt", "x", "--temperature", "inf"}, 2, "finite number"},
    {"TemperatureHuge", {"run", "--prompt", "x", "--temperature", "1e999"}, 2, "finite number"},
    {"TemperatureText", {"run", "--prompt", "x", "--temperature", "hot"}, 2, "'hot'"},
    {"TopKNegative", {"run", "--prompt", "x", "--top-k", "-1"}, 2, "top-k = -1"},
    {"TopPZero", {"run", "--prompt", "x", "--top-p", "0"}, 2, "top-p = 0"},
    {"TopPAboveOne", {"run", "--prompt", "x", "--top-p", "1.5"}, 2, "top-p = 1.5"},
    {"SeedNegative", {"run", "--prompt", "x", "--seed", "-1"}, 2, "--seed = -1"},
    {"UnknownOption", {"run", "--prompt", "x", "--temprature", "1"}, 2, "--temprature"},
    {"QuietAndVerbose", {"run", "--prompt", "x", "-q", "-v"}, 2, "--verbose"},
};

INSTANTIATE_TEST_SUITE_P(All, GenerateErrors, testing::ValuesIn(kBadGenerates),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(Generate, TextThatHoldsTheEndToken) {
  expect_error(generate(ended_model(), {"--prompt", "a\xff"}), 4, "byte 1 of the text is 255");
}

TEST(Generate, CachesBeyondTheMachine) {
  const Path& run = trained("endless", {"model.max_seq_len=2147483647"});
  expect_error(generate(run, {"--prompt", "x", "--tokens", "2147483647"}), 2,
               "the model with a text of 2147483647 tokens needs 2.20TB");
}

TEST(Generate, DamagedParameters) {
  const TemporaryDirectory directory;
  std::filesystem::copy(short_model(), directory / "run", std::filesystem::copy_options::recursive);
  const Path checkpoint = directory / "run/checkpoints/step_00000001";
  for (const std::string& name : list_directory(checkpoint, ErrorCode::internal)) {
    if (!name.ends_with(".safetensors")) continue;
    std::string bytes = read_text(checkpoint / name);
    bytes[bytes.size() / 8] ^= 1;
    write_text(checkpoint / name, bytes);
    expect_error(generate(directory / "run", {"--prompt", "x"}), 5, name);
  }
}

TEST(Generate, StandardOutputThatCannotBeWritten) {
  for (const Words& words : {Words{"--prompt", "x"}, Words{"--prompt", "x", "--json"}}) {
    expect_error(generate(short_model(), words, {.close_stdout = true}), 2, "standard output");
    const Outcome broken = generate(short_model(), words, {.broken_stdout = true});
    EXPECT_EQ(broken.status, 2);
    EXPECT_NE(broken.err.find("dew: error: cannot write to standard output"), std::string::npos);
  }
}

}  // namespace
}  // namespace dew
