// dew inspect, of models and of configs.
#include <set>
#include <sstream>

#include "dew/base/digest.h"
#include "tests/cli/program.h"

namespace dew {
namespace {

class Inspect : public testing::Test {
 protected:
  Path run() const { return directory_ / "run"; }
  void train(const Words& overrides) {
    Words all = overrides;
    all.insert(all.begin(), {"--quiet", "run.steps=2"});
    expect_done(dew(train_notebook(run(), all)));
  }
  Outcome inspect(const Words& words) {
    Words all = {"inspect"};
    all.insert(all.end(), words.begin(), words.end());
    return dew(all, {.directory = here_});
  }
  std::string text(const Words& words) {
    const Outcome outcome = inspect(words);
    expect_done(outcome);
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  Json json(Words words) {
    words.push_back("--json");
    return parse_json(text(words), "stdout", ErrorCode::internal);
  }

  TemporaryDirectory directory_;
  Path here_ = std::filesystem::current_path();
};

int lines_of(const std::string& text) { return static_cast<int>(std::ranges::count(text, '\n')); }

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

TEST_F(Inspect, JsonOfARun) {
  train({"optimizer.ema_decay=0.9"});
  for (const Path& model : {run(), run() / "checkpoints/step_00000002"}) {
    const Json all = json({model.string(), "--digest"});
    EXPECT_EQ(keys_of(all), (std::vector<std::string>{"bytes", "parameters", "step", "tensors"}));
    EXPECT_EQ(all["parameters"], 147840);
    EXPECT_EQ(all["bytes"], 147840 * 4 * 4);  // parameters, two moments, the average
    EXPECT_EQ(all["step"], 2);
    const auto digests = digests_of(run());
    ASSERT_EQ(all["tensors"].size(), digests.size());
    for (std::size_t i = 0; i < digests.size(); ++i) {
      EXPECT_EQ(all["tensors"][i]["name"], digests[i].first);
      EXPECT_EQ(all["tensors"][i]["digest"], digest_text(digests[i].second));
    }
  }
}

TEST_F(Inspect, JsonOfAnArray) {
  train({});
  const Json all = json({run().string()});
  std::set<std::string> names;
  for (const Json& tensor : all["tensors"]) {
    names.insert(tensor["name"]);
    EXPECT_FALSE(tensor.contains("digest"));
  }
  EXPECT_EQ(names.size(), 72u);
  const Json expected = {{"name", "params/layers_1/attention/q_proj/kernel"},
                         {"shape", {64, 4, 16}},
                         {"dtype", "f32"},
                         {"axes", {"embed", "heads", "head_dim"}},
                         {"spec", "P()"},
                         {"local_shape", {64, 4, 16}},
                         {"bytes_per_device", 16384}};
  EXPECT_EQ(std::ranges::count(all["tensors"], expected), 1);
}

// Equal states have equal digests, other ones others, whatever run holds them.
TEST_F(Inspect, DigestsCompareStates) {
  train({});
  const Json first = json({run().string(), "--digest"});
  std::filesystem::rename(run(), directory_ / "first");
  train({});
  EXPECT_EQ(json({run().string(), "--digest"})["tensors"], first["tensors"]);
  std::filesystem::remove_all(run());
  train({"run.seed=1"});
  EXPECT_NE(json({run().string(), "--digest"})["tensors"], first["tensors"]);
}

TEST_F(Inspect, TextOfARun) {
  train({"data.accumulate=2"});
  const std::string out = text({run().string()});
  for (const char* part :
       {"step_00000002\n", "  parameters  147,840\n", "  state       1.77 MB in 72 arrays\n",
        "  step        2 (2 updates, 0 skipped, 1,024 tokens)\n",
        "2 layers of 64 features, 4 heads of 16, swiglu of 256, vocabulary 256",
        "position 32 in epochs of 2,987 records", "  tokenizer   byte\n", "loss 5.", "seed 0",
        "dew 0.1.0 on ", "1 shard(s), manifest.json",
        "params/   147,840 elements in 24 arrays, 591 kB\n",
        "  layers_0..1/attention/q_proj/kernel  [64, 4, 16]  embed heads head_dim  f32  16.4 kB  x "
        "2\n",
        "  final_norm/scale                     [64]         embed                 f32    256 B\n",
        "opt/m/    147,840 elements in 24 arrays, 591 kB, as params/\n"}) {
    EXPECT_NE(out.find(part), out.npos) << part << "\n" << out;
  }
}

TEST_F(Inspect, TextWithEveryArray) {
  train({});
  const int folded = lines_of(text({run().string()}));
  const std::string all = text({run().string(), "--verbose"});
  EXPECT_GT(lines_of(all), folded + 48);
  EXPECT_NE(all.find("  layers_1/mlp/up_proj/kernel "), all.npos) << all;
  const std::string digests = text({run().string(), "--digest"});
  EXPECT_EQ(lines_of(digests), lines_of(all));
  for (const auto& [name, digest] : digests_of(run()))
    EXPECT_NE(digests.find(digest_text(digest)), digests.npos) << name;
}

// The worked example of a (256, 64) table: 32 rows a device.
TEST_F(Inspect, WhereArraysLiveOnAMesh) {
  train({"layout.min_shard=1"});
  const Json whole = json({run().string(), "--digest"});
  const Json split = json({run().string(), "--digest", "--mesh", "fsdp=8", "--devices", "cpu:8"});
  EXPECT_EQ(split["parameters"], whole["parameters"]);
  EXPECT_EQ(split["bytes"], whole["bytes"]);
  ASSERT_EQ(split["tensors"].size(), whole["tensors"].size());
  for (std::size_t i = 0; i < split["tensors"].size(); ++i) {
    const Json &a = split["tensors"][i], &b = whole["tensors"][i];
    EXPECT_EQ(a["digest"], b["digest"]) << a["name"];
    EXPECT_EQ(a["shape"], b["shape"]);
    const std::string name = a["name"];
    if (name.ends_with("embed_tokens/embedding")) {
      EXPECT_EQ(a["spec"], "P('fsdp',)") << name;
      EXPECT_EQ(a["local_shape"], (Json{32, 64}));
      EXPECT_EQ(a["bytes_per_device"], 32 * 64 * 4);
    }
    if (name.ends_with("q_norm/scale")) {
      EXPECT_EQ(a["spec"], "P('fsdp',)");
      EXPECT_EQ(a["bytes_per_device"], 8);
    }
  }
  const std::string out = text({run().string(), "--mesh", "tensor=2,fsdp=2", "--devices", "cpu:8"});
  EXPECT_NE(out.find("P(('tensor', 'fsdp'),)"), out.npos) << out;
  EXPECT_NE(out.find(" a device, as params/"), out.npos) << out;
}

TEST_F(Inspect, MeshesThatCannotBe) {
  train({"layout.min_shard=1"});
  const std::string model = run().string();
  expect_error(inspect({model, "--mesh", "fsdp=3", "--devices", "cpu:4"}), 3, "fsdp");
  expect_error(inspect({model, "--mesh", "tensor=3", "--devices", "cpu:3"}), 3, "heads");
  expect_error(inspect({model, "--mesh", "fsdp"}), 2, "fsdp");
  expect_error(inspect({model, "--mesh", "fspd=2"}), 2, "fsdp");
  expect_error(inspect({model, "--devices", "gpu"}), 2, "--devices = 'gpu', but it must be");
  expect_error(inspect({model, "--devices", "cpu:0"}), 2, "--devices = 'cpu:0'");
}

TEST_F(Inspect, ConfigsOnSeveralDevices) {
  const Words words = {"examples/notebook.toml", "devices.spec=cpu:4", "mesh.fsdp=2",
                       "mesh.tensor=2",          "layout.min_shard=1", "--show"};
  const auto show = [&](const char* stage) {
    Words all = words;
    all.push_back(stage);
    return text(all);
  };
  EXPECT_NE(show("sharding")
                .find("==== specs ====\nprogram \"micro_first\"\n"
                      "  %0 = input \"params/embed_tokens/embedding\" weight : "
                      "f32[256,64]  # [{tensor,fsdp},-]\n"),
            std::string::npos);
  const std::string parts = show("partition");
  EXPECT_NE(parts.find("==== micro_first.device ====\nprogram \"micro_first\""), parts.npos);
  EXPECT_NE(parts.find("all_gather"), parts.npos);
  EXPECT_NE(parts.find("==== update.device ===="), parts.npos);
  EXPECT_NE(show("plan").find("peak memory "), std::string::npos);
}

TEST_F(Inspect, DamageIsFound) {
  train({});
  const Path checkpoint = run() / "checkpoints/step_00000002";
  const Path shard = checkpoint / "shard-00000-00000.safetensors";
  const std::string good = read_text(shard);
  std::string flipped = good;
  flipped[good.size() - 1] ^= 1;
  write_text(shard, flipped);
  expect_error(inspect({run().string(), "--digest"}), 5, "shard-00000-00000");
  write_text(shard, good.substr(1));
  expect_error(inspect({checkpoint.string()}), 5, "shard-00000-00000");
  write_text(checkpoint / "manifest.json", "{}");
  expect_error(inspect({run().string()}), 5, "manifest.json");
}

// ---- configs

TEST_F(Inspect, ProgramsOfAConfig) {
  const Path before = directory_ / "none";
  const Words words = {"examples/notebook.toml", "run.dir=" + before.string(), "--show", "program"};
  const std::string out = text(words);
  for (const char* part : {"==== micro_first.0 ====\nprogram \"micro_first\"",
                           "==== micro_first.4_without_dead_code ====\n", "==== update.0 ====\n",
                           "==== eval_first.0 ====\n"}) {
    EXPECT_NE(out.find(part), out.npos) << part;
  }
  EXPECT_EQ(out.find("==== micro.0 ===="), out.npos);
  EXPECT_FALSE(std::filesystem::exists(before));
  Words accumulating = words;
  accumulating.push_back("data.accumulate=2");
  EXPECT_NE(text(accumulating).find("==== micro.0 ===="), out.npos);
  const Json stages = json(words)["stages"];
  EXPECT_EQ(stages[0]["name"], "micro_first.0");
  EXPECT_NE(out.find(stages[1]["text"].get<std::string>()), out.npos);
}

TEST_F(Inspect, PlansOfAConfig) {
  const Words words = {"examples/notebook.toml", "data.accumulate=3", "--show", "plan"};
  const std::string out = text(words);
  for (const char* part : {"peak memory ", "  list   call", "  train  micro ", "  train  update ",
                           "plan micro_first: ", "memory: registers "}) {
    EXPECT_NE(out.find(part), out.npos) << part << "\n" << out.substr(0, 2000);
  }
  const Json all = json(words);
  EXPECT_GT(all["peak_bytes"], 147840 * 4 * 4);
  std::vector<std::string> train;
  for (const Json& call : all["calls"]) {
    if (call["list"] == "train") train.push_back(call["program"]);
    EXPECT_LT(call["arena_bytes"], all["peak_bytes"]);
  }
  EXPECT_EQ(train, (std::vector<std::string>{"micro_first", "micro", "micro", "update"}));
  const Json& update = all["calls"][3];
  EXPECT_EQ(update["program"], "update");
  EXPECT_EQ(update["output_bytes"], 147840 * 4 * 3 + 4 + 1);  // state, norm, commit
}

struct BadInspect {
  const char* name;
  Words words;
  int status;
  const char* text;
};

class InspectArguments : public Inspect, public testing::WithParamInterface<BadInspect> {};

TEST_P(InspectArguments, Refused) {
  write_text(directory_ / "file", "[run]\n");
  write_text(directory_ / "bad", "[run\n");
  create_directories(directory_ / "empty", ErrorCode::internal);
  create_directories(directory_ / "hf", ErrorCode::internal);
  std::filesystem::copy("examples/notebook.toml", directory_ / "c.toml");
  here_ = directory_.path();
  expect_error(inspect(GetParam().words), GetParam().status, GetParam().text);
}

const BadInspect kBadInspects[] = {
    {"NoArguments", {}, 2, "MODEL is required"},
    {"ModelMissing", {"none"}, 5, "'none' does not exist"},
    {"ModelIsEmpty", {"empty"}, 5, "empty"},
    {"ConfigWithoutStage", {"c.toml"}, 2, "'c.toml' is a file"},
    {"OverrideOfAModel",
     {"empty", "model.num_layers=2"},
     2,
     "'model.num_layers=2' is for a config"},
    {"Sharding", {"c.toml", "--show", "sharding"}, 2, "--show sharding of one device"},
    {"Partition", {"c.toml", "--show", "partition"}, 2, "--show partition of one device"},
    {"OtherStage", {"c.toml", "--show", "progam"}, 2, "--show = 'progam', but it must be"},
    {"DevicesOfAConfig",
     {"c.toml", "--show", "plan", "--devices", "cpu:8"},
     2,
     "--mesh and --devices are for a model"},
    {"DigestOfAConfig", {"c.toml", "--show", "plan", "--digest"}, 2, "--digest is for a model"},
    {"ConfigMissing", {"none", "--show", "plan"}, 2, "none"},
    {"ConfigIsADirectory", {"empty", "--show", "plan"}, 2, "'empty' is a directory: --show"},
    {"ConfigNotToml", {"bad", "--show", "plan"}, 2, "not valid TOML"},
    {"ConfigIncomplete", {"file", "--show", "plan"}, 2, "run.dir is missing"},
    {"UnknownKey", {"c.toml", "model.layers=2", "--show", "plan"}, 2, "nearest"},
    {"QuietAndVerbose", {"empty", "-q", "-v"}, 2, "--verbose"},
};

INSTANTIATE_TEST_SUITE_P(All, InspectArguments, testing::ValuesIn(kBadInspects),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_F(Inspect, StandardOutputThatCannotBeWritten) {
  expect_error(dew({"inspect", "examples/notebook.toml", "--show", "plan"}, {.close_stdout = true}),
               2, "standard output");
}

}  // namespace
}  // namespace dew
