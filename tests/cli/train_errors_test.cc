// Everything that a user or the world can do wrong with dew train: one line, the documented exit
// status, and nothing is written.
#include "dew/base/machine.h"
#include "dew/data/data_test_support.h"
#include "tests/cli/error_case.h"

namespace dew {
namespace {

class TrainErrors : public testing::Test {
 protected:
  TrainErrors() {
    std::filesystem::copy("tests/data/notebook-tokens", directory_ / "tokens");
    write("config.toml", read_text("examples/notebook.toml"));
    replace_in(directory_ / "config.toml", "tests/data/notebook-tokens", "tokens");
    replace_in(directory_ / "config.toml", "runs/notebook", "run");
    replace_in(directory_ / "config.toml", "steps = 20", "steps = 2");
  }
  void write(const std::string& name, const std::string& text) {
    write_file(directory_ / name, text);
  }
  Outcome train(const Words& overrides, const std::string& config = "config.toml") {
    Words words = {"train", config};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return dew(words, {.directory = directory_.path()});
  }

  TemporaryDirectory directory_;
};

class TrainTable : public TrainErrors, public testing::WithParamInterface<ErrorCase> {
 protected:
  TrainTable() {
    write("file", "not a directory");
    make_directory(directory_ / "empty");
    make_directory(directory_ / "directory.toml");
  }
};

TEST_P(TrainTable, Refused) { refuse("train", GetParam(), directory_.path()); }

// The notebook's config with overrides.
Words with(const Words& overrides) {
  Words words = {"config.toml"};
  words.insert(words.end(), overrides.begin(), overrides.end());
  return words;
}

std::function<void(const Path&)> config(const std::string& text) {
  return [=](const Path& here) { write_file(here / "config.toml", text); };
}
std::function<void(const Path&)> config_and(const std::string& text) {
  return [=](const Path& here) {
    write_file(here / "config.toml", read_text(here / "config.toml") + text);
  };
}
void deny_config(const Path& here) { make_unreadable(here / "config.toml"); }
void deny_data(const Path& here) { make_unreadable(here / "tokens/train.bin"); }
const Start kNobody = {.as_nobody = true};

// Rows that need more than there is, but not so many that this is plain before a plan is made: one
// needs 50 kB at least and 390 kB in fact.
std::string planned_too_large() { return std::to_string(std::int64_t(memory_bytes() / 150e3)); }

const std::vector<ErrorCase> kTyped = {
    {"NoConfig", {}, 2, {"dew train: CONFIG is required"}, {}, {}, "dew train --help"},
    {"DumpWithoutValue", with({"--dump"}), 2, {"--dump needs a value"}},
    {"DumpTwice", with({"--dump", "a", "--dump", "b"}), 2, {"--dump is given more than once"}},
    {"UnknownKey",
     with({"optimizer.learning_rate=1e-3"}),
     2,
     {"unknown key 'optimizer.learning_rate'", "the nearest is optimizer.lr"}},
    {"UnknownKeyNearest",
     with({"model.num_layer=2"}),
     2,
     {"'model.num_layer'", "model.num_layers"}},
    {"UnknownSection", with({"optimiser.lr=1e-3"}), 2, {"'optimiser.lr'", "optimizer.lr"}},
    {"KeyOfAnotherSection", with({"run.lr=1e-3"}), 2, {"'run.lr'", "optimizer.lr"}},
    {"KeyIsASection", with({"model=3"}), 2, {"'model=3' is not section.key=value"}},
    {"DataAxis", with({"mesh.data=2"}), 2, {"'mesh.data'"}, {}, {}, "the devices that the other"},
    {"NoSection", with({"steps=3"}), 2, {"'steps=3' is not section.key=value"}},
    {"NoValue", with({"run.steps"}), 2, {"'run.steps' is not section.key=value"}},
    {"EmptyValue", with({"run.steps="}), 2, {"'run.steps=' has no value"}, {}, {}, "empty text"},
    {"EmptyKey", with({"=3"}), 2, {"'=3' is not section.key=value"}},
    {"EmptyWord", with({""}), 2, {"'' is not section.key=value"}},
    {"KeyTwice", with({"run.steps=1", "run.steps=2"}), 2, {"'run.steps' is given twice"}},
    {"TwoConfigs", with({"config.toml"}), 2, {"'config.toml' is not section.key=value"}},
    {"BadToml", with({"model.window_pattern=[1, 2"}), 2, {"'model.window_pattern'", "not valid"}},
    {"NotUtf8", with({"model.mlp=\xff\xfe"}), 2, {"model.mlp", "not valid TOML"}},
    {"Newline", with({"model.mlp=a\nb"}), 2, {"model.mlp = \"a\\u000ab\"", "swiglu"}},
};

const std::vector<ErrorCase> kValues = {
    // wrong types and units
    {"TextForANumber", with({"run.steps=many"}), 2, {"run.steps must be an integer", "'many'"}},
    {"FractionForACount", with({"run.steps=2.5"}), 2, {"run.steps must be an integer", "2.5"}},
    {"CountWithUnit", with({"run.steps=1k"}), 2, {"run.steps must be an integer", "'1k'"}},
    {"NumberForText", with({"optimizer.name=3"}), 2, {"optimizer.name must be a string", "3"}},
    {"ListForANumber", with({"run.seed=[1]"}), 2, {"run.seed must be an integer", "1"}},
    {"TableForANumber", with({"run.seed={a=1}"}), 2, {"run.seed must be an integer"}},
    {"NumberForABool", with({"model.qk_norm=1"}), 2, {"model.qk_norm must be true or false", "1"}},
    {"Seconds", with({"comm.step_timeout=60s"}), 2, {"comm.step_timeout must be a number", "60s"}},
    {"Percent", with({"model.dropout=10%"}), 2, {"model.dropout must be a number", "10%"}},
    // out of range
    {"StepsNegative", with({"run.steps=-1"}), 2, {"run.steps = -1", "at least 0"}},
    {"StepsBeyond63Bits", with({"run.steps=9223372036854775808"}), 2, {"9223372036854775808"}},
    {"SeedNegative", with({"run.seed=-1"}), 2, {"run.seed = -1", "at least 0"}},
    {"RateNegative", with({"optimizer.lr=-1"}), 2, {"optimizer.lr = -1", "at least 0"}},
    {"RateNan", with({"optimizer.lr=nan"}), 2, {"optimizer.lr = nan", "at least 0"}},
    {"RateInfinite", with({"optimizer.lr=inf"}), 2, {"optimizer.lr = inf"}},
    {"RateBeyondF32", with({"optimizer.lr=1e308"}), 2, {"optimizer.lr = 1e+308", "range of f32"}},
    {"DecayBeyondF32", with({"optimizer.weight_decay=1e39"}), 2, {"= 1e+39", "range of f32"}},
    {"EpsBelowF32", with({"model.norm_eps=1e-60"}), 2, {"model.norm_eps = 1e-60", "range of f32"}},
    {"ScaleBeyondF32", with({"model.attention_scale=1e60"}), 2, {"= 1e+60", "range of f32"}},
    {"CapBelowF32", with({"model.logit_softcap=1e-60"}), 2, {"= 1e-60", "range of f32"}},
    {"ZLossBeyondF32", with({"objective.z_loss=1e60"}), 2, {"z_loss = 1e+60", "range of f32"}},
    {"DropoutAboveOne", with({"model.dropout=1.5"}), 2, {"model.dropout = 1.5", "below 1"}},
    {"BatchZero", with({"data.global_batch=0"}), 2, {"data.global_batch = 0", "from 1 to"}},
    {"SeqLenZero", with({"data.seq_len=0"}), 2, {"data.seq_len = 0", "from 1 to"}},
    {"LayersZero", with({"model.num_layers=0"}), 2, {"model.num_layers = 0", "from 1 to"}},
    {"UnknownChoice", with({"model.mlp=relu"}), 2, {"\"relu\"", "swiglu, geglu, gelu"}},
    {"UnknownSchedule", with({"schedule.name=cosine"}), 2, {"\"cosine\"", "warmup_cosine"}},
    {"UnknownResume", with({"run.resume=yes"}), 2, {"run.resume = \"yes\"", "auto, never, must"}},
    {"HeadsDoNotDivide", with({"model.num_heads=5"}), 2, {"model.num_heads = 5", "64", "1, 2, 4"}},
    {"KvHeadsDoNotDivide", with({"model.num_kv_heads=3"}), 2, {"num_kv_heads = 3", "1, 2, 4"}},
    {"HeadDimOdd", with({"model.head_dim=7"}), 2, {"model.head_dim = 7 is odd"}},
    {"VocabularyBelowTheCorpus",
     with({"model.vocab_size=100"}),
     2,
     {"model.vocab_size = 100 is below the 256 of 'tokens'"},
     {},
     {},
     "model.vocab_size=256"},
    {"SeqLenAboveMaximum", with({"model.max_seq_len=16"}), 2, {"data.seq_len = 32", "= 16"}},
    {"BatchBeyondInt32", with({"data.global_batch=4000000000"}), 2, {"4000000000", "2147483647"}},
    {"ModelHuge",
     with({"model.emb_features=1048576", "model.num_layers=1000"}),
     2,
     {"model.num_layers = 1000", "1.8e+16 parameters: at most 1e15"}},
    {"ModelBeyondMemory",
     with({"model.emb_features=1048576"}),
     2,
     {"parameters needs", "this machine has"},
     {},
     {},
     "smaller layers"},
    {"BatchBeyondMemory",
     with({"data.global_batch=2147483647"}),
     2,
     {"a batch of 2147483647 rows of 32 tokens needs", "TB, this machine has"},
     {},
     {},
     "data.global_batch="},
    {"PlannedStepBeyondMemory",
     with({"data.global_batch=" + planned_too_large()}),
     2,
     {"a micro step of " + planned_too_large() + " rows of 32 tokens needs", "this machine has"},
     {},
     {},
     "data.micro_batch="},
    {"MicroStepBeyondMemory",
     with({"data.global_batch=1048576", "model.num_layers=1000"}),
     2,
     {"a micro step of 1048576 rows of 32 tokens needs", "TB at least, this machine has"},
     {},
     {},
     "data.micro_batch="},
    {"SeqLenHuge",
     with({"data.seq_len=1000000"}),
     4,
     {"train.bin: 95598 ids are fewer than one window of 1000000 + 1"}},
    // what does not go together
    {"AccumulateAndMicroBatch",
     with({"data.accumulate=2", "data.micro_batch=3"}),
     2,
     {"data.accumulate = 2", "data.micro_batch = 3", "keep one"}},
    {"MomentumOfAdam",
     with({"optimizer.momentum=0.5"}),
     2,
     {"optimizer.momentum = 0.5 has no effect", "\"sgd\""}},
    {"Mesh", with({"mesh.fsdp=8"}), 3, {"fsdp=8"}},
    {"ManyDevices", with({"devices.spec=cpu:100000"}), 2, {"100000 devices", "at most 4096"}},
    {"Heads", with({"devices.spec=cpu:3", "mesh.tensor=3"}), 3, {"tensor"}},
    {"Layout",
     with({"devices.spec=cpu:2", "mesh.fsdp=2", "layout.min_shard=0", "layout.tolerance=0",
           "layout.rules=[[\"embed\", []]]"}),
     3,
     {"%"}},
    {"RuleAxis", with({"layout.rules=[[\"embed\", [\"fsd\"]]]"}), 2, {"fsd", "fsdp"}},
    // to come
    {"Sequence", with({"devices.spec=cpu:2", "mesh.sequence=2"}), 2, {"is not built yet"}},
    {"Muon", with({"optimizer.name=muon"}), 2, {"optimizer.name = \"muon\" is not built yet"}},
    {"Experts", with({"model.experts=8"}), 2, {"model.experts is not built yet"}},
};

const std::vector<ErrorCase> kConfigs = {
    {"Missing", {"none.toml"}, 2, {"'none.toml'", "No such file"}},
    {"EmptyName", {""}, 2, {"''", "No such file"}},
    {"BelowAFile", {"config.toml/x.toml"}, 2, {"config.toml/x.toml", "Not a directory"}},
    {"IsADirectory", {"directory.toml"}, 2, {"'directory.toml'", "Is a directory"}},
    {"Huge",
     {"config.toml"},
     2,
     {"'config.toml' is larger than the 1048576 bytes"},
     [](const Path& here) { make_huge(here / "config.toml"); }},
    {"Empty", {"config.toml"}, 2, {"config.toml: run.dir is missing"}, config("")},
    {"Cut", {"config.toml"}, 2, {"config.toml:2: not valid TOML"}, config("[run]\ndir = \"x")},
    {"KeyTwice",
     {"config.toml"},
     2,
     {"config.toml:3: not valid TOML", "steps"},
     config("[run]\nsteps = 1\nsteps = 2\n")},
    {"Binary",
     {"config.toml"},
     2,
     {"config.toml:1: not valid TOML"},
     config(std::string("\x7f"
                        "ELF\0\xff\xfe",
                        7))},
    {"Latin1",
     {"config.toml"},
     2,
     {"config.toml:2: not valid TOML"},
     config("[run]\ndir = \"caf\xe9\"\n")},
    {"Json", {"config.toml"}, 2, {"config.toml:1: not valid TOML"}, config("{\"run\": {}}\n")},
    {"SectionIsAValue",
     {"config.toml"},
     2,
     {"config.toml:1: run must be a table of keys", "3"},
     config("run = 3\n")},
    {"KeyOutsideSections",
     {"config.toml"},
     2,
     {"config.toml:1: unknown key 'steps'", "run.steps"},
     config("steps = 3\n")},
    {"UnknownSection",
     {"config.toml"},
     2,
     {"unknown section 'optimizr'", "[optimizer]"},
     config_and("\n[optimizr]\nlr = 1\n")},
    {"WrongValueInFile",
     {"config.toml"},
     2,
     {"config.toml:25: schedule.warmup_steps = -3"},
     config_and("[schedule]\nwarmup_steps = -3\n")},
    {"RequiredKeyMissing",
     {"config.toml"},
     2,
     {"config.toml: run.steps is missing"},
     config("[run]\ndir = \"r\"\n")},
    {"Unreadable",
     {"config.toml"},
     2,
     {"'config.toml'", "Permission denied"},
     deny_config,
     kNobody},
};

const std::vector<ErrorCase> kPaths = {
    {"RunDirEmpty", with({"run.dir=\"\""}), 2, {"run.dir is not set"}, {}, {}, "run.dir=runs/"},
    {"RunDirIsAFile", with({"run.dir=file"}), 2, {"'file'", "there is a file of that name"}},
    {"RunDirBelowAFile", with({"run.dir=file/run"}), 2, {"'file'", "a file of that name"}},
    {"RunDirCannotBeMade", with({"run.dir=/proc/run"}), 2, {"'/proc/run'"}},
    {"RunDirIsReadOnly", with({}), 2, {"'run'", "Permission denied"}, make_read_only, kNobody},
    {"DumpIsAFile", with({"--dump", "file"}), 2, {"'file'", "a file of that name"}},
    {"KeepBestOfNothing",
     with({"run.keep_best=1"}),
     2,
     {"run.keep_best = 1", "run.keep and run.eval_every above 0"}},
    {"KeepEveryOfAll",
     with({"run.keep=0", "run.keep_every=5"}),
     2,
     {"run.keep_every = 5", "run.keep above 0"}},
    {"NothingToResume", with({"run.resume=must"}), 5, {"run.resume is \"must\"", "'run'"}},
    {"InitFromNothing", with({"run.init_from=runs/a"}), 5, {"'runs/a' does not exist"}},
    {"DataMissing", with({"data.path=none"}), 4, {"there is no token directory 'none'"}},
    {"DataIsAFile", with({"data.path=file"}), 4, {"'file' is no token directory"}},
    {"DataIsEmpty", with({"data.path=empty"}), 4, {"'empty' is no token directory"}},
    {"DataUnreadable", with({}), 4, {"train.bin", "Permission denied"}, deny_data, kNobody},
};

// ---- damaged data

std::function<void(const Path&)> meta(const std::string& from, const std::string& to) {
  return [=](const Path& here) { replace_in(here / "tokens/meta.json", from, to); };
}
std::function<void(const Path&)> file(const std::string& name, const std::string& text) {
  return [=](const Path& here) { write_file(here / "tokens" / name, text); };
}
std::function<void(const Path&)> size(const std::string& name, std::uintmax_t bytes) {
  return [=](const Path& here) { cut_file(here / "tokens" / name, bytes); };
}
std::function<void(const Path&)> gone(const std::string& name) {
  return [=](const Path& here) { remove_quietly(here / "tokens" / name); };
}
std::function<void(const Path&)> directory(const std::string& name) {
  return [=](const Path& here) { replace_by_directory(here / "tokens" / name); };
}
void write_short_data(const Path& here) {
  write_directory(here / "tokens", 256, std::vector<std::uint8_t>(20),
                  std::vector<std::uint8_t>(20));
}

const Words kRun = {"config.toml"};

const std::vector<ErrorCase> kData = {
    {"MetaMissing",
     kRun,
     4,
     {"'tokens' is no token directory: it has no meta.json"},
     gone("meta.json"),
     {},
     "dew tokenize"},
    {"MetaEmpty", kRun, 4, {"tokens/meta.json is not valid JSON"}, file("meta.json", "")},
    {"MetaCut", kRun, 4, {"tokens/meta.json is not valid JSON"}, size("meta.json", 30)},
    {"MetaNoObject", kRun, 4, {"a JSON object is expected, found []"}, file("meta.json", "[]")},
    {"MetaNotUtf8",
     kRun,
     4,
     {"meta.json is not valid JSON"},
     file("meta.json", "{\"tokenizer\": \"\xff\"}")},
    {"MetaKeyTwice",
     kRun,
     4,
     {"meta.json: key \"tokenizer\" appears twice"},
     meta("{", "{\"tokenizer\": \"a\", ")},
    {"MetaIsADirectory", kRun, 4, {"meta.json': Is a directory"}, directory("meta.json")},
    {"MetaHuge",
     kRun,
     4,
     {"meta.json' is larger than the 1048576 bytes"},
     [](const Path& here) { make_huge(here / "tokens/meta.json"); }},
    {"MetaMemberMissing", kRun, 4, {"'vocab_size' is missing"}, meta("vocab_size", "vocab")},
    {"MetaWrongType",
     kRun,
     4,
     {"'vocab_size' must be an integer", "\"256\""},
     meta("256", "\"256\"")},
    {"MetaWrongDtype",
     kRun,
     4,
     {"'dtype' must be one of uint8, uint16, uint32", "\"int8\""},
     meta("uint8", "int8")},
    {"MetaNarrow", kRun, 4, {"dtype uint8 cannot hold", "70000"}, meta("256", "70000")},
    {"MetaNegative",
     kRun,
     4,
     {"'train_tokens' must be an integer from 0", "-1"},
     meta("95598", "-1")},
    {"TrainMissing", kRun, 4, {"train.bin': No such file"}, gone("train.bin")},
    {"TrainEmpty", kRun, 4, {"train.bin is empty"}, file("train.bin", "")},
    {"TrainCut",
     kRun,
     4,
     {"train.bin is truncated: it holds 1000 uint8 ids", "95598"},
     size("train.bin", 1000)},
    {"TrainLonger",
     kRun,
     4,
     {"larger than described: it holds 100000", "95598"},
     size("train.bin", 100000)},
    {"TrainHuge",
     kRun,
     4,
     {"train.bin is larger than described: it holds 1099511627776"},
     [](const Path& here) { make_huge(here / "tokens/train.bin"); }},
    {"TrainIsADirectory", kRun, 4, {"train.bin': Is a directory"}, directory("train.bin")},
    {"ValMissing", kRun, 4, {"val.bin': No such file"}, gone("val.bin")},
    {"ValEmpty", kRun, 4, {"val.bin is empty"}, file("val.bin", "")},
    {"IdsOutsideTheVocabulary",
     kRun,
     4,
     {"train.bin: id ", "outside the vocabulary of 60"},
     meta("256", "60"),
     {},
     "another tokenizer"},
    {"ShorterThanAWindow",
     kRun,
     4,
     {"train.bin: 20 ids are fewer than one window of 32 + 1"},
     write_short_data,
     {},
     "shorter seq_len"},
};

INSTANTIATE_TEST_SUITE_P(Typed, TrainTable,
                         testing::ValuesIn(kTyped + common_errors("dew train", {"config.toml"})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Values, TrainTable, testing::ValuesIn(kValues), name_of);
INSTANTIATE_TEST_SUITE_P(Configs, TrainTable, testing::ValuesIn(kConfigs), name_of);
INSTANTIATE_TEST_SUITE_P(Paths, TrainTable, testing::ValuesIn(kPaths), name_of);
INSTANTIATE_TEST_SUITE_P(Data, TrainTable, testing::ValuesIn(kData), name_of);

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
