// Everything that a user or the world can do wrong with dew train: one line, the documented exit
// status, and nothing is written.
#include <cstdint>

#include "dew/data/data_test_support.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  ASSERT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
}

class TrainErrors : public testing::Test {
 protected:
  TrainErrors() {
    std::filesystem::copy("tests/data/notebook-tokens", directory_ / "tokens");
    std::string config = read_text("examples/notebook.toml");
    replace(config, "tests/data/notebook-tokens", "tokens");
    replace(config, "runs/notebook", "run");
    replace(config, "steps = 20", "steps = 2");
    write("config.toml", config);
  }
  void write(const std::string& name, const std::string& text) {
    create_directories((directory_ / name).parent_path(), ErrorCode::internal);
    write_text(directory_ / name, text);
  }
  void make_directory(const std::string& name) {
    create_directories(directory_ / name, ErrorCode::internal);
  }
  void make_huge(const std::string& name) {
    write(name, "x");
    std::filesystem::resize_file(directory_ / name, kHuge);
  }
  Outcome train(const Words& overrides, const std::string& config = "config.toml") {
    Words words = {"train", config};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return dew(words, {.directory = directory_.path()});
  }
  void expect_refused(const Outcome& outcome, int status, const std::string& text) {
    expect_error(outcome, status, text);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "dump"));
  }

  TemporaryDirectory directory_;
};

// ---- the command line

struct BadOverride {
  const char* name;
  Words overrides;
  int status;
  const char* text;
};

class TrainOverrides : public TrainErrors, public testing::WithParamInterface<BadOverride> {};

TEST_P(TrainOverrides, Refused) {
  write("file", "not a directory");
  expect_refused(train(GetParam().overrides), GetParam().status, GetParam().text);
}

const BadOverride kBadOverrides[] = {
    // what is typed wrong
    {"UnknownKey", {"optimizer.learning_rate=1e-3"}, 2, "optimizer.lr"},
    {"UnknownKeyNearest", {"model.num_layer=2"}, 2, "model.num_layers"},
    {"UnknownSection", {"optimiser.lr=1e-3"}, 2, "optimizer"},
    {"NoSection", {"steps=3"}, 2, "steps"},
    {"NoValue", {"run.steps"}, 2, "run.steps"},
    {"EmptyValue", {"run.steps="}, 2, "run.steps"},
    {"EmptyKey", {"=3"}, 2, "=3"},
    {"EmptyWord", {""}, 2, ""},
    {"BadToml", {"model.window_pattern=[1, 2"}, 2, "window_pattern"},
    {"NotUtf8", {"model.mlp=\xff\xfe"}, 2, "mlp"},
    {"Newline", {"model.mlp=a\nb"}, 2, "mlp"},
    {"UnknownOption", {"--fast"}, 2, "--fast"},
    {"QuietAndVerbose", {"--quiet", "--verbose"}, 2, "--verbose"},
    // wrong types and units
    {"TextForANumber", {"run.steps=many"}, 2, "run.steps"},
    {"FractionForACount", {"run.steps=2.5"}, 2, "run.steps"},
    {"NumberForText", {"optimizer.name=3"}, 2, "optimizer.name"},
    {"ListForANumber", {"run.seed=[1]"}, 2, "run.seed"},
    {"NumberForABool", {"model.qk_norm=1"}, 2, "model.qk_norm"},
    {"Unit", {"comm.step_timeout=60s"}, 2, "comm.step_timeout"},
    {"Percent", {"model.dropout=10%"}, 2, "model.dropout"},
    // out of range
    {"StepsNegative", {"run.steps=-1"}, 2, "run.steps"},
    {"StepsBeyond63Bits", {"run.steps=9223372036854775808"}, 2, "run.steps"},
    {"SeedNegative", {"run.seed=-1"}, 2, "run.seed"},
    {"RateNegative", {"optimizer.lr=-1"}, 2, "optimizer.lr"},
    {"RateNan", {"optimizer.lr=nan"}, 2, "optimizer.lr"},
    {"RateInfinite", {"optimizer.lr=inf"}, 2, "optimizer.lr"},
    {"DropoutAboveOne", {"model.dropout=1.5"}, 2, "model.dropout"},
    {"BatchZero", {"data.global_batch=0"}, 2, "data.global_batch"},
    {"SeqLenZero", {"data.seq_len=0"}, 2, "data.seq_len"},
    {"LayersZero", {"model.num_layers=0"}, 2, "model.num_layers"},
    {"UnknownChoice", {"model.mlp=relu"}, 2, "swiglu"},
    {"UnknownSchedule", {"schedule.name=cosine"}, 2, "schedule.name"},
    {"HeadsDoNotDivide", {"model.num_heads=5"}, 2, "num_heads"},
    {"HeadDimOdd", {"model.head_dim=7"}, 2, "head_dim"},
    {"VocabularyBelowTheCorpus", {"model.vocab_size=100"}, 2, "model.vocab_size"},
    {"SeqLenAboveMaximum", {"model.max_seq_len=16"}, 2, "max_seq_len"},
    {"BatchHuge", {"data.global_batch=4000000000"}, 2, "4000000000"},
    {"ModelHuge", {"model.emb_features=1048576", "model.num_layers=1000"}, 2, "parameters"},
    {"SeqLenHuge", {"data.seq_len=1000000"}, 4, "fewer than one window"},
    // conflicts
    {"AccumulateAndMicroBatch", {"data.accumulate=2", "data.micro_batch=2"}, 2, "micro_batch"},
    {"MomentumOfAdam", {"optimizer.momentum=0.5"}, 2, "momentum"},
    // to come
    {"Sequence", {"devices.spec=cpu:2", "mesh.sequence=2"}, 2, "is not built yet"},
    {"Mesh", {"mesh.fsdp=8"}, 3, "fsdp=8"},
    {"Heads", {"devices.spec=cpu:3", "mesh.tensor=3"}, 3, "tensor"},
    {"Layout",
     {"devices.spec=cpu:2", "mesh.fsdp=2", "layout.min_shard=0", "layout.tolerance=0",
      "layout.rules=[[\"embed\", []]]"},
     3,
     "%"},
    {"Muon", {"optimizer.name=muon"}, 2, "is not built yet"},
    {"InitFromNothing", {"run.init_from=runs/a"}, 5, "'runs/a' does not exist"},
    {"Experts", {"model.experts=8"}, 2, "is not built yet"},
    {"Profile", {"--profile"}, 2, "--profile is not built yet"},
    // paths
    {"RunDirEmpty", {"run.dir="}, 2, "run.dir"},
    {"RunDirIsAFile", {"run.dir=file"}, 2, "file"},
    {"RunDirBelowAFile", {"run.dir=file/run"}, 2, "file"},
    {"RunDirCannotBeMade", {"run.dir=/proc/run"}, 2, "/proc/run"},
    {"DumpIsAFile", {"--dump", "file"}, 2, "file"},
    {"KeepBestOfNothing", {"run.keep_best=1"}, 2, "run.keep and run.eval_every above 0"},
    {"KeepEveryOfAll", {"run.keep=0", "run.keep_every=5"}, 2, "run.keep above 0"},
    {"NothingToResume", {"run.resume=must"}, 5, "run"},
    {"DataMissing", {"data.path=none"}, 4, "none"},
    {"DataIsAFile", {"data.path=file"}, 4, "file"},
};

INSTANTIATE_TEST_SUITE_P(All, TrainOverrides, testing::ValuesIn(kBadOverrides),
                         [](const auto& p) { return std::string(p.param.name); });

// ---- the config file

TEST_F(TrainErrors, ConfigFiles) {
  make_directory("directory.toml");
  make_huge("huge.toml");
  write("empty.toml", "");
  write("cut.toml", "[run]\ndir = \"x");
  write("twice.toml", "[run]\nsteps = 1\nsteps = 2\n");
  write("binary.toml", std::string("\x7f"
                                   "ELF\0\xff\xfe",
                                   7));
  write("latin1.toml", "[run]\ndir = \"caf\xe9\"\n");
  write("unknown.toml", read_text(directory_ / "config.toml") + "\n[optimizr]\nlr = 1\n");
  const std::pair<const char*, const char*> cases[] = {
      {"none.toml", "none.toml"},
      {"directory.toml", "directory.toml"},
      {"huge.toml", "huge.toml"},
      {"cut.toml", "cut.toml"},
      {"twice.toml", "steps"},
      {"binary.toml", "binary.toml"},
      {"latin1.toml", "latin1.toml"},
      {"unknown.toml", "optimizer"},
      {"config.toml/x.toml", "config.toml"},
      {"", ""},
  };
  for (const auto& [config, text] : cases) {
    SCOPED_TRACE(config);
    expect_refused(train({}, config), 2, text);
  }
  expect_refused(dew({"train"}, {.directory = directory_.path()}), 2, "CONFIG is required");
  expect_refused(dew({"train", "empty.toml"}, {.directory = directory_.path()}), 2, "empty.toml");
}

TEST_F(TrainErrors, Unreadable) {
  const auto as_nobody = [&] {
    return dew({"train", "config.toml"}, {.directory = directory_.path(), .as_nobody = true});
  };
  std::filesystem::permissions(directory_ / "tokens/train.bin", std::filesystem::perms::none);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  const Outcome data = as_nobody();
  if (data.status == 127) GTEST_SKIP() << "nobody may not run the program";
  expect_refused(data, 4, "train.bin");
  make_unreadable(directory_ / "config.toml");
  expect_refused(as_nobody(), 2, "Permission denied");
}

// A directory in which nothing can be made.
TEST_F(TrainErrors, RunDirectoryIsReadOnly) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms{0755});
  const Outcome outcome =
      dew({"train", "config.toml"}, {.directory = directory_.path(), .as_nobody = true});
  if (outcome.status == 127) GTEST_SKIP() << "nobody may not run the program";
  expect_refused(outcome, 2, "Permission denied");
}

// ---- the data

struct BadData {
  const char* name;
  const char* text;
  void (*damage)(const Path& tokens);
};

std::string meta(const Path& tokens) { return read_text(tokens / "meta.json"); }

void replace_in_meta(const Path& tokens, const std::string& from, const std::string& to) {
  std::string text = meta(tokens);
  replace(text, from, to);
  write_text(tokens / "meta.json", text);
}

class TrainData : public TrainErrors, public testing::WithParamInterface<BadData> {};

TEST_P(TrainData, Refused) {
  GetParam().damage(directory_ / "tokens");
  expect_refused(train({}), 4, GetParam().text);
}

const BadData kBadData[] = {
    {"MetaMissing", "meta.json", [](const Path& t) { remove_quietly(t / "meta.json"); }},
    {"MetaEmpty", "meta.json", [](const Path& t) { write_text(t / "meta.json", ""); }},
    {"MetaCut", "meta.json",
     [](const Path& t) { write_text(t / "meta.json", meta(t).substr(0, 30)); }},
    {"MetaNoObject", "meta.json", [](const Path& t) { write_text(t / "meta.json", "[]"); }},
    {"MetaNotUtf8", "meta.json",
     [](const Path& t) { write_text(t / "meta.json", "{\"tokenizer\": \"\xff\"}"); }},
    {"MetaIsADirectory", "meta.json",
     [](const Path& t) {
       remove_quietly(t / "meta.json");
       create_directories(t / "meta.json", ErrorCode::internal);
     }},
    {"MetaHuge", "meta.json",
     [](const Path& t) { std::filesystem::resize_file(t / "meta.json", kHuge); }},
    {"MetaWrongType", "vocab_size", [](const Path& t) { replace_in_meta(t, "256", "\"256\""); }},
    {"MetaWrongDtype", "dtype", [](const Path& t) { replace_in_meta(t, "uint8", "int8"); }},
    {"MetaNegative", "train_tokens", [](const Path& t) { replace_in_meta(t, "95598", "-1"); }},
    {"TrainMissing", "train.bin", [](const Path& t) { remove_quietly(t / "train.bin"); }},
    {"TrainEmpty", "train.bin is empty", [](const Path& t) { write_text(t / "train.bin", ""); }},
    {"TrainCut", "truncated",
     [](const Path& t) { std::filesystem::resize_file(t / "train.bin", 1000); }},
    {"TrainLonger", "larger than described",
     [](const Path& t) { std::filesystem::resize_file(t / "train.bin", 100000); }},
    {"TrainIsADirectory", "train.bin",
     [](const Path& t) {
       remove_quietly(t / "train.bin");
       create_directories(t / "train.bin", ErrorCode::internal);
     }},
    {"ValMissing", "val.bin", [](const Path& t) { remove_quietly(t / "val.bin"); }},
    {"ValEmpty", "val.bin is empty", [](const Path& t) { write_text(t / "val.bin", ""); }},
    {"IdsOutsideTheVocabulary", "outside the vocabulary of 60",
     [](const Path& t) { replace_in_meta(t, "256", "60"); }},
    {"ShorterThanAWindow", "fewer than one window",
     [](const Path& t) {
       write_directory(t, 256, std::vector<std::uint8_t>(20), std::vector<std::uint8_t>(20));
     }},
};

INSTANTIATE_TEST_SUITE_P(All, TrainData, testing::ValuesIn(kBadData),
                         [](const auto& p) { return std::string(p.param.name); });

// ---- going on with a run

class ResumeErrors : public TrainErrors {
 protected:
  void SetUp() override { expect_done(train({"run.checkpoint_every=1"})); }

  // Refused with status 5, and the run is as it was but for log.txt.
  void expect_kept(const Outcome& outcome, const std::string& text) {
    expect_error(outcome, 5, text);
    std::filesystem::remove(directory_ / "run/log.txt");
    EXPECT_EQ(snapshot(directory_ / "run"), before_);
  }
  void remember() {
    std::filesystem::remove(directory_ / "run/log.txt");
    before_ = snapshot(directory_ / "run");
  }
  Path newest() const { return directory_ / "run/checkpoints/step_00000002"; }

  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(ResumeErrors, WhatMayNotChange) {
  remember();
  expect_kept(train({"run.steps=4", "run.seed=7"}), "run.seed was 0, is 7");
  expect_kept(train({"run.steps=4", "model.num_layers=3"}), "model.num_layers was 2, is 3");
  expect_kept(train({"run.steps=4", "optimizer.b1=0.8"}), "optimizer.b1 was 0.9, is 0.8");
  expect_kept(train({"run.steps=4", "optimizer.name=lion"}), "optimizer.name");
  expect_kept(train({"run.steps=4", "data.seq_len=16"}), "data.seq_len was 32, is 16");
  expect_kept(train({"run.steps=4", "run.resume=never"}), "holds a run at step 2");
}

TEST_F(ResumeErrors, AnotherCorpus) {
  std::string ids = read_text(directory_ / "tokens/train.bin");
  ids[100] = 'x';
  write("tokens/train.bin", ids);
  remember();
  expect_kept(train({"run.steps=4"}), "data");
}

TEST_F(ResumeErrors, TargetBehind) {
  expect_error(train({"run.steps=1"}), 2, "is at step 2, and run.steps = 1");
}

// The newest complete checkpoint is taken, and a warning names what was wrong.
TEST_F(ResumeErrors, DamagedCheckpointIsPassedOver) {
  std::filesystem::resize_file(newest() / "manifest.json", 100);
  const Outcome outcome = train({"run.steps=4"});
  expect_done(outcome);
  EXPECT_NE(outcome.err.find("warning: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("step_00000002"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("Resumed from step 1 in"), std::string::npos) << outcome.err;
}

// One bit of the newest, which no size and no manifest shows.
TEST_F(ResumeErrors, AFlippedBitIsPassedOver) {
  for (const std::string& name : list_directory(newest(), ErrorCode::internal)) {
    if (!name.ends_with(".safetensors")) continue;
    std::string text = read_text(newest() / name);
    text[text.size() / 2] ^= 4;
    write_text(newest() / name, text);
  }
  remember();
  expect_kept(train({"run.steps=4", "run.resume=must"}), "the newest checkpoint is damaged: ");
  const Outcome outcome = train({"run.steps=4", "run.log_every=1"});
  expect_done(outcome);
  EXPECT_NE(outcome.err.find("warning: step 2 is passed over: '"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("digest differs"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("Resumed from step 1 in"), std::string::npos) << outcome.err;
  std::vector<int> logged;
  for (const Json& line : metrics_of(directory_ / "run")) {
    if (line.contains("loss")) logged.push_back(line["step"]);
  }
  EXPECT_EQ(logged, (std::vector<int>{2, 3, 4}));  // the first run logged at its end only
  EXPECT_TRUE(std::filesystem::exists(directory_ / "run/checkpoints/step_00000004"));
}

TEST_F(ResumeErrors, WhatMayChangeIsTold) {
  const std::pair<const char*, const char*> changes[] = {
      {"run.log_every=3", "Changed: run.steps was 2, is 3"},
      {"optimizer.lr=5e-4", "Changed: optimizer.lr was 0.001, is 0.0005"},
      {"schedule.warmup_steps=3", "Changed: schedule.warmup_steps was 0, is 3"},
      {"data.global_batch=7", "Changed: data.global_batch was 16, is 7"},
      {"data.accumulate=2", "Changed: data.accumulate was not set, is 2"}};
  for (const auto& [key, line] : changes) {
    std::filesystem::remove_all(directory_ / "copy");
    std::filesystem::copy(directory_ / "run", directory_ / "copy",
                          std::filesystem::copy_options::recursive);
    const Outcome outcome = train({"run.steps=3", "run.dir=copy", key});
    expect_done(outcome);
    EXPECT_NE(outcome.err.find(std::string(line) + "\n"), std::string::npos) << outcome.err;
  }
}

TEST_F(ResumeErrors, NoCheckpointIsWhole) {
  for (const char* name : {"step_00000001", "step_00000002"}) {
    std::filesystem::resize_file(directory_ / "run/checkpoints" / name / "manifest.json", 100);
  }
  remember();
  for (const char* resume : {"must", "auto"}) {
    const Outcome outcome = train({"run.steps=4", std::string("run.resume=") + resume});
    expect_kept(outcome, "no complete checkpoint in");
    EXPECT_NE(outcome.err.find("step_00000001"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace dew
