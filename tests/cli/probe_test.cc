// dew probe against a plain loop in double precision, dew eval, and the trainer's own losses.
#include <cmath>

#include "dew/checkpoint/directory.h"
#include "dew/checkpoint/reader.h"
#include "dew/data/data_test_support.h"
#include "dew/nn/plain_transformer_test_support.h"
#include "dew/train/config.h"
#include "tests/cli/probe_support.h"

namespace dew {
namespace {

// The parameters of a checkpoint as the plain model has them: layers behind each other.
plain::Params plain_params(const CheckpointReader& reader,
                           const models::TransformerConfig& config) {
  plain::Params params;
  const models::CausalTransformer model(config);
  for (const ParamSpec& spec : model.params()) {
    for (std::int64_t slot = 0; slot < spec.layers(); ++slot) {
      std::vector<float> layer(static_cast<std::size_t>(spec.layer_elements()));
      reader.read(reader.require("params/" + spec.layer_name(slot), DType::f32, spec.layer_shape()),
                  std::as_writable_bytes(std::span(layer)));
      params[spec.name].insert(params[spec.name].end(), layer.begin(), layer.end());
    }
  }
  return params;
}

std::vector<plain::Sequence> plain_rows(const BatchFile& batch) {
  const Dims& shape = batch.at("input_ids").shape;
  std::vector<plain::Sequence> rows;
  for (std::int64_t r = 0; r < shape[0]; ++r) {
    plain::Sequence row;
    for (std::int64_t t = 0; t < shape[1]; ++t) {
      const auto at = static_cast<std::size_t>(r * shape[1] + t);
      const auto value = [&](const char* name, std::size_t i, std::int64_t otherwise) {
        return static_cast<int>(batch.contains(name) ? batch.at(name).values[i] : otherwise);
      };
      const int label = t + 1 < shape[1] ? value("labels", at + 1, 0) : -100;
      row.ids.push_back(value("input_ids", at, 0));
      row.labels.push_back(std::max(label, 0));
      row.weights.push_back(label == -100 ? 0 : 1);
      row.positions.push_back(value("positions", at, t));
      row.segments.push_back(value("segment_ids", at, 0));
    }
    rows.push_back(row);
  }
  return rows;
}

double plain_loss(const models::TransformerConfig& config, const plain::Params& params,
                  const std::vector<plain::Sequence>& rows) {
  double loss = 0, weight = 0;
  for (const plain::Sequence& row : rows) {
    loss += plain::Model(config, params).sums(row, 0).nll;
    for (const double w : row.weights) weight += w;
  }
  return loss / weight;
}

struct ProbeCase {
  const char* name;
  Words overrides;
  std::int64_t rows, length;
};

class Probe : public testing::TestWithParam<ProbeCase> {
 protected:
  Path run() const { return directory_ / "run"; }
  Path batch() const { return directory_ / "batch.safetensors"; }
  void train(Words overrides) {
    overrides.insert(overrides.begin(), {"--quiet", "model.emb_features=12", "model.num_layers=3",
                                         "model.num_heads=3", "model.mlp_features=18"});
    expect_done(dew(train_notebook(run(), overrides)));
  }
  Json probe_run(const Words& more = {}) {
    Words words = {run().string(), "--batch", batch().string()};
    words.insert(words.end(), more.begin(), more.end());
    return probe(words);
  }
  models::TransformerConfig config() const {
    models::TransformerConfig c = parse_model(reader().info().model, "model");
    c.dropout = 0;
    return c;
  }
  CheckpointReader reader() const { return CheckpointReader(resolve_checkpoint(run())); }

  TemporaryDirectory directory_;
};

// Central differences of the plain model, at three elements of every array.
void expect_gradients(const models::TransformerConfig& config, plain::Params params,
                      const std::vector<plain::Sequence>& rows,
                      const std::map<std::string, Floats>& found) {
  std::size_t arrays = 0;
  const models::CausalTransformer model(config);
  for (const ParamSpec& spec : model.params()) {
    for (std::int64_t slot = 0; slot < spec.layers(); ++slot, ++arrays) {
      const auto at = found.find(spec.layer_name(slot));
      ASSERT_NE(at, found.end()) << spec.layer_name(slot);
      EXPECT_EQ(at->second.shape, spec.layer_shape());
      double largest = 0;
      for (const float value : at->second.values)
        largest = std::max(largest, std::abs(double{value}));
      const std::int64_t n = spec.layer_elements();
      for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1}) {
        double& element = params[spec.name][static_cast<std::size_t>(slot * n + i)];
        const double before = element;
        constexpr double kStep = 1e-4;
        element = before + kStep;
        const double above = plain_loss(config, params, rows);
        element = before - kStep;
        const double below = plain_loss(config, params, rows);
        element = before;
        EXPECT_NEAR(double{at->second.values[static_cast<std::size_t>(i)]},
                    (above - below) / (2 * kStep), 1e-4 * largest + 1e-7)
            << spec.layer_name(slot) << " [" << i << "]";
      }
    }
  }
  EXPECT_EQ(found.size(), arrays);
}

void expect_logits(const models::TransformerConfig& config, const plain::Params& params,
                   const std::vector<plain::Sequence>& rows, const Floats& logits) {
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  const auto width = static_cast<std::size_t>(config.emb_features);
  const plain::Vec& table =
      params.at(config.tie_embeddings ? "embed_tokens/embedding" : "lm_head/kernel");
  ASSERT_EQ(logits.shape, (Dims{std::ssize(rows), std::ssize(rows[0].ids), config.vocab_size}));
  std::size_t i = 0;
  double worst = 0;
  for (const plain::Sequence& row : rows) {
    for (const plain::Vec& state : plain::Model(config, params).states(row)) {
      for (std::size_t v = 0; v < vocab; ++v, ++i) {
        double z = 0;
        for (std::size_t e = 0; e < width; ++e) z += state[e] * table[v * width + e];
        if (config.logit_softcap > 0)
          z = config.logit_softcap * std::tanh(z / config.logit_softcap);
        worst = std::max(worst, std::abs(z - double{logits.values[i]}));
      }
    }
  }
  EXPECT_LT(worst, 1e-5);
}

TEST_P(Probe, EqualsAPlainLoop) {
  train(GetParam().overrides);
  const models::TransformerConfig c = config();
  const BatchFile arrays = some_batch(GetParam().rows, GetParam().length, c.vocab_size);
  write_batch(batch(), arrays);
  const Json json =
      probe_run({"--logits", (directory_ / "l").string(), "--grads", (directory_ / "g").string()});
  const plain::Params params = plain_params(reader(), c);
  const std::vector<plain::Sequence> rows = plain_rows(arrays);
  const double loss = plain_loss(c, params, rows);
  double weight = 0;
  for (const plain::Sequence& row : rows) {
    for (const double w : row.weights) weight += w;
  }
  EXPECT_EQ(json["loss_weight"], weight);
  EXPECT_NEAR(json["loss"], loss, 1e-6 * loss);
  EXPECT_NEAR(json["loss_sum"], loss * weight, 1e-6 * loss * weight);
  EXPECT_EQ(json["steps"], Json::array());
  const auto gradients = read_floats_of(directory_ / "g");
  expect_gradients(c, params, rows, gradients);
  const auto logits = read_floats_of(directory_ / "l");
  ASSERT_EQ(logits.size(), 1u);
  expect_logits(c, params, rows, logits.at("logits"));
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    double own = 0;
    for (const float g : gradient.values) own += double{g} * double{g};
    EXPECT_NEAR(json["grad_norms"][name], std::sqrt(own), 1e-9) << name;
    squares += own;
  }
  EXPECT_EQ(json["grad_norms"].size(), gradients.size());
  EXPECT_NEAR(json["grad_norm"], std::sqrt(squares), 1e-9);
}

const ProbeCase kProbeCases[] = {
    {"Plain", {"run.steps=2"}, 3, 7},
    {"OneRow", {"run.steps=1"}, 1, 5},
    {"TwoTokens", {"run.steps=1"}, 1, 2},
    {"Learned",
     {"run.steps=1", "model.positions=learned", "model.norm=layer", "model.mlp=gelu",
      "model.attention_bias=true", "model.mlp_bias=true", "model.qk_norm=false"},
     2,
     18},
    // What a run has of dropout, z-loss, bf16 and accumulation is none of the model's arithmetic.
    {"Grouped",
     {"run.steps=1", "model.num_kv_heads=1", "model.mlp=geglu", "model.tie_embeddings=false",
      "model.window_pattern=[0, 3]", "model.attention_softcap=20.0", "model.logit_softcap=10.0",
      "model.dropout=0.2", "objective.z_loss=0.1", "precision.compute=bf16", "data.accumulate=2",
      "model.remat=full"},
     5,
     9},
};

INSTANTIATE_TEST_SUITE_P(All, Probe, testing::ValuesIn(kProbeCases),
                         [](const auto& p) { return std::string(p.param.name); });

class ProbeRun : public Probe {};

// Rows of validation windows: eval's loss and accuracy are of the same tokens.
TEST_F(ProbeRun, EqualsEval) {
  train({"run.steps=3", "model.max_seq_len=40"});
  const std::string val = read_text("tests/data/notebook-tokens/val.bin");
  Integers ids{{16, 33}, {}, StoredType::u8};
  for (std::int64_t r = 0; r < 16; ++r) {
    for (std::int64_t t = 0; t < 33; ++t)
      ids.values.push_back(static_cast<unsigned char>(val[static_cast<std::size_t>(r * 32 + t)]));
  }
  write_batch(batch(), {{"input_ids", ids}, {"labels", ids}});
  const Outcome eval = dew({"eval", run().string(), "--data", "tests/data/notebook-tokens",
                            "--batches", "1", "--json", "--quiet"});
  const Json expected = parse_json(eval.out, "stdout", ErrorCode::internal);
  const Json json = probe_run();
  EXPECT_NEAR(json["loss"], expected["loss"], 1e-6 * json["loss"].get<double>());
  EXPECT_EQ(json["loss_weight"], expected["tokens"]);
}

// Three windows make every step of the run the same batch.
TEST_F(ProbeRun, StepsEqualTheTrainers) {
  std::vector<std::uint8_t> ids;
  for (int i = 0; i < 3 * 8 + 1; ++i) ids.push_back(static_cast<std::uint8_t>(i * 31 % 256));
  write_directory(directory_ / "tokens", 256, ids, ids);
  const auto train_to = [&](const char* steps) {
    train({"data.path=" + (directory_ / "tokens").string(), "data.seq_len=8", "data.global_batch=3",
           "data.shuffle=false", "model.max_seq_len=9", "optimizer.name=sgd", "optimizer.lr=0.3",
           "optimizer.momentum=0.0", "optimizer.clip_norm=0.7", "run.log_every=1",
           std::string("run.steps=") + steps});
  };
  train_to("1");
  Integers rows{{3, 9}, {}, StoredType::i32};
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t t = 0; t < 9; ++t) rows.values.push_back(ids[r * 8 + t]);
  }
  write_batch(batch(), {{"input_ids", rows}, {"labels", rows}});
  const Json json = probe_run({"--steps", "6"});
  ASSERT_EQ(json["steps"].size(), 6u);
  EXPECT_EQ(json["steps"][0], json["loss"]);
  train_to("7");
  const std::vector<Json> lines = metrics_of(run());
  for (std::size_t step = 0; step < 6; ++step) {
    const Json& line = lines[step + 2];  // behind that of step 1 and its evaluation
    ASSERT_EQ(line["step"], step + 2);
    EXPECT_NEAR(json["steps"][step], line["loss"], 2e-6) << step;
    if (step == 0) {
      EXPECT_NEAR(json["grad_norm"], line["grad_norm"], 1e-5);
    }
  }
  EXPECT_LT(json["steps"][5], json["steps"][0]);
}

TEST_F(ProbeRun, SettingsOfTheSteps) {
  train({"run.steps=1"});
  write_batch(batch(), some_batch(2, 6, 256));
  const Json own = probe_run({"--steps", "3"});
  const Json still = probe_run({"--steps", "3", "--set", "optimizer.lr=0.0"});
  EXPECT_EQ(still["steps"], (Json{own["loss"], own["loss"], own["loss"]}));
  const Json other =
      probe_run({"--steps", "3", "--set", "optimizer.lr=1e-2", "--set", "optimizer.clip_norm=0.1"});
  EXPECT_EQ(other["grad_norm"], own["grad_norm"]);  // before clipping
  EXPECT_NE(other["steps"][1], own["steps"][1]);
  const Json half = probe_run({"--set", "precision.compute=bf16"});
  EXPECT_NEAR(half["loss"], own["loss"], 0.02);
  EXPECT_NE(half["loss"], own["loss"]);
  EXPECT_EQ(probe_run({"--steps", "3"}), own);  // the checkpoint is as it was
}

// Two rows are the same as one with both of them behind each other.
TEST_F(ProbeRun, PackedRowsEqualSeparateOnes) {
  train({"run.steps=1"});
  BatchFile apart = some_batch(2, 7, 256);
  write_batch(batch(), apart);
  const Json separate = probe_run();
  BatchFile packed = apart;
  for (auto& [name, tensor] : packed) tensor.shape = {1, 14};
  packed["labels"].values[7] = -100;  // the last of the first predicts nothing
  packed["positions"] = {{1, 14}, {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6}, StoredType::i32};
  packed["segment_ids"] = {{1, 14}, {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, StoredType::u8};
  packed["other"] = {{3}, {1, 2, 3}};
  write_batch(batch(), packed);
  const Json joined = probe_run();
  EXPECT_EQ(joined["loss_weight"], separate["loss_weight"]);
  EXPECT_NEAR(joined["loss"], separate["loss"], 1e-6);
  EXPECT_NEAR(joined["grad_norm"], separate["grad_norm"], 1e-5);
  packed.erase("segment_ids");
  write_batch(batch(), packed);
  EXPECT_GT(std::abs(probe_run()["loss"].get<double>() - separate["loss"].get<double>()), 1e-4);
}

TEST_F(ProbeRun, ReplacesWhatItWrites) {
  train({"run.steps=1"});
  write_batch(batch(), some_batch(1, 3, 256));
  write_text(directory_ / "g", "old");
  probe_run({"--grads", (directory_ / "g").string()});
  EXPECT_GT(read_floats_of(directory_ / "g").size(), 10u);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "g.partial"));
}

}  // namespace
}  // namespace dew
