// Models of other people, against what transformers computes for them (tests/data/hf/README.md).
#include <cstring>

#include "dew/base/dtype.h"
#include "tests/cli/error_case.h"
#include "tests/cli/probe_support.h"

namespace dew {
namespace {

const Path kFixtures = "tests/data/hf";

std::vector<std::string> fixtures() {
  return {"gpt2",  "llama_gqa", "llama_tied_llama3", "llama_bias_linear",
          "olmo2", "phi3",      "mistral_window",    "qwen2",
          "qwen3", "gemma2",    "qwen2_window"};
}

// The steps of the fixtures: README.md there.
Words probe_words(const Path& model, const Path& batch) {
  Words words = {model.string(), "--batch", batch.string(), "--steps", "6"};
  for (const char* setting : {"lr=1e-3", "b1=0.9", "b2=0.95", "eps=1e-8", "weight_decay=0.1",
                              "decay=matrices", "clip_norm=1.0"}) {
    words.insert(words.end(), {"--set", std::string("optimizer.") + setting});
  }
  return words;
}

double worst(const Floats& found, const Floats& expected) {
  EXPECT_EQ(found.shape, expected.shape);
  double difference = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    difference = std::max(difference, std::abs(double{found.values[i]} - expected.values[i]));
  }
  return difference;
}

double largest(const Floats& x) {
  double most = 0;
  for (const float value : x.values) most = std::max(most, std::abs(double{value}));
  return most;
}

class HuggingFace : public testing::TestWithParam<std::string> {
 protected:
  Path model() const { return kFixtures / GetParam(); }
  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(All, HuggingFace, testing::ValuesIn(fixtures()),
                         [](const auto& p) { return p.param; });

// Everything that a probe gives of a model, run as `how` says.
void expect_numbers(const Path& model, const Words& how) {
  const TemporaryDirectory directory;
  const Path batch = model / "expected.safetensors";
  const auto expected = read_floats_of(batch);
  Words words = probe_words(model, batch);
  words.insert(words.end(),
               {"--logits", (directory / "l").string(), "--grads", (directory / "g").string()});
  words.insert(words.end(), how.begin(), how.end());
  const Json json = probe(words);
  EXPECT_LT(worst(read_floats_of(directory / "l").at("logits"), expected.at("logits")), 2e-5);
  const double loss = expected.at("loss_mean").values[0];
  EXPECT_NEAR(json["loss"], loss, 1e-6 * loss);
  EXPECT_NEAR(json["loss_sum"], expected.at("loss_sum").values[0],
              1e-6 * json["loss_sum"].get<double>());
  const auto gradients = read_floats_of(directory / "g");
  std::size_t compared = 0;
  for (const auto& [name, gradient] : expected) {
    if (!name.starts_with("grad.")) continue;
    const std::string own = name.substr(5);
    ASSERT_TRUE(gradients.contains(own)) << own;
    EXPECT_LT(worst(gradients.at(own), gradient), 5e-5 * largest(gradient)) << own;
    double squares = 0;
    for (const float g : gradient.values) squares += double{g} * g;
    EXPECT_NEAR(json["grad_norms"][own], std::sqrt(squares), 1e-5 * std::sqrt(squares)) << own;
    ++compared;
  }
  EXPECT_EQ(compared, gradients.size());
  EXPECT_EQ(compared, json["grad_norms"].size());
  const std::vector<float>& losses = expected.at("adamw_losses").values;
  ASSERT_EQ(losses.size(), json["steps"].size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(json["steps"][i], losses[i], 1e-5);
}

TEST_P(HuggingFace, NumbersAgree) { expect_numbers(model(), {}); }

TEST_P(HuggingFace, NumbersAgreeOnMeshes) {
  const Json config = read_json(model() / "config.json", 1 << 20, ErrorCode::internal);
  const int kv_heads = config.value("num_key_value_heads", 6);
  expect_numbers(model(), {"--devices", "cpu:3"});
  expect_numbers(model(), {"--devices", "cpu:2", "--mesh", "fsdp=2"});
  for (const int tensor : {2, 3}) {
    for (const int fsdp : {1, 2}) {
      const Words mesh = {"--devices", "cpu:" + std::to_string(tensor * fsdp), "--mesh",
                          "tensor=" + std::to_string(tensor) + ",fsdp=" + std::to_string(fsdp)};
      SCOPED_TRACE(mesh.back());
      if (kv_heads % tensor == 0 || tensor % kv_heads == 0) {
        expect_numbers(model(), mesh);
        continue;
      }
      Words words = probe_words(model(), model() / "expected.safetensors");
      words.insert(words.begin(), "probe");
      words.insert(words.end(), mesh.begin(), mesh.end());
      expect_error(dew(words), 3, "heads of keys and values");
    }
  }
}

// The ids of an integer tensor.
std::vector<std::int64_t> read_ids(const SafetensorsFile& file, const char* name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<std::int64_t> ids(bytes.size() / sizeof(std::int64_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

TEST_P(HuggingFace, GreedyIdsAgree) {
  const SafetensorsFile expected(model() / "expected.safetensors", ErrorCode::internal);
  std::string prompt;
  for (const std::int64_t id : read_ids(expected, "prompt")) prompt += std::to_string(id) + ",";
  prompt.pop_back();
  const std::vector<std::int64_t> greedy = read_ids(expected, "greedy");
  const Outcome outcome =
      dew({"generate", model().string(), "--ids", prompt, "--temperature", "0", "--ignore-eos",
           "--tokens", std::to_string(greedy.size()), "--json"});
  expect_done(outcome);
  const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
  EXPECT_EQ(json["ids"].get<std::vector<std::int64_t>>(), greedy);
}

// A directory with links to the model's files, but for its config.
void link_weights(const Path& from, const Path& to) {
  create_directories(to, ErrorCode::internal);
  for (const std::string& name : list_directory(from, ErrorCode::internal)) {
    if (name.starts_with("model"))
      std::filesystem::create_symlink(std::filesystem::absolute(from / name), to / name);
  }
}

class ConfigSpellings : public HuggingFace {};

INSTANTIATE_TEST_SUITE_P(All, ConfigSpellings,
                         testing::Values("llama_gqa", "llama_tied_llama3", "mistral_window",
                                         "qwen2", "qwen3"),
                         [](const auto& p) { return p.param; });

TEST_P(ConfigSpellings, AreTheSameModel) {
  const Path other = model() / "config.v5.json";
  link_weights(model(), directory_ / "m");
  std::filesystem::copy(other, directory_ / "m/config.json");
  const Path batch = model() / "expected.safetensors";
  EXPECT_EQ(probe(probe_words(directory_ / "m", batch)), probe(probe_words(model(), batch)));
}

TEST_P(HuggingFace, InspectListsItsParameters) {
  const Outcome outcome = dew({"inspect", model().string(), "--json", "--digest"});
  expect_done(outcome);
  const Json json = parse_json(outcome.out, "stdout", ErrorCode::internal);
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : read_floats_of(model() / "expected.safetensors")) {
    if (name.starts_with("grad.")) elements += element_count(tensor.shape);
  }
  EXPECT_EQ(json["parameters"], elements);
  EXPECT_EQ(json["bytes"], 4 * elements);
  EXPECT_EQ(json["step"], 0);
  for (const Json& tensor : json["tensors"]) {
    EXPECT_TRUE(tensor["name"].get<std::string>().starts_with("params/"));
    EXPECT_EQ(tensor["digest"].get<std::string>().size(), 16u);
  }
  const Outcome text = dew({"inspect", model().string()});
  expect_done(text);
  EXPECT_NE(text.out.find("\n  family      "), text.out.npos) << text.out;
}

// Tensors of all files of a directory: type, shape and bytes.
std::map<std::string, std::string> tensors_of(const Path& model) {
  std::map<std::string, std::string> tensors;
  for (const std::string& name : list_directory(model, ErrorCode::internal)) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const SafetensorsFile file(model / name, ErrorCode::internal);
    for (const StoredTensor& tensor : file.tensors()) {
      std::string text = std::string(dew::name(tensor.type)) + testing::PrintToString(tensor.shape);
      for (const std::byte b : file.bytes(tensor)) text += static_cast<char>(b);
      tensors[tensor.name] = text;
    }
  }
  return tensors;
}

Json digests(const Path& model) {
  const Outcome outcome = dew({"inspect", model.string(), "--json", "--digest"});
  expect_done(outcome);
  return parse_json(outcome.out, "stdout", ErrorCode::internal)["tensors"];
}

Json config_of(const Path& model) {
  return read_json(model / "config.json", 1 << 20, ErrorCode::internal);
}

TEST_P(HuggingFace, ImportThenExportIsTheSame) {
  const Path in = directory_ / "in", out = directory_ / "out";
  expect_done(dew({"import", model().string(), "--out", in.string()}));
  EXPECT_EQ(digests(in), digests(model()));
  const Path batch = model() / "expected.safetensors";
  EXPECT_EQ(probe({in.string(), "--batch", batch.string()})["loss"],
            probe({model().string(), "--batch", batch.string()})["loss"]);
  const bool narrow = GetParam() == "qwen3";  // its weights are bf16
  expect_done(
      dew({"export", in.string(), "--out", out.string(), "--dtype", narrow ? "bf16" : "f32"}));
  EXPECT_EQ(tensors_of(out), tensors_of(model()));
  EXPECT_EQ(config_of(out), config_of(model()));
}

// Trained here, read there: the same function.
struct OwnModel {
  const char* family;
  Words overrides;
};

class Exported : public testing::TestWithParam<OwnModel> {};

INSTANTIATE_TEST_SUITE_P(
    All, Exported,
    testing::Values(
        OwnModel{"qwen3", {"model.num_kv_heads=2", "model.head_dim=10"}},
        OwnModel{"llama",
                 {"model.qk_norm=false", "model.tie_embeddings=false", "model.attention_bias=true",
                  "model.rope_scaling.type=linear", "model.rope_scaling.factor=2.0"}},
        OwnModel{"gpt2",
                 {"model.positions=learned", "model.norm=layer", "model.mlp=gelu",
                  "model.attention_bias=true", "model.mlp_bias=true", "model.qk_norm=false",
                  "model.dropout=0.1"}},
        OwnModel{"mistral", {"model.qk_norm=false", "model.window=5"}},
        OwnModel{"qwen2",
                 {"model.qk_norm=false", "model.qkv_bias=true", "model.remat=full",
                  "model.window_pattern=[0, 5]"}},
        OwnModel{"gemma2",
                 {"model.qk_norm=false", "model.norm=rms_plus_one", "model.norm_placement=both",
                  "model.mlp=geglu", "model.scale_embeddings=true", "model.logit_softcap=5.0",
                  "model.window_pattern=[6, 0]"}},
        OwnModel{"olmo2", {"model.norm_placement=after", "model.qk_norm_over=all"}}),
    [](const auto& p) { return std::string(p.param.family); });

TEST_P(Exported, IsTheSameModelOfItsFamily) {
  const TemporaryDirectory directory;
  Words overrides = GetParam().overrides;
  overrides.insert(overrides.end(), {"--quiet", "run.steps=3", "optimizer.lr=0.05"});
  expect_done(dew(train_notebook(directory / "run", overrides)));
  const Path out = directory / "out";
  const Outcome outcome =
      dew({"export", (directory / "run").string(), "--out", out.string(), "--json", "--quiet"});
  expect_done(outcome);
  EXPECT_EQ(config_of(out)["model_type"], GetParam().family);
  write_batch(directory / "b", some_batch(2, 13, 256));
  const Words of_run = {(directory / "run").string(), "--batch", (directory / "b").string()};
  const Words of_export = {out.string(), "--batch", (directory / "b").string()};
  const Json a = probe(of_run), b = probe(of_export);
  EXPECT_EQ(a["loss"], b["loss"]);
  EXPECT_NEAR(a["grad_norm"], b["grad_norm"], 1e-6 * a["grad_norm"].get<double>());
}

TEST(HuggingFaceModels, ExportRounds) {
  const TemporaryDirectory directory;
  const Path model = kFixtures / "qwen2", out = directory / "out";
  expect_done(dew({"export", model.string(), "--out", out.string(), "--dtype", "bf16"}));
  EXPECT_EQ(config_of(out)["torch_dtype"], "bfloat16");
  const auto whole = read_floats_of(model / "model.safetensors");
  for (const auto& [name, rounded] : read_floats_of(out / "model.safetensors")) {
    for (std::size_t i = 0; i < rounded.values.size(); ++i) {
      const float x = whole.at(name).values[i];
      EXPECT_EQ(rounded.values[i], static_cast<float>(bf16(x))) << name;
    }
  }
}

TEST(HuggingFaceModels, TheTokenizerComesAlong) {
  const TemporaryDirectory directory;
  const Path hf = directory / "hf";
  std::filesystem::copy(kFixtures / "qwen3", hf);
  write_text(hf / "tokenizer.json", R"({"version": "1.0"})");
  write_text(hf / "generation_config.json", "{}");
  write_text(hf / "README.md", "not of the model");
  expect_done(dew({"import", hf.string(), "--out", (directory / "in").string()}));
  expect_done(dew({"export", (directory / "in").string(), "--out", (directory / "out").string()}));
  EXPECT_EQ(list_directory(directory / "out", ErrorCode::internal),
            (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                      "tokenizer.json"}));
  EXPECT_EQ(read_text(directory / "out/tokenizer.json"), R"({"version": "1.0"})");
}

TEST(HuggingFaceModels, ImportsAndExportsThatAreRefused) {
  const TemporaryDirectory directory;
  const std::string qwen = (kFixtures / "qwen3").string();
  const std::string out = (directory / "out").string();
  write_text(directory / "file", "");
  create_directories(directory / "empty", ErrorCode::internal);
  create_directories(directory / "full/inside", ErrorCode::internal);
  const std::string file = (directory / "file").string(), full = (directory / "full").string(),
                    empty = (directory / "empty").string();
  const auto before = snapshot(directory.path());
  expect_error(dew({"import"}), 2, "required");
  expect_error(dew({"import", qwen}), 2, "--out is required");
  expect_error(dew({"import", empty, "--out", out}), 5, "config.json");
  expect_error(dew({"import", file, "--out", out}), 5, "file");
  expect_error(dew({"import", out, "--out", out}), 5, "out");
  expect_error(dew({"import", (kFixtures / "mixtral").string(), "--out", out}), 5, "mixtures");
  expect_error(dew({"import", qwen, "--out", full}), 2, "full' exists and is not empty");
  expect_error(dew({"import", qwen, "--out", file}), 2, "file' exists and is not a directory");
  expect_error(dew({"import", qwen, "--out", file + "/x"}), 2, "file");
  expect_error(dew({"export"}), 2, "required");
  expect_error(dew({"export", qwen}), 2, "--out is required");
  expect_error(dew({"export", empty, "--out", out}), 5, "empty");
  expect_error(dew({"export", qwen, "--out", full}), 2, "full' exists and is not empty");
  expect_error(dew({"export", qwen, "--out", out, "--dtype", "f16"}), 2, "--dtype = 'f16'");
  expect_error(dew({"export", qwen, "--out", file + "/x"}), 2, "file");
  EXPECT_EQ(snapshot(directory.path()), before);
  expect_done(
      dew(train_notebook(directory / "run", {"--quiet", "run.steps=1", "model.norm=layer"})));
  expect_error(dew({"export", (directory / "run").string(), "--out", out}), 5,
               "no Hugging Face family has all options of this model");
}

// An import that fails late is in nobody's way: the same command works when its cause is gone.
TEST(HuggingFaceModels, FailedImportsLeaveNothing) {
  const TemporaryDirectory directory;
  std::filesystem::copy(kFixtures / "qwen3", directory / "qwen");
  make_huge(directory / "qwen/tokenizer.json");
  const Words import = {"import", "qwen", "--out", "out"};
  const auto before = list_directory(directory.path(), ErrorCode::internal);
  expect_error(dew(import, {.directory = directory.path()}), 5, "tokenizer.json");
  EXPECT_EQ(list_directory(directory.path(), ErrorCode::internal), before);
  std::filesystem::remove(directory / "qwen/tokenizer.json");
  expect_done(dew(import, {.directory = directory.path()}));
}

// Nor are killed imports and exports, whose leavings are removed.
TEST(HuggingFaceModels, KilledOnesLeaveNothingForLong) {
  const TemporaryDirectory directory;
  const std::string qwen = std::filesystem::absolute(kFixtures / "qwen3").string();
  for (const char* command : {"import", "export"}) {
    write_file(directory / "out.partial-4711/checkpoints/step_00000000.partial/x", "half");
    write_file(directory / "out.partial/x", "of somebody else");
    expect_done(dew({command, qwen, "--out", "out"}, {.directory = directory.path()}));
    EXPECT_EQ(list_directory(directory.path(), ErrorCode::internal),
              (std::vector<std::string>{"out", "out.partial"}))
        << command;
    remove_quietly(directory / "out");
  }
}

TEST(HuggingFaceModels, MixturesAreRefusedByName) {
  for (const char* command : {"probe", "inspect"}) {
    Words words = {command, (kFixtures / "mixtral").string()};
    if (words[0] == "probe") words.insert(words.end(), {"--batch", "none"});
    expect_error(dew(words), 5, "model_type = 'mixtral': mixtures of experts are not built yet");
  }
}

// Ids below 131, as those of the models.
void write_tokens(const Path& path) {
  create_directories(path, ErrorCode::internal);
  std::string ids;
  for (int i = 0; i < 64 * 5 + 9; ++i) ids += static_cast<char>(i * 7 % 131);
  for (const char* file : {"train.bin", "val.bin"}) write_text(path / file, ids);
  const std::string size = std::to_string(ids.size());
  write_text(path / "meta.json",
             R"({"tokenizer": "x", "vocab_size": 131, "dtype": "uint8", "eos_id": null, )"
             R"("train_tokens": )" +
                 size + R"(, "val_tokens": )" + size + "}");
}

TEST(HuggingFaceModels, Evaluation) {
  const TemporaryDirectory directory;
  write_tokens(directory / "tokens");
  const Outcome outcome = dew({"eval", (kFixtures / "qwen3").string(), "--data",
                               (directory / "tokens").string(), "--json", "--quiet"});
  expect_done(outcome);
  EXPECT_EQ(parse_json(outcome.out, "stdout", ErrorCode::internal)["tokens"], 64 * 5);
}

std::map<std::string, std::string> digests_by_name(const Path& model) {
  std::map<std::string, std::string> found;
  for (const Json& tensor : digests(model)) found[tensor["name"]] = tensor["digest"];
  return found;
}

// The hint of a refusal is what makes the config fit.
Words settings_of_hint(const std::string& text) {
  Words settings;
  std::size_t begin = text.find('\'', text.find("hint: "));
  while (begin != text.npos) {
    const std::size_t end = text.find('\'', begin + 1);
    settings.push_back(text.substr(begin + 1, end - begin - 1));
    begin = text.find('\'', end + 1);
  }
  return settings;
}

TEST_P(HuggingFace, RunsBeginFromIt) {
  write_tokens(directory_ / "tokens");
  const Path run = directory_ / "run";
  Words words = train_notebook(
      run, {"--quiet", "data.path=" + (directory_ / "tokens").string(), "data.seq_len=16",
            "data.global_batch=3", "run.steps=1", "model.vocab_size=131", "optimizer.lr=0.0",
            "optimizer.ema_decay=0.5", "run.init_from=" + model().string()});
  const Outcome refused = dew(words);
  expect_error(refused, 2, "run.init_from '" + model().string() + "' is another model: ");
  EXPECT_FALSE(std::filesystem::exists(run));
  for (const std::string& setting : settings_of_hint(refused.err)) {
    if (!setting.starts_with("model.vocab_size")) words.push_back(setting);
  }
  expect_done(dew(words));
  const auto before = digests_by_name(model()), after = digests_by_name(run);
  EXPECT_EQ(after.size(), 4 * before.size());
  for (const auto& [name, digest] : before) {
    EXPECT_EQ(after.at(name), digest) << name;
    EXPECT_EQ(after.at("ema/" + name.substr(7)), digest) << name;
  }
  // What it was published with is kept, whatever the run makes of the weights.
  const Path out = directory_ / "out";
  const Words to_out = {"export",  run.string(),
                        "--out",   out.string(),
                        "--dtype", GetParam() == "qwen3" ? "bf16" : "f32"};  // as its weights are
  expect_done(dew(to_out));
  EXPECT_EQ(config_of(out), config_of(model()));
  words.push_back("run.steps=2");  // where the run has a checkpoint, the model is not looked at
  std::erase(words, "run.steps=1");
  std::erase(words, "run.init_from=" + model().string());
  words.push_back("run.init_from=none");
  expect_done(dew(words));
  remove_quietly(out);
  expect_done(dew(to_out));
  EXPECT_EQ(config_of(out), config_of(model()));
}

Json generated(const Path& model, const Words& more) {
  Words words = {"generate", model.string(), "--json",   "--quiet",
                 "--ids",    "1,2,3",        "--tokens", "40"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = dew(words);
  expect_done(outcome);
  return parse_json(outcome.out, "stdout", ErrorCode::internal);
}

// As instruct models list them.
TEST(HuggingFaceModels, AnyOfSeveralEndTokensEndsAText) {
  const TemporaryDirectory directory;
  const Path model = directory / "hf", imported = directory / "imported";
  std::filesystem::copy(kFixtures / "qwen3", model);
  const auto drawn = generated(model, {"--ignore-eos"})["ids"].get<std::vector<std::int64_t>>();
  const std::size_t at = 20;  // the draw that is to be the end
  std::size_t first = 0;
  while (drawn[first] != drawn[at]) ++first;
  Json config = config_of(model);
  std::int64_t never = 0;
  while (std::ranges::find(drawn, never) != drawn.end()) ++never;
  config["eos_token_id"] = {never, drawn[at]};
  write_text(model / "config.json", config.dump());
  expect_done(dew({"import", model.string(), "--out", imported.string(), "--quiet"}));
  for (const Path& path : {model, imported}) {
    const Json json = generated(path, {});
    EXPECT_EQ(json["finish"], "end");
    EXPECT_EQ(json["ids"].size(), first + 1);
    EXPECT_EQ(generated(path, {"--ignore-eos"})["ids"].size(), 40u);
  }
  write_text(model / "generation_config.json",
             R"({"eos_token_id": [)" + std::to_string(never) + "]}");
  EXPECT_EQ(generated(model, {})["finish"], "tokens");
  write_text(model / "generation_config.json", R"({"eos_token_id": -7})");
  expect_error(dew({"generate", model.string(), "--ids", "1"}), 5,
               "generation_config.json: eos_token_id = -7, but it must be an id");
}

}  // namespace
}  // namespace dew
