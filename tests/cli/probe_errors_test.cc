// Everything that a user or the world can do wrong with dew probe.
#include <sys/stat.h>

#include <functional>

#include "dew/base/machine.h"
#include "tests/cli/probe_support.h"

namespace dew {
namespace {

const Path& trained_run() {
  static const TemporaryDirectory directory;
  static const Path path = [] {
    expect_done(dew(train_notebook(directory / "run", {"run.steps=1"})));
    return directory / "run";
  }();
  return path;
}

class ProbeErrors : public testing::Test {
 protected:
  ProbeErrors() {
    std::filesystem::create_symlink(trained_run(), directory_ / "run");
    write_text(directory_ / "file", "not a safetensors file");
    EXPECT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
    create_directories(directory_ / "empty", ErrorCode::internal);
    write_batch(directory_ / "b", some_batch(3, 5, 256));
  }
  Outcome probe_with(const Words& words, Start start = {}) {
    Words all = {"probe"};
    all.insert(all.end(), words.begin(), words.end());
    start.directory = directory_.path();
    return dew(all, start);
  }
  TemporaryDirectory directory_;
};

struct BadProbe {
  const char* name;
  Words words;
  int status;
  const char* text;
};

class ProbeArguments : public ProbeErrors, public testing::WithParamInterface<BadProbe> {};

TEST_P(ProbeArguments, Refused) {
  const auto before = snapshot(directory_.path());
  expect_error(probe_with(GetParam().words), GetParam().status, GetParam().text);
  EXPECT_EQ(snapshot(directory_.path()), before);
}

const BadProbe kBadProbes[] = {
    {"NoArguments", {}, 2, "required"},
    {"NoModel", {"--batch", "b"}, 2, "MODEL is required"},
    {"NoBatch", {"run"}, 2, "--batch is required"},
    {"TwoModels", {"run", "run", "--batch", "b"}, 2, "run"},
    {"ModelMissing", {"none", "--batch", "b"}, 5, "'none' does not exist"},
    {"ModelIsAFile", {"file", "--batch", "b"}, 5, "file"},
    {"ModelIsEmpty", {"empty", "--batch", "b"}, 5, "empty"},
    {"BatchMissing", {"run", "--batch", "none"}, 4, "none"},
    {"BatchIsADirectory", {"run", "--batch", "empty"}, 4, "empty"},
    {"BatchIsText", {"run", "--batch", "file"}, 4, "file: not a safetensors file"},
    {"BatchNotUtf8", {"run", "--batch", "\xff"}, 4, "\\xff"},
    {"StepsNegative", {"run", "--batch", "b", "--steps", "-1"}, 2, "--steps = -1"},
    {"StepsText", {"run", "--batch", "b", "--steps", "many"}, 2, "many"},
    {"StepsHuge", {"run", "--batch", "b", "--steps", "99999999999999999999"}, 2, "9999"},
    {"SetWithoutValue", {"run", "--batch", "b", "--set", "optimizer.lr"}, 2, "section.key=value"},
    {"SetOtherSection", {"run", "--batch", "b", "--set", "model.dropout=0.1"}, 2, "optimizer, pre"},
    {"SetUnknown", {"run", "--batch", "b", "--set", "optimizer.lrr=1"}, 2, "optimizer.lr"},
    {"SetOutside", {"run", "--batch", "b", "--set", "optimizer.b1=2.0"}, 2, "optimizer.b1 = 2"},
    {"SetIdle", {"run", "--batch", "b", "--set", "optimizer.momentum=0.5"}, 2, "no effect"},
    {"SetTwice",
     {"run", "--batch", "b", "--set", "optimizer.lr=1.0", "--set", "optimizer.lr=1.0"},
     2,
     "given twice"},
    {"SetMuon", {"run", "--batch", "b", "--set", "optimizer.name=muon"}, 2, "not built yet"},
    {"LogitsIsADirectory", {"run", "--batch", "b", "--logits", "empty"}, 2, "--logits 'empty'"},
    {"LogitsIsAPipe", {"run", "--batch", "b", "--logits", "pipe"}, 2, "--logits 'pipe' is no file"},
    {"GradsIsAPipe", {"run", "--batch", "b", "--grads", "pipe"}, 2, "--grads 'pipe' is no file"},
    {"LogitsNowhere", {"run", "--batch", "b", "--logits", "no/l"}, 2, "--logits 'no/l'"},
    {"GradsNowhere", {"run", "--batch", "b", "--grads", "file/g"}, 2, "--grads 'file/g'"},
    {"SameFile", {"run", "--batch", "b", "--grads", "g", "--logits", "./g"}, 2, "same file"},
    {"BatchOverwritten", {"run", "--batch", "b", "--grads", "b"}, 2, "same file 'b'"},
    {"Devices", {"run", "--batch", "b", "--devices", "gpu"}, 2, "--devices = 'gpu'"},
    {"MeshWithoutDevices", {"run", "--batch", "b", "--mesh", "fsdp=8"}, 3, "fsdp"},
    {"UnknownAxis", {"run", "--batch", "b", "--mesh", "fspd=8"}, 2, "fsdp"},
    {"AxisToCome", {"run", "--batch", "b", "--mesh", "stage=2", "--devices", "cpu:2"}, 3, "stage"},
    {"UnknownOption", {"run", "--batch", "b", "--step", "3"}, 2, "--step"},
};

INSTANTIATE_TEST_SUITE_P(All, ProbeArguments, testing::ValuesIn(kBadProbes),
                         [](const auto& p) { return std::string(p.param.name); });

struct BadBatch {
  const char* name;
  std::function<void(BatchFile&)> change;
  const char* text;
};

class ProbeBatches : public ProbeErrors, public testing::WithParamInterface<BadBatch> {};

TEST_P(ProbeBatches, Refused) {
  BatchFile batch = some_batch(3, 5, 256);
  GetParam().change(batch);
  write_batch(directory_ / "b", batch);
  expect_error(probe_with({"run", "--batch", "b"}), 4, GetParam().text);
}

void set_shape(BatchFile& batch, const Dims& shape) {
  for (auto& [name, tensor] : batch) {
    tensor.shape = shape;
    tensor.values.assign(static_cast<std::size_t>(element_count(shape)), 1);
  }
}

const BadBatch kBadBatches[] = {
    {"NoIds", [](BatchFile& b) { b.erase("input_ids"); },
     "b: there is no tensor 'input_ids'; it has: 'labels'"},
    {"NoLabels", [](BatchFile& b) { b.erase("labels"); }, "there is no tensor 'labels'"},
    {"Nothing", [](BatchFile& b) { b.clear(); }, "there is no tensor 'input_ids'"},
    {"FloatIds", [](BatchFile& b) { b["input_ids"].type = StoredType::f32; },
     "'input_ids' is F32, but it must be integers"},
    {"FloatLabels", [](BatchFile& b) { b["labels"].type = StoredType::f16; }, "'labels' is F16"},
    {"BooleanSegments",
     [](BatchFile& b) {
       b["segment_ids"] = {{3, 5}, std::vector<std::int64_t>(15, 1), StoredType::boolean};
     },
     "'segment_ids' is BOOL"},
    {"OneDimension", [](BatchFile& b) { set_shape(b, {15}); }, "'input_ids' is [15]"},
    {"ThreeDimensions",
     [](BatchFile& b) {
       set_shape(b, {1, 3, 5});
     },
     "'input_ids' is [1,3,5]"},
    {"NoDimension", [](BatchFile& b) { set_shape(b, {}); }, "'input_ids' is []"},
    {"NoRow",
     [](BatchFile& b) {
       set_shape(b, {0, 5});
     },
     "'input_ids' is [0,5]"},
    {"NoToken",
     [](BatchFile& b) {
       set_shape(b, {3, 0});
     },
     "'input_ids' is [3,0]"},
    {"OneToken",
     [](BatchFile& b) {
       set_shape(b, {3, 1});
     },
     "no label counts"},
    {"TooLong",
     [](BatchFile& b) {
       set_shape(b, {1, 33});
     },
     "rows of 33 tokens, but the model's rows have at most 32"},
    {"OtherShape",
     [](BatchFile& b) {
       b["labels"].shape = {5, 3};
     },
     "'labels' is [5,3], but 'input_ids' is [3,5]"},
    {"PositionsShape",
     [](BatchFile& b) {
       b["positions"] = {{5}, {0, 1, 2, 3, 4}};
     },
     "'positions' is [5]"},
    {"IdAbove", [](BatchFile& b) { b["input_ids"].values[7] = 256; },
     "input_ids[1,2] = 256, but it must be from 0 to 255"},
    {"IdBelow", [](BatchFile& b) { b["input_ids"].values[0] = -1; }, "input_ids[0,0] = -1"},
    {"IdIgnored", [](BatchFile& b) { b["input_ids"].values[0] = -100; }, "input_ids[0,0] = -100"},
    {"IdHuge",
     [](BatchFile& b) {
       b["input_ids"].type = StoredType::u64;
       b["input_ids"].values[4] = -1;
     },
     "above 2^63 - 1"},
    {"LabelAbove", [](BatchFile& b) { b["labels"].values[14] = 1 << 30; },
     "labels[2,4] = 1073741824, but it must be from 0 to 255, or -100"},
    {"LabelBelow", [](BatchFile& b) { b["labels"].values[1] = -1; }, "labels[0,1] = -1"},
    {"AllIgnored", [](BatchFile& b) { b["labels"].values.assign(15, -100); }, "no label counts"},
    {"OnlyFirstLabels",
     [](BatchFile& b) {
       b["labels"].values.assign(15, -100);
       for (const std::size_t i : {0u, 5u, 10u}) b["labels"].values[i] = 1;
     },
     "no label counts"},
    {"PositionBelow",
     [](BatchFile& b) {
       b["positions"] = {{3, 5}, std::vector<std::int64_t>(15, -1)};
     },
     "positions[0,0] = -1"},
    {"SegmentHuge",
     [](BatchFile& b) {
       b["segment_ids"] = {{3, 5}, std::vector<std::int64_t>(15, std::int64_t{1} << 31)};
     },
     "segment_ids[0,0] = 2147483648"},
};

INSTANTIATE_TEST_SUITE_P(All, ProbeBatches, testing::ValuesIn(kBadBatches),
                         [](const auto& p) { return std::string(p.param.name); });

// A header that claims what is not there, and every prefix of a good file.
TEST_F(ProbeErrors, HostileBatches) {
  const std::string good = read_text(directory_ / "b");
  const auto expect_refused = [&](const std::string& bytes, const std::string& text) {
    write_text(directory_ / "b", bytes);
    expect_error(probe_with({"run", "--batch", "b"}), 4, text);
  };
  expect_refused("", "too short");
  expect_refused(good.substr(0, 40), "truncated");
  expect_refused(good.substr(0, good.size() - 1), "b: ");
  expect_refused(good + "x", "b: ");
  expect_refused(std::string(8, '\xff') + good.substr(8), "header");
  std::string overlapping = good;
  overlapping.replace(overlapping.find("[120,240]"), 9, "[  0,120]");
  expect_refused(overlapping, "overlap");
}

TEST_F(ProbeErrors, MoreRowsThanThereIsMemoryFor) {
  const double memory = memory_bytes();
  if (memory > 64e9) GTEST_SKIP() << "as many rows as this machine has no room for take minutes";
  const auto rows = static_cast<std::int64_t>(memory / 150e3);  // one needs 390 kB
  BatchFile batch = some_batch(rows, 32, 256);
  batch["input_ids"].type = StoredType::u8;
  write_batch(directory_ / "b", batch);
  expect_error(probe_with({"run", "--batch", "b"}), 2,
               "a step of " + std::to_string(rows) + " rows of 32 tokens needs");
}

TEST_F(ProbeErrors, PositionsThatTheModelDoesNotHave) {
  expect_done(dew(train_notebook(directory_ / "learned",
                                 {"run.steps=1", "model.positions=learned", "--quiet"})));
  BatchFile batch = some_batch(1, 3, 256);
  batch["positions"] = {{1, 3}, {0, 31, 32}};
  write_batch(directory_ / "b", batch);
  expect_error(probe_with({"learned", "--batch", "b"}), 4,
               "positions[0,2] = 32, but it must be from 0 to 31");
}

TEST_F(ProbeErrors, WhereNothingCanBeWritten) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  create_directories(directory_ / "closed", ErrorCode::internal);
  std::filesystem::permissions(directory_ / "closed", std::filesystem::perms::owner_read |
                                                          std::filesystem::perms::owner_exec |
                                                          std::filesystem::perms::others_exec);
  std::filesystem::remove(directory_ / "run");
  std::filesystem::copy(trained_run(), directory_ / "run",
                        std::filesystem::copy_options::recursive);
  const Outcome outcome =
      probe_with({"run", "--batch", "b", "--grads", "closed/g"}, {.as_nobody = true});
  if (outcome.status == 127) GTEST_SKIP() << "nobody may not run the program";
  expect_error(outcome, 2, "closed/g");
  expect_error(probe_with({"run", "--batch", "b"}, {.close_stdout = true}), 2, "standard output");
}

}  // namespace
}  // namespace dew
