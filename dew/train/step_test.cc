#include "dew/train/step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dew/autodiff/simplify.h"
#include "dew/base/error.h"
#include "dew/ir/rewrite.h"
#include "dew/ops/ops.h"
#include "dew/train/run_module_test_support.h"

namespace dew {
namespace {

using models::CausalTransformer;
using models::TransformerConfig;
using plain::Arrays;
using plain::Params;
using plain::scalar;
using plain::Sequence;
using plain::Sums;

constexpr int kVocab = 7, kColumns = 5;
constexpr double kZLoss = 0.02;

TransformerConfig llama_like() {
  return {.vocab_size = kVocab,
          .emb_features = 8,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 4,
          .mlp_features = 6,
          .dropout = 0.25,
          .logit_softcap = 3,
          .attention_softcap = 2,
          .window_pattern = {3, 0}};
}

TransformerConfig gpt_like() {
  return {.vocab_size = kVocab,
          .emb_features = 8,
          .num_layers = 2,
          .num_heads = 2,
          .mlp_features = 6,
          .max_seq_len = 9,
          .mlp = "gelu",
          .positions = "learned",
          .norm = "layer",
          .qk_norm = false,
          .tie_embeddings = false,
          .attention_bias = true,
          .mlp_bias = true};
}

LMObjective objective_for(const TransformerConfig& config) {
  return {CausalTransformer(config), {.seq_len = kColumns, .z_loss = kZLoss}};
}

double weight_of(const std::vector<Sequence>& batch) {
  double sum = 0;
  for (const Sequence& row : batch) {
    for (const double w : row.weights) sum += w;
  }
  return sum;
}

Sums plain_sums(const plain::Model& model, const std::vector<Sequence>& batch, double z_loss) {
  Sums all;
  for (const Sequence& row : batch) {
    const Sums one = model.sums(row, z_loss);
    all.loss += one.loss;
    all.nll += one.nll;
    all.correct += one.correct;
  }
  return all;
}

// Registers of a training run before its first step.
Arrays start(const LMObjective& objective, const Optimizer& optimizer, const Params& params) {
  Arrays r;
  for (const StateArray& state : state_arrays(objective.params(), optimizer)) {
    const ParamSpec& spec = objective.params()[state.param];
    r[state.name] = Array(spec.type.shape);
    if (state.starts_as_parameter) r[state.name].data = params.at(spec.name);
  }
  r["lr"] = scalar(0.05);
  r["c1"] = scalar(bias_correction(optimizer, 1).c1);
  r["c2"] = scalar(bias_correction(optimizer, 1).c2);
  r["clip_norm"] = scalar(optimizer.clip_norm);
  return r;
}

void add_weights(Arrays& r, double weight) {
  r["inv_weight"] = scalar(weight > 0 ? 1 / weight : 0);
  r["inv_tokens"] = scalar(0);
  r["key"].data = {3, 4};
  r["step"].data = {9};
}

StepShape shape_of(const std::vector<std::vector<Sequence>>& micro_steps) {
  return {.micro_steps = static_cast<std::int64_t>(micro_steps.size()),
          .rows = static_cast<std::int64_t>(micro_steps[0].size()),
          .columns = static_cast<std::int64_t>(micro_steps[0][0].ids.size())};
}

// One whole step from random parameters; all registers after it.
Arrays run_step(const LMObjective& objective,
                const std::vector<std::vector<Sequence>>& micro_steps) {
  const Optimizer optimizer = {.clip_norm = 0.5, .ema_decay = 0.9};
  Arrays r = start(objective, optimizer, plain::random_params(objective.params(), 5));
  plain::add_step(r, micro_steps);
  double weight = 0;
  for (const auto& batch : micro_steps) weight += weight_of(batch);
  add_weights(r, weight);
  plain::run_list(training_module(objective, optimizer, shape_of(micro_steps), DType::f32), "train",
                  r);
  return r;
}

// Gradient times a direction against the difference of plain losses along it, for each parameter.
void check_gradients(const TransformerConfig& config) {
  const LMObjective objective = objective_for(config);
  const std::vector<Sequence> batch = plain::random_batch(2, kColumns, kVocab, true);
  const double weight = weight_of(batch);
  const Arrays after = run_step(objective, {batch});
  Params params = plain::random_params(objective.params(), 5);
  plain::Model model(config, params);
  model.train({3, 4}, 9);

  const Sums sums = plain_sums(model, batch, kZLoss);
  EXPECT_NEAR(after.at("loss").data[0], sums.loss / weight, 1e-11);
  EXPECT_NEAR(after.at("nll").data[0], sums.nll / weight, 1e-11);
  EXPECT_NEAR(after.at("correct").data[0], sums.correct / weight, 1e-12);

  for (const ParamSpec& spec : objective.params()) {
    const plain::Vec direction = plain::random_params(objective.params(), 77).at(spec.name);
    const plain::Vec at = params[spec.name];
    const auto loss_at = [&](double step) {
      for (std::size_t i = 0; i < at.size(); ++i)
        params[spec.name][i] = at[i] + step * direction[i];
      return plain_sums(model, batch, kZLoss).loss / weight;
    };
    constexpr double kStep = 1e-5;
    const double want = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    params[spec.name] = at;
    double got = 0;
    for (std::size_t i = 0; i < at.size(); ++i)
      got += after.at("grad/" + spec.name).data[i] * direction[i];
    EXPECT_NEAR(got, want, 1e-8) << spec.name;
    EXPECT_NE(want, 0) << spec.name;
  }
}

TEST(Step, LossAndGradientsEqualThePlainLoop) {
  check_gradients(llama_like());
  check_gradients(gpt_like());
}

void expect_same_step(const Arrays& a, const Arrays& b, const LMObjective& objective) {
  for (const char* name : {"loss", "nll", "correct", "grad_norm"})
    EXPECT_NEAR(a.at(name).data[0], b.at(name).data[0], 1e-12) << name;
  for (const ParamSpec& spec : objective.params()) {
    for (const char* prefix : {"grad/", "params/", "opt/m/", "opt/v/", "ema/"}) {
      const std::string name = prefix + spec.name;
      EXPECT_LT(plain::worst_difference(a.at(name).data, b.at(name).data), 1e-10) << name;
    }
  }
}

// Weights differ from row to row, and so from micro step to micro step.
TEST(Step, MicroStepsEqualTheJoinedBatch) {
  const LMObjective objective = objective_for(llama_like());
  const std::vector<Sequence> all = plain::random_batch(6, kColumns, kVocab, true);
  const auto part = [&](std::ptrdiff_t first, std::ptrdiff_t last) {
    return std::vector<Sequence>(all.begin() + first, all.begin() + last);
  };
  EXPECT_NE(weight_of(part(0, 2)), weight_of(part(2, 4)));
  const Arrays joined = run_step(objective, {all});
  expect_same_step(run_step(objective, {part(0, 3), part(3, 6)}), joined, objective);
  expect_same_step(run_step(objective, {part(0, 2), part(2, 4), part(4, 6)}), joined, objective);
}

// Legal ids and positions in segments of their own, anything as label, weight 0.
Sequence pad_row(int columns) {
  Sequence row;
  row.row_id = -1;
  for (int t = 0; t < columns; ++t) {
    row.ids.push_back(plain::pick(50, 0, static_cast<std::uint32_t>(t), kVocab));
    row.labels.push_back(t % 2 == 0 ? -100 : 2147483647);
    row.positions.push_back(plain::pick(51, 0, static_cast<std::uint32_t>(t), 9));
    row.segments.push_back(-1 - t);
    row.weights.push_back(0);
  }
  return row;
}

std::vector<Sequence> padded(std::vector<Sequence> batch, int rows, int columns) {
  const Sequence pad = pad_row(columns);
  for (Sequence& row : batch) {
    const auto fill = [&](auto& to, const auto& from) {
      to.insert(to.end(), from.begin() + kColumns, from.end());
    };
    fill(row.ids, pad.ids);
    fill(row.labels, pad.labels);
    fill(row.positions, pad.positions);
    fill(row.segments, pad.segments);
    fill(row.weights, pad.weights);
  }
  batch.insert(batch.begin() + 1, static_cast<std::size_t>(rows), pad);
  return batch;
}

TEST(Step, PadsOfGarbageChangeNothing) {
  for (const TransformerConfig& config : {llama_like(), gpt_like()}) {
    const LMObjective objective = objective_for(config);
    const std::vector<Sequence> batch = plain::random_batch(3, kColumns, kVocab, true);
    const Arrays bare = run_step(objective, {batch});
    expect_same_step(run_step(objective, {padded(batch, 2, kColumns + 3)}), bare, objective);
  }
}

TEST(Step, AStepWithoutWeightCommitsNothing) {
  const LMObjective objective = objective_for(llama_like());
  const Arrays after = run_step(objective, {{pad_row(kColumns), pad_row(kColumns)}});
  EXPECT_EQ(after.at("commit").data[0], 0);
  EXPECT_EQ(after.at("loss").data[0], 0);
  EXPECT_EQ(after.at("grad_norm").data[0], 0);
  for (const auto& [name, values] : plain::random_params(objective.params(), 5)) {
    EXPECT_EQ(after.at("params/" + name).data, values);
  }
}

TEST(Step, RematChangesNoNumbers) {
  TransformerConfig config = llama_like();
  const std::vector<Sequence> batch = plain::random_batch(2, kColumns, kVocab, true);
  const Arrays none = run_step(objective_for(config), {batch});
  for (const char* remat : {"save_list", "full"}) {
    config.remat = remat;
    expect_same_step(run_step(objective_for(config), {batch}), none, objective_for(config));
  }
}

TEST(Step, TrainingLowersTheLoss) {
  TransformerConfig config = llama_like();
  config.dropout = 0;
  const LMObjective objective = objective_for(config);
  const Optimizer optimizer = adamw(0.05);
  const std::vector<Sequence> batch = plain::random_batch(2, kColumns, kVocab, false);
  const Module module = training_module(objective, optimizer, {1, 2, kColumns}, DType::f32);
  Arrays r = start(objective, optimizer, plain::random_params(objective.params(), 5));
  plain::add_step(r, {batch});
  add_weights(r, weight_of(batch));
  double first = 0;
  for (int n = 1; n <= 12; ++n) {
    r["c1"] = scalar(bias_correction(optimizer, n).c1);
    r["c2"] = scalar(bias_correction(optimizer, n).c2);
    plain::run_list(module, "train", r);
    if (n == 1) first = r["nll"].data[0];
  }
  EXPECT_LT(r["nll"].data[0], 0.5 * first);
}

TEST(Step, EvaluationSumsOverTokens) {
  const LMObjective objective = objective_for(llama_like());
  const std::vector<Sequence> all = plain::random_batch(4, kColumns, kVocab, true);
  const std::vector<std::vector<Sequence>> micro_steps = {{all[0], all[1]}, {all[2], all[3]}};
  const Params params = plain::random_params(objective.params(), 5);
  Arrays r = start(objective, adamw(1), params);
  plain::add_step(r, micro_steps);
  plain::run_list(evaluation_module(objective, shape_of(micro_steps), DType::f32), "eval", r);
  const Sums want = plain_sums(plain::Model(llama_like(), params), all, 0);
  EXPECT_NEAR(r["eval_nll"].data[0], want.nll, 1e-11);
  EXPECT_NEAR(r["eval_correct"].data[0], want.correct, 1e-12);
}

TEST(Step, CallLists) {
  const auto calls = [](const Module& module, const char* list) {
    std::string out;
    for (const Call& call : module.lists[static_cast<std::size_t>(module.list_index(list))].calls) {
      out += module.programs[static_cast<std::size_t>(call.program)].name() + "@" +
             std::to_string(call.micro) + " ";
    }
    return out;
  };
  const LMObjective objective = objective_for(llama_like());
  const Module one = training_module(objective, adamw(1), {1, 2, kColumns}, DType::f32);
  EXPECT_EQ(calls(one, "train"), "micro_first@0 update@0 ");
  EXPECT_EQ(calls(one, "eval"), "eval_first@0 ");
  const Module three = training_module(objective, adamw(1), {3, 2, kColumns}, DType::bf16);
  EXPECT_EQ(calls(three, "train"), "cast@0 micro_first@0 micro@1 micro@2 update@0 ");
  EXPECT_EQ(calls(three, "eval"), "cast@0 eval_first@0 eval@1 eval@2 ");
  for (const Program& program : three.programs) verify(program);
}

// Copies are made of all but vectors; gradients and state stay f32.
TEST(Step, Bf16Registers) {
  const LMObjective objective = objective_for(gpt_like());
  const Module module = training_module(objective, adamw(1), {2, 2, kColumns}, DType::bf16);
  std::vector<std::string> copies;
  for (const Register& r : module.registers) {
    if (r.type.dtype != DType::bf16) continue;
    copies.push_back(r.name);
  }
  const std::vector<std::string> want = {"cast/embed_tokens/embedding",
                                         "cast/embed_positions/embedding",
                                         "cast/layers/attention/q_proj/kernel",
                                         "cast/layers/attention/k_proj/kernel",
                                         "cast/layers/attention/v_proj/kernel",
                                         "cast/layers/attention/o_proj/kernel",
                                         "cast/layers/mlp/up_proj/kernel",
                                         "cast/layers/mlp/down_proj/kernel",
                                         "cast/lm_head/kernel"};
  EXPECT_EQ(copies, want);
}

// The numbers of a bf16 program are judged in double precision too: only the types differ.
TEST(Step, Bf16ProgramsComputeTheSame) {
  const LMObjective objective = objective_for(gpt_like());
  const std::vector<Sequence> batch = plain::random_batch(2, kColumns, kVocab, true);
  const Optimizer optimizer = {.clip_norm = 0.5, .ema_decay = 0.9};
  Arrays r = start(objective, optimizer, plain::random_params(objective.params(), 5));
  plain::add_step(r, {batch});
  add_weights(r, weight_of(batch));
  plain::run_list(training_module(objective, optimizer, shape_of({batch}), DType::bf16), "train",
                  r);
  expect_same_step(r, run_step(objective, {batch}), objective);
}

// All passes of compile() on gradients that are added to sums of earlier micro steps.
TEST(Step, CompiledProgramsComputeTheSame) {
  const std::vector<Sequence> batch = plain::random_batch(2, kColumns, kVocab, true);
  for (const TransformerConfig& config : {llama_like(), gpt_like()}) {
    const LMObjective objective = objective_for(config);
    const Program raw = micro_program(objective, shape_of({batch}), DType::f32, true);
    const Program clean = without_dead_code(accumulate_in_scans(simplify(without_duplicates(raw))));
    verify(clean);
    const auto scans = [](const Program& p) {
      return std::ranges::count(p.nodes(), &scan_op, &Node::op);
    };
    EXPECT_EQ(scans(raw), 3);
    EXPECT_EQ(scans(clean), 2);  // forward, backward
    Arrays in;
    const Params params = plain::random_params(objective.params(), 5);
    plain::add_params(in, objective.params(), params, "params/");
    plain::add_params(in, objective.params(), params, "grad/");
    for (const char* name : {"loss", "nll", "correct"}) in[name] = scalar(0.5);
    plain::add_batch(in, batch);
    add_weights(in, weight_of(batch));
    const Arrays a = plain::run(raw, in), b = plain::run(clean, in);
    for (const auto& [name, array] : a) {
      EXPECT_LT(plain::worst_difference(array.data, b.at(name).data), 1e-12) << name;
    }
  }
}

TEST(Step, RefusesRowsThatTheModelHasNoPositionsFor) {
  try {
    LMObjective(CausalTransformer(gpt_like()), {.seq_len = 10});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_STREQ(e.what(), "seq_len = 10 is above model.max_seq_len = 9");
  }
}

}  // namespace
}  // namespace dew
