// Everything that a user or the world can do wrong with dew eval.
#include <optional>

#include "dew/data/data_test_support.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

// One trained run for all tests; each works on a copy.
const Path& trained_run() {
  static const TemporaryDirectory directory;
  static const Path path = [] {
    expect_done(dew(train_notebook(directory / "run", {"run.steps=1"})));
    return directory / "run";
  }();
  return path;
}

class EvalErrors : public testing::Test {
 protected:
  EvalErrors() {
    std::filesystem::copy("tests/data/notebook-tokens", directory_ / "tokens");
    std::filesystem::copy(trained_run(), directory_ / "run",
                          std::filesystem::copy_options::recursive);
    write_text(directory_ / "file", "not a directory");
  }
  Outcome eval(const Words& words, const Start& start = {}) {
    Words all = {"eval"};
    all.insert(all.end(), words.begin(), words.end());
    Start here = start;
    here.directory = directory_.path();
    return dew(all, here);
  }
  Path checkpoint() const { return directory_ / "run/checkpoints/step_00000001"; }
  Path shard() const {
    for (const std::string& name : list_directory(checkpoint(), ErrorCode::internal)) {
      if (name.ends_with(".safetensors")) return checkpoint() / name;
    }
    return {};
  }

  TemporaryDirectory directory_;
};

struct BadEval {
  const char* name;
  Words words;
  int status;
  const char* text;
};

class EvalArguments : public EvalErrors, public testing::WithParamInterface<BadEval> {};

TEST_P(EvalArguments, Refused) {
  create_directories(directory_ / "empty", ErrorCode::internal);
  create_directories(directory_ / "hf", ErrorCode::internal);
  write_text(directory_ / "hf/config.json", "{}");
  const auto before = snapshot(directory_.path());
  expect_error(eval(GetParam().words), GetParam().status, GetParam().text);
  EXPECT_EQ(snapshot(directory_.path()), before);
}

const BadEval kBadEvals[] = {
    {"NoArguments", {}, 2, "required"},
    {"NoModel", {"--data", "tokens"}, 2, "MODEL is required"},
    {"NoData", {"run"}, 2, "--data is required"},
    {"TwoModels", {"run", "run", "--data", "tokens"}, 2, "run"},
    {"ModelMissing", {"none", "--data", "tokens"}, 5, "'none' does not exist"},
    {"ModelIsAFile", {"file", "--data", "tokens"}, 5, "file"},
    {"ModelIsEmpty", {"empty", "--data", "tokens"}, 5, "empty"},
    {"ModelIsEmptyText", {"", "--data", "tokens"}, 5, ""},
    {"ModelNotUtf8", {"\xff", "--data", "tokens"}, 5, "\\xff"},
    {"HuggingFace", {"hf", "--data", "tokens"}, 5, "hf/config.json: model_type is missing"},
    {"DataMissing", {"run", "--data", "none"}, 4, "none"},
    {"DataIsAFile", {"run", "--data", "file"}, 4, "file"},
    {"DataIsEmpty", {"run", "--data", "empty"}, 4, "meta.json"},
    {"BatchesNegative", {"run", "--data", "tokens", "--batches", "-1"}, 2, "-1"},
    {"BatchesText", {"run", "--data", "tokens", "--batches", "all"}, 2, "all"},
    {"BatchesWithUnit", {"run", "--data", "tokens", "--batches", "1k"}, 2, "1k"},
    {"BatchesHuge", {"run", "--data", "tokens", "--batches", "99999999999999999999"}, 2, "9999"},
    {"Devices", {"run", "--data", "tokens", "--devices", "gpu:8"}, 2, "--devices = 'gpu:8'"},
    {"MeshWithoutDevices", {"run", "--data", "tokens", "--mesh", "fsdp=8"}, 3, "fsdp"},
    {"MeshAxis", {"run", "--data", "tokens", "--mesh", "fsd=8"}, 2, "fsdp"},
    {"UnknownOption", {"run", "--data", "tokens", "--jsn"}, 2, "--jsn"},
    {"QuietAndVerbose", {"run", "--data", "tokens", "-q", "-v"}, 2, "--verbose"},
};

INSTANTIATE_TEST_SUITE_P(All, EvalArguments, testing::ValuesIn(kBadEvals),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_F(EvalErrors, DamagedCheckpoints) {
  const Path manifest = checkpoint() / "manifest.json";
  const std::string good = read_text(manifest);
  const auto expect_damage = [&](const std::string& text) {
    for (const char* model : {"run", "run/checkpoints/step_00000001"}) {
      expect_error(eval({model, "--data", "tokens"}), 5, text);
    }
  };
  write_text(manifest, "");
  expect_damage("manifest.json");
  write_text(manifest, good.substr(0, good.size() / 2));
  expect_damage("manifest.json");
  write_text(manifest, "\xff" + good);
  expect_damage("manifest.json");
  std::string other = good;
  other[other.find("\"step\"") + 9] ^= 1;
  write_text(manifest, other);
  expect_damage("manifest.json");
  std::filesystem::resize_file(manifest, kHuge);
  expect_damage("manifest.json");
  std::filesystem::remove(manifest);
  expect_damage("run");
  create_directories(manifest, ErrorCode::internal);
  expect_damage("manifest.json");
}

TEST_F(EvalErrors, DamagedShards) {
  const std::string good = read_text(shard());
  const Path path = shard();
  const Words words = {"run", "--data", "tokens"};
  std::string flipped = good;
  flipped[good.size() / 8] ^= 1;  // among the parameters, which are all that eval reads
  const auto expect_damage = [&](const std::string& text) { expect_error(eval(words), 5, text); };
  write_text(path, good.substr(0, good.size() - 1));
  expect_damage(path.filename().string());
  write_text(path, good + "x");
  expect_damage(path.filename().string());
  write_text(path, "");
  expect_damage(path.filename().string());
  write_text(path, flipped);
  expect_damage(path.filename().string());
  std::filesystem::remove(path);
  expect_damage(path.filename().string());
  create_directories(path, ErrorCode::internal);
  expect_damage(path.filename().string());
}

TEST_F(EvalErrors, UnreadableFiles) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  for (const Path& path : {shard(), checkpoint() / "manifest.json"}) {
    make_unreadable(path);
    const Outcome outcome = eval({"run", "--data", "tokens"}, {.as_nobody = true});
    if (outcome.status == 127) GTEST_SKIP() << "nobody may not run the program";
    expect_error(outcome, 5, path.filename().string());
  }
}

TEST_F(EvalErrors, OtherTokenizers) {
  write_directory(directory_ / "large", 60000, std::vector<std::uint16_t>(100),
                  std::vector<std::uint16_t>(100));
  expect_error(eval({"run", "--data", "large"}), 4, "60000 ids");
  std::string meta = read_text(directory_ / "tokens/meta.json");
  meta.replace(meta.find("byte"), 4, "char");
  write_text(directory_ / "tokens/meta.json", meta);
  expect_error(eval({"run", "--data", "tokens"}), 4, "tokenizer 'char'");
}

TEST_F(EvalErrors, DataShorterThanAWindow) {
  write_directory(directory_ / "short", 256, std::vector<std::uint8_t>(100),
                  std::vector<std::uint8_t>(32));
  expect_error(eval({"run", "--data", "short"}), 4, "val.bin: 32 ids are fewer");
}

TEST_F(EvalErrors, StandardOutputThatCannotBeWritten) {
  const Words words = {"run", "--data", "tokens", "--json"};
  expect_error(eval(words, {.close_stdout = true}), 2, "standard output");
  const Outcome broken = eval(words, {.broken_stdout = true});
  EXPECT_EQ(broken.status, 2);
  EXPECT_NE(broken.err.find("dew: error: cannot write to standard output"), std::string::npos);
}

}  // namespace
}  // namespace dew
