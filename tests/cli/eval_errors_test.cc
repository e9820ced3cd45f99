// Everything that a user or the world can do wrong with dew eval.
#include "dew/base/digest.h"
#include "dew/data/data_test_support.h"
#include "tests/cli/error_case.h"

namespace dew {
namespace {

// One trained run for all tests; each works on a copy.
const Path& trained_run() {
  static const TemporaryDirectory directory;
  static const Path path = [] {
    expect_done(dew(train_notebook(directory / "run", {"run.steps=1"})));
    return directory / "run";
  }();
  return path;
}

class EvalErrors : public testing::TestWithParam<ErrorCase> {
 protected:
  EvalErrors() {
    std::filesystem::copy("tests/data/notebook-tokens", directory_ / "tokens");
    std::filesystem::copy(trained_run(), directory_ / "run",
                          std::filesystem::copy_options::recursive);
    write_file(directory_ / "file", "not a directory");
    make_directory(directory_ / "empty");
    write_file(directory_ / "hf/config.json", "{}");
  }
  TemporaryDirectory directory_;
};

TEST_P(EvalErrors, Refused) { refuse("eval", GetParam(), directory_.path()); }

// ---- what is damaged

const std::string kStep = "run/checkpoints/step_00000001";
const std::string kManifest = kStep + "/manifest.json";

Path shard(const Path& here) {
  for (const std::string& name : list_directory(here / kStep, ErrorCode::internal)) {
    if (name.ends_with(".safetensors")) return here / kStep / name;
  }
  return {};
}

// A manifest with another digest, which says what the text says.
void sign(const Path& manifest) {
  std::string text = read_text(manifest);
  const std::size_t at = text.rfind("\"xxh3\"");
  const std::string body = text.substr(0, at);
  write_text(manifest, body + "\"xxh3\": \"" +
                           digest_text(digest_of(std::as_bytes(std::span(body)))) + "\"}\n");
}

void change_manifest(const Path& here, const std::string& from, const std::string& to) {
  replace_in(here / kManifest, from, to);
  sign(here / kManifest);
}

using Prepare = std::function<void(const Path&)>;

Prepare write(const std::string& name, const std::string& text) {
  return [=](const Path& here) { write_file(here / name, text); };
}
Prepare cut(const std::string& name, std::uintmax_t bytes) {
  return [=](const Path& here) { cut_file(here / name, bytes); };
}
Prepare remove(const std::string& name) {
  return [=](const Path& here) { remove_quietly(here / name); };
}
Prepare huge(const std::string& name) {
  return [=](const Path& here) { make_huge(here / name); };
}
Prepare directory(const std::string& name) {
  return [=](const Path& here) { replace_by_directory(here / name); };
}
Prepare change(const std::string& name, const std::string& from, const std::string& to) {
  return [=](const Path& here) { replace_in(here / name, from, to); };
}
Prepare say(const std::string& from, const std::string& to) {
  return [=](const Path& here) { change_manifest(here, from, to); };
}

void flip_bit(const Path& file, std::size_t at) {
  std::string text = read_text(file);
  text[at] ^= 1;
  write_text(file, text);
}

template <class Tokens>
Prepare tokens(std::int64_t vocab_size, const Tokens& train, const Tokens& val) {
  return [=](const Path& here) { write_directory(here / "tokens", vocab_size, train, val); };
}

void deny_manifest(const Path& here) { make_unreadable(here / kManifest); }
void deny_shard(const Path& here) { make_unreadable(shard(here)); }
void deny_data(const Path& here) { make_unreadable(here / "tokens/val.bin"); }
const Start kNobody = {.as_nobody = true};

const Words kGood = {"run", "--data", "tokens"};
Words good_and(const Words& more) {
  Words words = kGood;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<ErrorCase> kArguments = {
    {"NoArguments", {}, 2, {"dew eval: MODEL is required"}, {}, {}, "dew eval --help"},
    {"NoModel", {"--data", "tokens"}, 2, {"MODEL is required"}},
    {"NoData", {"run"}, 2, {"--data is required"}},
    {"TwoModels", {"run", "extra", "--data", "tokens"}, 2, {"'extra' is one argument too many"}},
    {"DataWithoutValue", {"run", "--data"}, 2, {"--data needs a value"}},
    {"BatchesNegative", good_and({"--batches", "-1"}), 2, {"--batches = -1", "0 or more"}},
    {"BatchesText", good_and({"--batches", "all"}), 2, {"--batches = 'all'", "whole number"}},
    {"BatchesWithUnit", good_and({"--batches", "1k"}), 2, {"--batches = '1k'"}},
    {"BatchesFraction", good_and({"--batches", "1.5"}), 2, {"--batches = '1.5'"}},
    {"BatchesHuge", good_and({"--batches", "99999999999999999999"}), 2, {"below 2^63"}},
    {"Devices", good_and({"--devices", "gpu:8"}), 2, {"--devices = 'gpu:8'", "cpu"}},
    {"ManyDevices", good_and({"--devices", "cpu:100000"}), 2, {"100000 devices", "at most 4096"}},
    {"MeshWithoutDevices", good_and({"--mesh", "fsdp=8"}), 3, {"fsdp"}},
    {"MeshAxis", good_and({"--mesh", "fsd=8"}), 2, {"'fsd' is no mesh axis", "'fsdp'"}},
    {"JsonWithValue", good_and({"--json=yes"}), 2, {"--json takes no value"}},
};

const std::vector<ErrorCase> kModels = {
    {"ModelMissing",
     {"none", "--data", "tokens"},
     5,
     {"'none' does not exist"},
     {},
     {},
     "a run directory"},
    {"ModelIsAFile", {"file", "--data", "tokens"}, 5, {"'file'", "manifest.json"}},
    {"ModelIsEmpty", {"empty", "--data", "tokens"}, 5, {"'empty' is no checkpoint"}},
    {"ModelIsEmptyText", {"", "--data", "tokens"}, 5, {"'' does not exist"}},
    {"ModelNotUtf8", {"\xff", "--data", "tokens"}, 5, {"'\\xff' does not exist"}},
    {"ModelIsData", {"tokens", "--data", "tokens"}, 5, {"'tokens' is no checkpoint"}},
    {"HuggingFace", {"hf", "--data", "tokens"}, 5, {"hf/config.json: model_type is missing"}},
    {"ManifestEmpty", kGood, 5, {"manifest.json", "truncated"}, write(kManifest, "")},
    {"ManifestCut", kGood, 5, {"manifest.json", "truncated"}, cut(kManifest, 1000)},
    {"ManifestNotUtf8", kGood, 5, {"manifest.json", "digest"}, change(kManifest, "run", "r\xffn")},
    {"ManifestChanged",
     kGood,
     5,
     {"digest does not match"},
     change(kManifest, "\"step\":1", "\"step\":2")},
    {"ManifestHuge", kGood, 5, {"manifest.json' is larger than"}, huge(kManifest)},
    {"ManifestMissing", kGood, 5, {"step_00000001", "manifest.json"}, remove(kManifest)},
    {"ManifestIsADirectory", kGood, 5, {"manifest.json"}, directory(kManifest)},
    {"ManifestUnreadable",
     kGood,
     5,
     {"manifest.json", "Permission denied"},
     deny_manifest,
     kNobody},
    {"FutureVersion",
     kGood,
     5,
     {"format version 2, this program reads up to 1"},
     say("\"version\": 1", "\"version\": 2")},
    {"OtherFormat",
     kGood,
     5,
     {"'format' must be \"dew checkpoint\""},
     say("dew checkpoint", "a checkpoint")},
    {"VersionIsText",
     kGood,
     5,
     {"'version' must be an integer", "\"1\""},
     say("\"version\": 1", "\"version\": \"1\"")},
    {"ConfigOfTheFuture",
     kGood,
     5,
     {"unknown key 'run.logevery'", "run.log_every"},
     say("log_every", "logevery")},
    {"StepOfAnother", kGood, 5, {"step_00000001' holds step 7"}, say("\"step\":1,", "\"step\":7,")},
    {"ShardCut",
     kGood,
     5,
     {".safetensors' has", "in place of", "truncated"},
     [](const Path& here) { cut_file(shard(here), 5000); }},
    {"ShardLonger",
     kGood,
     5,
     {".safetensors' has", "it was changed"},
     [](const Path& here) { make_huge(shard(here)); }},
    {"ShardEmpty",
     kGood,
     5,
     {".safetensors' has 0 bytes"},
     [](const Path& here) { write_text(shard(here), ""); }},
    {"ShardFlipped",
     kGood,
     5,
     {".safetensors'", "tensor 'params/", "digest differs"},
     [](const Path& here) { flip_bit(shard(here), std::filesystem::file_size(shard(here)) / 8); }},
    {"ShardHeaderFlipped",
     kGood,
     5,
     {".safetensors'", "the header is damaged"},
     [](const Path& here) { flip_bit(shard(here), 20); }},
    {"ShardMissing",
     kGood,
     5,
     {".safetensors' is missing"},
     [](const Path& here) { remove_quietly(shard(here)); }},
    {"ShardIsADirectory",
     kGood,
     5,
     {".safetensors' is missing, or not a file"},
     [](const Path& here) { replace_by_directory(shard(here)); }},
    {"ShardUnreadable", kGood, 5, {".safetensors'", "Permission denied"}, deny_shard, kNobody},
};

const std::vector<ErrorCase> kData = {
    {"DataMissing",
     {"run", "--data", "none"},
     4,
     {"no token directory 'none'"},
     {},
     {},
     "tokenize"},
    {"DataIsAFile", {"run", "--data", "file"}, 4, {"'file' is no token directory"}},
    {"DataIsEmpty", {"run", "--data", "empty"}, 4, {"'empty' is no token directory", "meta.json"}},
    {"DataIsAModel", {"run", "--data", "run"}, 4, {"'run' is no token directory"}},
    {"MetaCut", kGood, 4, {"tokens/meta.json is not valid JSON"}, cut("tokens/meta.json", 20)},
    {"ValCut", kGood, 4, {"val.bin is truncated: it holds 100 "}, cut("tokens/val.bin", 100)},
    {"ValUnreadable", kGood, 4, {"val.bin", "Permission denied"}, deny_data, kNobody},
    {"OtherVocabulary",
     kGood,
     4,
     {"60000 ids", "256"},
     tokens(60000, std::vector<std::uint16_t>(100), std::vector<std::uint16_t>(100))},
    {"OtherTokenizer",
     kGood,
     4,
     {"tokenizer 'char'", "'byte'"},
     change("tokens/meta.json", "byte", "char")},
    {"ShorterThanAWindow",
     kGood,
     4,
     {"val.bin: 32 ids are fewer than one window of 32 + 1"},
     tokens(256, std::vector<std::uint8_t>(100), std::vector<std::uint8_t>(32))},
};

INSTANTIATE_TEST_SUITE_P(Arguments, EvalErrors,
                         testing::ValuesIn(kArguments + common_errors("dew eval", kGood, kGood)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Model, EvalErrors, testing::ValuesIn(kModels), name_of);
INSTANTIATE_TEST_SUITE_P(Data, EvalErrors, testing::ValuesIn(kData), name_of);

}  // namespace
}  // namespace dew
