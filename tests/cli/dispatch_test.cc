// dew dispatch: the plan of a cluster that one does not have, and what cannot be planned.
#include "dew/data/data_test_support.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

class Dispatch : public testing::Test {
 protected:
  Outcome dispatch(const Words& words) {
    Words all = {"dispatch"};
    all.insert(all.end(), words.begin(), words.end());
    return dew(all, {.directory = directory_.path()});
  }
  Json json(Words words) {
    words.push_back("--json");
    const Outcome outcome = dispatch(words);
    expect_done(outcome);
    return parse_json(outcome.out, "standard output", ErrorCode::internal);
  }

  TemporaryDirectory directory_;
};

TEST_F(Dispatch, JsonHasTheDocumentedKeys) {
  const Outcome outcome = dispatch(
      {"--mesh", "tensor=16,fsdp=2", "--global-batch", "3", "--per-process", "8", "--json"});
  expect_done(outcome);
  EXPECT_EQ(outcome.out,
            R"({"batch_shards":2,"sequence_shards":1,"micro":2,"steps":1,"rows_per_shard":2,)"
            R"("physical_batch":4,"pads":1,"pad_share":0.25,"read_amplification":2.0,)"
            R"("row_weight":0.3333333333333333,"advice":null,"processes":[)"
            R"({"process":0,"rows":[[0,2]],"owned":1},{"process":1,"rows":[[0,2]],"owned":1},)"
            R"({"process":2,"rows":[[2,3]],"owned":1},{"process":3,"rows":[[2,3]],"owned":0}]})"
            "\n");
  EXPECT_EQ(outcome.err, "");
}

// The second seed's mesh, where others refuse both batches.
TEST_F(Dispatch, SmallBatchesOnManyDevices) {
  for (const auto& [rows, micro, pads] :
       {std::array{16, 1, 0}, std::array{128, 8, 0}, std::array{17, 2, 15}, std::array{1, 1, 15}}) {
    const Json plan = json({"--mesh", "fsdp=16,tensor=16", "--global-batch", std::to_string(rows),
                            "--per-process", "4"});
    EXPECT_EQ(plan["batch_shards"], 16);
    EXPECT_EQ(plan["micro"], micro);
    EXPECT_EQ(plan["pads"], pads);
    EXPECT_EQ(plan["read_amplification"], 4.0);
    ASSERT_EQ(plan["processes"].size(), 64U);
    std::int64_t owned = 0;
    for (const Json& process : plan["processes"]) owned += process["owned"].get<std::int64_t>();
    EXPECT_EQ(owned, rows);
    EXPECT_EQ(plan["processes"][0]["rows"], Json::parse(rows == 128  ? "[[0, 8]]"
                                                        : rows == 17 ? "[[0, 2]]"
                                                                     : "[[0, 1]]"));
  }
}

TEST_F(Dispatch, ProcessesFromAFile) {
  write_text(directory_ / "map", "0 0\n0\t3  1\n1 1 1\n");
  const Json plan =
      json({"--mesh", "data=2,fsdp=4", "--global-batch", "5", "--process-file", "map"});
  EXPECT_EQ(plan["processes"], Json::parse(R"([{"process":0,"rows":[[0,2]],"owned":2},
                            {"process":1,"rows":[[3,5]],"owned":2},
                            {"process":2,"rows":[],"owned":0},
                            {"process":3,"rows":[[2,3]],"owned":1}])"));
  // Without a map all devices are one process's.
  EXPECT_EQ(json({"--mesh", "data=2,fsdp=4", "--global-batch", "5"})["processes"],
            Json::parse(R"([{"process":0,"rows":[[0,5]],"owned":5}])"));
  // What is left over makes a smaller process.
  EXPECT_EQ(json({"--mesh", "fsdp=5", "--global-batch", "5", "--per-process", "3"})["processes"],
            Json::parse(R"([{"process":0,"rows":[[0,3]],"owned":3},
                            {"process":1,"rows":[[3,5]],"owned":2}])"));
}

TEST_F(Dispatch, MicroStepsAndColumns) {
  const Words mesh = {"--mesh", "fsdp=4,sequence=3,stage=2", "--global-batch", "30"};
  const auto with = [&](const Words& more) {
    Words words = mesh;
    words.insert(words.end(), more.begin(), more.end());
    return json(words);
  };
  EXPECT_EQ(with({})["steps"], 1);
  EXPECT_EQ(with({})["sequence_shards"], 3);
  EXPECT_EQ(with({"--accumulate", "4"})["micro"], 2);
  EXPECT_EQ(with({"--accumulate", "4"})["steps"], 4);
  EXPECT_EQ(with({"--micro", "3"})["steps"], 3);
  EXPECT_EQ(with({"--micro", "3", "--microbatches", "2"})["micro"], 4);
}

TEST_F(Dispatch, TextSaysWhoReadsWhat) {
  const Outcome outcome = dispatch({"--mesh", "fsdp=4,tensor=2", "--global-batch", "3", "--seq-len",
                                    "100", "--per-process", "1"});
  expect_done(outcome);
  EXPECT_EQ(outcome.out,
            "{'data': 1, 'expert': 1, 'fsdp': 4, 'tensor': 2, 'sequence': 1, 'stage': 1}\n"
            "3 rows of 100 tokens on 4 batch shards x 1 sequence shard (8 devices, 8 processes): 1 "
            "row a shard as 1 micro step of 1; 4 physical rows, 1 pad (25.0 %), 1 empty shard; 6 "
            "processes read, each row 2.0 times\n"
            "arrays [1,4,100], of a device [1,1,100]; a row weighs 0.333333, a token 0.00333333\n"
            "\n"
            "process              owns  rows it needs\n"
            "0                       1  0\n"
            "1                       0  0\n"
            "2                       1  1\n"
            "3                       0  1\n"
            "4                       1  2\n"
            "5                       0  2\n"
            "6-7                     0  -\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Dispatch, ManyPadsComeWithAdvice) {
  const Outcome outcome = dispatch({"--mesh", "fsdp=256", "--global-batch", "16"});
  expect_done(outcome);
  EXPECT_EQ(
      outcome.err,
      "warning: 240 of 256 physical rows (93.8 %) are pads\n"
      "advice: move a factor of 16 from the batch axes to sequence: 16 batch shards x 16 "
      "sequence shards of 512 columns, 0.0 % pads (training over sequence is not built yet)\n");
  const Json plan = json({"--mesh", "fsdp=256", "--global-batch", "16", "--quiet"});
  EXPECT_EQ("advice: " + plan["advice"].get<std::string>() + "\n",
            outcome.err.substr(outcome.err.find("advice")));
}

struct BadDispatch {
  const char* name;
  Words words;
  const char* text;
};

class DispatchArguments : public Dispatch, public testing::WithParamInterface<BadDispatch> {};

TEST_P(DispatchArguments, Refused) {
  write_text(directory_ / "short", "0 0 1");
  write_text(directory_ / "words", "0 0 1 one");
  write_text(directory_ / "negative", "0 0 -1 0");
  write_text(directory_ / "huge", "0 0 1 99999999999999999999");
  write_text(directory_ / "large", "0 0 1 4194304");
  write_text(directory_ / "empty", "");
  expect_error(dispatch(GetParam().words), 2, GetParam().text);
}

const BadDispatch kBadDispatches[] = {
    {"NoBatch", {"--mesh", "fsdp=2"}, "--global-batch is required"},
    {"BatchZero", {"--global-batch", "0"}, "global_batch = 0, must be at least 1"},
    {"BatchHuge", {"--global-batch", "9223372036854775807", "--mesh", "fsdp=2"}, "63 bits"},
    {"BatchNoNumber", {"--global-batch", "1e3"}, "whole number"},
    {"MeshAxis", {"--global-batch", "4", "--mesh", "fspd=2"}, "the nearest is 'fsdp'"},
    {"MeshForm", {"--global-batch", "4", "--mesh", "fsdp"}, "of the form fsdp=16,tensor=16"},
    {"MeshSize", {"--global-batch", "4", "--mesh", "fsdp=0"}, "at least 1"},
    {"MeshHuge", {"--global-batch", "4", "--mesh", "data=8388608"}, "up to 4194304"},
    {"PerProcess", {"--global-batch", "4", "--per-process", "0"}, "--per-process 0"},
    {"Both", {"--global-batch", "4", "--per-process", "2", "--process-file", "short"}, "exclude"},
    {"AccumulateAndMicro", {"--global-batch", "4", "--accumulate", "2", "--micro", "2"}, "both"},
    {"Accumulate", {"--global-batch", "4", "--accumulate", "0"}, "accumulate = 0"},
    {"Micro", {"--global-batch", "4", "--micro", "-1"}, "micro_batch = -1"},
    {"Microbatches", {"--global-batch", "4", "--microbatches", "0"}, "microbatches = 0"},
    {"SeqLen", {"--global-batch", "4", "--seq-len", "0"}, "seq_len = 0"},
    {"FileMissing", {"--global-batch", "4", "--process-file", "none"}, "none"},
    {"FileIsShort",
     {"--global-batch", "4", "--mesh", "fsdp=4", "--process-file", "short"},
     "4 devices, but processes of 3 are given"},
    {"FileIsEmpty", {"--global-batch", "4", "--process-file", "empty"}, "processes of 0 are given"},
    {"FileHasWords",
     {"--global-batch", "4", "--mesh", "fsdp=4", "--process-file", "words"},
     "'one' in 'words' is no process number"},
    {"FileHasNegatives",
     {"--global-batch", "4", "--mesh", "fsdp=4", "--process-file", "negative"},
     "'-1' in 'negative'"},
    {"FileHasHugeNumbers",
     {"--global-batch", "4", "--mesh", "fsdp=4", "--process-file", "huge"},
     "'99999999999999999999'"},
    {"FileHasLargeNumbers",
     {"--global-batch", "4", "--mesh", "fsdp=4", "--process-file", "large"},
     "process 4194304, but numbers go from 0 to 4194303"},
    {"Stray", {"--global-batch", "4", "fsdp=4"}, "fsdp=4"},
};

INSTANTIATE_TEST_SUITE_P(All, DispatchArguments, testing::ValuesIn(kBadDispatches),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace dew
