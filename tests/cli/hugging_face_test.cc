// Models of other people, against what transformers computes for them (tests/data/hf/README.md).
#include <numeric>

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

TEST_P(HuggingFace, NumbersAgree) {
  const Path batch = model() / "expected.safetensors";
  const auto expected = read_floats_of(batch);
  Words words = probe_words(model(), batch);
  words.insert(words.end(),
               {"--logits", (directory_ / "l").string(), "--grads", (directory_ / "g").string()});
  const Json json = probe(words);
  EXPECT_LT(worst(read_floats_of(directory_ / "l").at("logits"), expected.at("logits")), 2e-5);
  const double loss = expected.at("loss_mean").values[0];
  EXPECT_NEAR(json["loss"], loss, 1e-6 * loss);
  EXPECT_NEAR(json["loss_sum"], expected.at("loss_sum").values[0],
              1e-6 * json["loss_sum"].get<double>());
  const auto gradients = read_floats_of(directory_ / "g");
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

TEST(HuggingFaceModels, MixturesAreRefusedByName) {
  for (const char* command : {"probe", "inspect"}) {
    Words words = {command, (kFixtures / "mixtral").string()};
    if (words[0] == "probe") words.insert(words.end(), {"--batch", "none"});
    expect_error(dew(words), 5, "model_type = 'mixtral': mixtures of experts are not built yet");
  }
}

TEST(HuggingFaceModels, Evaluation) {
  const TemporaryDirectory directory;
  create_directories(directory / "tokens", ErrorCode::internal);
  std::string ids;
  for (int i = 0; i < 64 * 5 + 9; ++i) ids += static_cast<char>(i * 7 % 131);
  for (const char* file : {"train.bin", "val.bin"}) write_text(directory / "tokens" / file, ids);
  const std::string size = std::to_string(ids.size());
  write_text(directory / "tokens/meta.json",
             R"({"tokenizer": "x", "vocab_size": 131, "dtype": "uint8", "eos_id": null, )"
             R"("train_tokens": )" +
                 size + R"(, "val_tokens": )" + size + "}");
  const Outcome outcome = dew({"eval", (kFixtures / "qwen3").string(), "--data",
                               (directory / "tokens").string(), "--json", "--quiet"});
  expect_done(outcome);
  EXPECT_EQ(parse_json(outcome.out, "stdout", ErrorCode::internal)["tokens"], 64 * 5);
}

}  // namespace
}  // namespace dew
