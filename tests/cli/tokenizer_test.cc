// dew tokenizer, and models with tokenizers of files, from outside.
#include <sstream>

#include "dew/data/token_directory.h"
#include "tests/cli/error_case.h"

namespace dew {
namespace {

const Path kFixtures = std::filesystem::absolute("tests/data/tokenizers");

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(parse_json(line, "line", ErrorCode::internal));
  return lines;
}

class TokenizerProgram : public testing::Test {
 protected:
  Outcome run(const Words& words, const std::string& input = "") {
    write_text(directory_ / "stdin", input);
    Words all = {"tokenizer"};
    all.insert(all.end(), words.begin(), words.end());
    return dew(all, {.directory = directory_.path(), .standard_input = directory_ / "stdin"});
  }
  Outcome program(const Words& words) { return dew(words, {.directory = directory_.path()}); }

  // English by no means, with words that repeat.
  void write_text_file(const std::string& name) {
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      text += "the word " + std::to_string(i * 7 % 101) + " and the other word\n";
    }
    write_text(directory_ / name, text);
  }

  TemporaryDirectory directory_;
};

TEST_F(TokenizerProgram, EncodesAndDecodesAsTheReference) {
  for (const char* name : {"gpt2", "llama2", "llama3", "qwen2"}) {
    const std::string file = (kFixtures / name / "tokenizer.json").string();
    const std::vector<Json> examples = lines_of(read_text(kFixtures / name / "expected.jsonl"));
    std::string texts, ids;
    for (const Json& e : examples) {
      texts += e["text"].dump() + "\n";
      ids += e["ids"].dump() + "\n";
    }
    const auto expect_all = [&](const Words& words, const std::string& input, const char* member) {
      const Outcome outcome = run(words, input);
      expect_done(outcome);
      const std::vector<Json> found = lines_of(outcome.out);
      ASSERT_EQ(found.size(), examples.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], examples[i][member]) << name << " " << examples[i]["text"];
    };
    expect_all({"encode", file}, texts, "ids");
    expect_all({"encode", file, "--plain"}, texts, "ids_plain");
    expect_all({"decode", file}, ids, "decoded");
    expect_all({"decode", file, "--all"}, ids, "decoded_all");
  }
}

TEST_F(TokenizerProgram, BytesAreATokenizer) {
  EXPECT_EQ(run({"encode", "byte"}, "\"a\\u00e4\"").out, "[97,195,164]\n");
  EXPECT_EQ(run({"decode", "byte"}, "[97, 195, 164]\n[]\n").out, "\"aä\"\n\"\"\n");
}

TEST_F(TokenizerProgram, BrokenLinesAreNamed) {
  const std::string gpt2 = (kFixtures / "gpt2/tokenizer.json").string();
  expect_error(run({"decode", gpt2}, "[1001]\n"), 4, "line 1: id 1001 is not in the vocabulary");
  expect_error(run({"decode", gpt2}, "[-1]\n"), 4, "line 1: -1 is no id");
  expect_error(run({"decode", gpt2}, "\"a\"\n"), 4, "line 1: a JSON array of ids is expected");
  expect_error(run({"encode", gpt2}, "[1]\n"), 4, "line 1: a JSON string is expected");
  expect_error(run({"encode", gpt2}, "\"a"), 4, "standard input, line 1 is not valid JSON");
  expect_error(run({"encode", gpt2}, "\"\xff\""), 4, "standard input, line 1 is not valid JSON");
  const Outcome second = run({"encode", gpt2}, "\"a\"\nx\n");
  EXPECT_EQ(second.status, 4);
  EXPECT_EQ(second.out, "[64]\n");
  EXPECT_NE(second.err.find("standard input, line 2"), std::string::npos) << second.err;
}

TEST_F(TokenizerProgram, TrainedFilesWork) {
  write_text_file("a.txt");
  const Outcome outcome =
      run({"train", "a.txt", "--vocab-size", "300", "--out", "t.json", "--json"});
  expect_done(outcome);
  const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
  EXPECT_EQ(json["vocab_size"], 300);
  EXPECT_EQ(json["merges"], 300 - 257);
  EXPECT_EQ(run({"encode", "t.json"}, "\" the\"").out.find(','), std::string::npos);
  EXPECT_EQ(run({"decode", "t.json"}, run({"encode", "t.json"}, "\"\\u4eba, so\\n\"").out).out,
            "\"人, so\\n\"\n");
  // The same file from several files, in another order.
  const std::string text = read_text(directory_ / "a.txt");
  const std::size_t half = text.find('\n', text.size() / 2) + 1;
  write_text(directory_ / "2.txt", text.substr(0, half));
  write_text(directory_ / "1.txt", text.substr(half));
  expect_done(run({"train", "1.txt", "2.txt", "--vocab-size", "300", "--out", "u.json"}));
  EXPECT_EQ(read_text(directory_ / "t.json"), read_text(directory_ / "u.json"));
}

// From text to text with a tokenizer of its own, through every way that models are carried.
TEST_F(TokenizerProgram, ModelsCarryTheirTokenizer) {
  write_text_file("a.txt");
  expect_done(run({"train", "a.txt", "--vocab-size", "300", "--out", "t.json"}));
  expect_done(program({"tokenize", "a.txt", "--tokenizer", "t.json", "--out", "tokens"}));
  EXPECT_EQ(read_text(directory_ / "tokens/tokenizer.json"), read_text(directory_ / "t.json"));
  const TokenMeta meta = TokenDirectory(directory_ / "tokens").meta();
  EXPECT_EQ(meta.tokenizer, "tokenizer.json");
  EXPECT_EQ(meta.vocab_size, 300);
  EXPECT_EQ(meta.eos_id, 0);
  expect_done(dew(train_notebook(directory_ / "run",
                                 {"--quiet", "data.path=" + (directory_ / "tokens").string(),
                                  "model.vocab_size=300", "model.qk_norm=false", "run.steps=2"})));
  std::filesystem::remove_all(directory_ / "tokens/tokenizer.json");
  const auto text_of = [&](const std::string& model) {
    const Outcome outcome = program({"generate", model, "--prompt", "the word", "--tokens", "8",
                                     "--temperature", "0", "--json"});
    expect_done(outcome);
    return parse_json(outcome.out, "stdout", ErrorCode::internal);
  };
  const Json own = text_of("run");
  EXPECT_EQ(own["prompt_ids"].dump(),
            lines_of(run({"encode", "t.json"}, "\"the word\"").out)[0].dump());
  EXPECT_TRUE(own["text"].is_string());
  expect_done(program({"export", "run", "--out", "hf"}));
  expect_done(program({"import", "hf", "--out", "own"}));
  EXPECT_EQ(read_text(directory_ / "hf/tokenizer.json"), read_text(directory_ / "t.json"));
  EXPECT_EQ(text_of("hf")["ids"], own["ids"]);
  EXPECT_EQ(text_of("own")["ids"], own["ids"]);
}

TEST_F(TokenizerProgram, DataOfAnotherTokenizerIsNotEvaluated) {
  write_text_file("a.txt");
  for (const std::string n : {"1", "2"}) {
    expect_done(run({"train", "a.txt", "--vocab-size", "300", "--special", "<" + n + ">", "--out",
                     n + ".json"}));
    expect_done(program({"tokenize", "a.txt", "--tokenizer", n + ".json", "--out", n}));
  }
  expect_done(
      dew(train_notebook(directory_ / "run", {"--quiet", "data.path=" + (directory_ / "1").string(),
                                              "model.vocab_size=300", "run.steps=1"})));
  expect_done(program({"eval", "run", "--data", "1", "--batches", "1"}));
  expect_error(program({"eval", "run", "--data", "2", "--batches", "1"}), 4,
               "'2' was made by another tokenizer than the model's");
}

TEST_F(TokenizerProgram, StandardInputIsText) {
  write_text(directory_ / "stdin", "one two three\nfour five six\n");
  const Start start{.directory = directory_.path(), .standard_input = directory_ / "stdin"};
  expect_done(dew({"tokenize", "-", "--out", "a", "--val-fraction", "0.5"}, start));
  EXPECT_EQ(TokenDirectory(directory_ / "a").meta().documents, 1);
  write_text(directory_ / "stdin", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  expect_done(
      dew({"tokenize", "-", "--out", "b", "--val-fraction", "0.5", "--text-field", "text"}, start));
  EXPECT_EQ(TokenDirectory(directory_ / "b").meta().documents, 2);
  EXPECT_EQ(read_text(directory_ / "b/val.bin") + read_text(directory_ / "b/train.bin"), "onetwo");
}

// ---- what can go wrong

class TokenizerErrors : public testing::TestWithParam<ErrorCase> {
 protected:
  TokenizerErrors() {
    write_file(directory_ / "a.txt", "In the beginning God created the heaven and the earth.\n");
    write_file(directory_ / "empty.txt", "");
  }
  TemporaryDirectory directory_;
};

TEST_P(TokenizerErrors, Refused) { refuse("tokenizer", GetParam(), directory_.path()); }

// A tokenizer file with something in it changed.
std::function<void(const Path&)> changed(const std::string& from, const std::string& to) {
  return [=](const Path& here) {
    std::filesystem::copy_file(kFixtures / "llama3/tokenizer.json", here / "t.json");
    std::filesystem::permissions(here / "t.json", std::filesystem::perms{0644});
    replace_in(here / "t.json", from, to);
  };
}

ErrorCase train_row(const char* name, Words words, int status, std::vector<std::string> says,
                    std::string hint = {}) {
  words.insert(words.begin(), "train");
  return {name, std::move(words), status, std::move(says), {}, {}, std::move(hint)};
}

ErrorCase file_row(const char* name, const std::string& from, const std::string& to,
                   std::vector<std::string> says) {
  says.insert(says.begin(), "t.json: ");
  return {name, {"encode", "t.json"}, 4, std::move(says), changed(from, to)};
}

const std::vector<ErrorCase> kRows = {
    {"Misspelt", {"encod", "x"}, 2, {"'tokenizer encod'", "the nearest is encode"}},
    {"NoFile", {"encode"}, 2, {"FILE is required"}},
    {"NoSuchFile", {"decode", "none"}, 2, {"there is no tokenizer 'none'"}, {}, {}, "'byte'"},
    {"TwoFiles", {"encode", "byte", "byte"}, 2, {"one argument too many"}},
    // train
    train_row("TrainNothing", {}, 2, {"TEXT is required"}),
    train_row("TrainNoSize", {"a.txt", "--out", "t"}, 2, {"--vocab-size is required"}),
    train_row("TrainNoOut", {"a.txt", "--vocab-size", "300"}, 2, {"--out is required"}),
    train_row("TrainSmall", {"a.txt", "--vocab-size", "256", "--out", "t"}, 2,
              {"a vocabulary of 256, but it must be from 257"}),
    train_row("TrainHuge", {"a.txt", "--vocab-size", "16777217", "--out", "t"}, 2,
              {"a vocabulary of 16777217"}),
    train_row("TrainNoNumber", {"a.txt", "--vocab-size", "5k", "--out", "t"}, 2,
              {"--vocab-size = '5k'"}),
    train_row("TrainMinCount", {"a.txt", "--vocab-size", "300", "--out", "t", "--min-count", "0"},
              2, {"--min-count = 0"}),
    train_row("TrainSpecialTwice",
              {"a.txt", "--vocab-size", "300", "--out", "t", "--special", "a", "--special", "a"}, 2,
              {"the control token 'a' is there twice"}),
    train_row("TrainOverAFile", {"a.txt", "--vocab-size", "300", "--out", "empty.txt"}, 2,
              {"'empty.txt' exists"}, "another --out"),
    train_row("TrainEmpty", {"empty.txt", "--vocab-size", "300", "--out", "t"}, 4,
              {"there is no text"}),
    train_row("TrainMissing", {"none", "--vocab-size", "300", "--out", "t"}, 4,
              {"there is no 'none'"}),
    train_row("TrainNowhere", {"a.txt", "--vocab-size", "300", "--out", "no/t"}, 4, {"no/t"}),
    // tokenizer.json
    {"NoJson", {"encode", "t.json"}, 4, {"t.json is not valid JSON: "}, changed("{", "{{")},
    file_row("UnknownModel", R"("type": "BPE")", R"("type": "WordPiece")",
             {"model: 'WordPiece' is not supported", "BPE, Unigram"}),
    file_row("UnknownPreTokenizer", R"("type": "Split")", R"("type": "Cut")",
             {"pre_tokenizer", "'Cut' is not supported", "Split"}),
    file_row("UnknownMember", R"("invert": false)", R"("invert": false, "x": 1)",
             {"'x' is not supported"}),
    file_row("UnknownNormalizer", R"("normalizer": null)", R"("normalizer": {"type": "Odd"})",
             {"normalizer: 'Odd' is not supported", "NFC"}),
    file_row("Truncation", R"("truncation": null)", R"("truncation": {})", {"'truncation'"}),
    file_row("Dropout", R"("dropout": null)", R"("dropout": 0.5)", {"'dropout'", "random"}),
    file_row("BadPattern", R"(\\p{N}{1,3})", R"((\\p{N}{1,3})", {"pattern", "is not understood"}),
    file_row("UnknownProperty", R"(\\p{L}+)", R"(\\p{Nonsense}+)", {"pattern", "Nonsense"}),
    file_row("AddedIdIsAnother", R"("id": 1101)", R"("id": 1105)",
             {"'<|end_of_text|>' has id 1105", "1101"}),
    file_row("MergeOfNothing", "\"merges\": [\n      [\n        \"\u0120\"",
             "\"merges\": [\n      [\n        \"\u2603\"", {"is not in the vocabulary"}),
    file_row("IdTwice", R"("#": 2)", R"("#": 1)", {"same id 1"}),
    file_row("IdHuge", R"("#": 2)", R"("#": 99999999999)", {"an id from 0 to"}),
    file_row("TokenTwice", R"("#": 2)", R"("#": 2, "#": 3)", {"appears twice"}),
    file_row("TemplateId", "\"ids\": [\n              1100", "\"ids\": [\n              7",
             {"'<|begin_of_text|>' with id 7"}),
};

INSTANTIATE_TEST_SUITE_P(All, TokenizerErrors,
                         testing::ValuesIn(kRows + common_errors("dew tokenizer encode",
                                                                 {"encode", "byte"})),
                         name_of);

}  // namespace
}  // namespace dew
