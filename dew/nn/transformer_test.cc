#include "dew/nn/transformer.h"

#include <gtest/gtest.h>

#include <functional>

#include "dew/nn/plain_batch_test_support.h"

namespace dew::models {
namespace {

std::int64_t count(const TransformerConfig& config) {
  return parameter_count(CausalTransformer(config).params());
}

TransformerConfig gpt2() {
  return {.vocab_size = 50304,
          .emb_features = 768,
          .num_layers = 12,
          .num_heads = 12,
          .max_seq_len = 1024,
          .mlp = "gelu",
          .positions = "learned",
          .norm = "layer",
          .qk_norm = false,
          .attention_bias = true,
          .mlp_bias = true};
}

TEST(CausalTransformer, ParameterCounts) {
  EXPECT_EQ(count({.vocab_size = 256, .emb_features = 64, .num_layers = 2, .num_heads = 4}),
            147840);
  EXPECT_EQ(count({.vocab_size = 50304, .emb_features = 768, .num_layers = 3, .num_heads = 12}),
            66950784);
  EXPECT_EQ(count(gpt2()), 124475904);
}

TEST(CausalTransformer, ParametersByNameShapeAndAxes) {
  const CausalTransformer model({.vocab_size = 256,
                                 .emb_features = 64,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .tie_embeddings = false});
  std::map<std::string, std::pair<Dims, AxisNames>> found;
  for (const ParamSpec& p : model.params()) found[p.name] = {p.type.shape, p.axes};
  const std::map<std::string, std::pair<Dims, AxisNames>> want = {
      {"embed_tokens/embedding", {{256, 64}, {"vocab", "embed"}}},
      {"layers/attention_norm/scale", {{2, 64}, {"layers", "embed"}}},
      {"layers/attention/q_proj/kernel",
       {{2, 64, 4, 16}, {"layers", "embed", "heads", "head_dim"}}},
      {"layers/attention/k_proj/kernel", {{2, 64, 2, 16}, {"layers", "embed", "kv", "head_dim"}}},
      {"layers/attention/v_proj/kernel", {{2, 64, 2, 16}, {"layers", "embed", "kv", "head_dim"}}},
      {"layers/attention/o_proj/kernel", {{2, 64, 64}, {"layers", "attention", "embed"}}},
      {"layers/attention/q_norm/scale", {{2, 16}, {"layers", "head_dim"}}},
      {"layers/attention/k_norm/scale", {{2, 16}, {"layers", "head_dim"}}},
      {"layers/mlp_norm/scale", {{2, 64}, {"layers", "embed"}}},
      {"layers/mlp/gate_proj/kernel", {{2, 64, 256}, {"layers", "embed", "mlp"}}},
      {"layers/mlp/up_proj/kernel", {{2, 64, 256}, {"layers", "embed", "mlp"}}},
      {"layers/mlp/down_proj/kernel", {{2, 256, 64}, {"layers", "mlp", "embed"}}},
      {"final_norm/scale", {{64}, {"embed"}}},
      {"lm_head/kernel", {{256, 64}, {"vocab", "embed"}}}};
  EXPECT_EQ(found, want);
}

// The forward pass alone, with inputs by the names of the batch and outputs "states", "table".
Program forward_program(const CausalTransformer& model, std::int64_t rows, std::int64_t columns,
                        DType compute, bool training) {
  Program p("forward");
  TransformerInputs in;
  for (const ParamSpec& spec : model.params()) {
    const bool copy = spec.kind != ParamKind::vector;
    in.params[spec.name] =
        p.input("params/" + spec.name, {copy ? compute : DType::f32, spec.type.shape}, true);
  }
  const Type tokens = {DType::i32, {rows, columns}};
  in.ids = p.input("ids", tokens);
  in.positions = p.input("positions", tokens);
  in.segments = p.input("segments", tokens);
  in.counters.row_ids = p.input("row_ids", {DType::i32, {rows}});
  in.counters.columns = p.input("columns", {DType::i32, {columns}});
  in.counters.key = p.input("key", {DType::u32, {2}});
  in.counters.step = p.input("step", {DType::i32, {}});
  in.compute = compute;
  in.training = training;
  const TransformerOutputs out = model.forward(in);
  p.output("states", out.states);
  p.output("table", out.table);
  verify(p);
  return p;
}

TransformerConfig tiny() {
  return {.vocab_size = 11,
          .emb_features = 12,
          .num_layers = 3,
          .num_heads = 4,
          .head_dim = 6,
          .mlp_features = 10};
}

// The states of a packed batch of two rows, program against loop.
void compare(const TransformerConfig& config, bool training = false) {
  const CausalTransformer model(config);
  const plain::Params params = plain::random_params(model.params(), 5);
  const std::vector<plain::Sequence> batch = plain::random_batch(2, 7, 11, true);
  plain::Arrays in;
  plain::add_params(in, model.params(), params, "params/");
  plain::add_batch(in, batch);
  in["key"].data = {3, 4};
  in["step"].data = {9};
  const plain::Arrays out = plain::run(forward_program(model, 2, 7, DType::f32, training), in);

  plain::Model loop(config, params);
  if (training) loop.train({3, 4}, 9);
  plain::Vec want;
  for (const plain::Sequence& row : batch) {
    for (const plain::Vec& state : loop.states(row))
      want.insert(want.end(), state.begin(), state.end());
  }
  EXPECT_LT(plain::worst_difference(out.at("states").data, want), 1e-11);
  const char* table = config.tie_embeddings ? "embed_tokens/embedding" : "lm_head/kernel";
  EXPECT_EQ(out.at("table").data, params.at(table));
}

TransformerConfig with(const std::function<void(TransformerConfig&)>& change) {
  TransformerConfig config = tiny();
  change(config);
  return config;
}

TEST(CausalTransformer, ForwardEqualsThePlainLoop) { compare(tiny()); }
TEST(CausalTransformer, GroupedHeads) {
  compare(with([](auto& c) { c.num_kv_heads = 2; }));
}
TEST(CausalTransformer, OneKvHead) {
  compare(with([](auto& c) { c.num_kv_heads = 1; }));
}
TEST(CausalTransformer, WithoutQkNorm) {
  compare(with([](auto& c) { c.qk_norm = false; }));
}
TEST(CausalTransformer, LayerNorm) {
  compare(with([](auto& c) { c.norm = "layer"; }));
}
TEST(CausalTransformer, Geglu) {
  compare(with([](auto& c) { c.mlp = "geglu"; }));
}
TEST(CausalTransformer, Gelu) {
  compare(with([](auto& c) { c.mlp = "gelu"; }));
}
TEST(CausalTransformer, ExactGelu) {
  compare(with([](auto& c) { c.mlp = "gelu_erf"; }));
}
TEST(CausalTransformer, Biases) {
  compare(with([](auto& c) { c.attention_bias = c.mlp_bias = true; }));
}
TEST(CausalTransformer, BiasesOfQkvAlone) {
  compare(with([](auto& c) { c.qkv_bias = true; }));
}
TEST(CausalTransformer, RmsPlusOne) {
  compare(with([](auto& c) { c.norm = "rms_plus_one"; }));
}
TEST(CausalTransformer, NormsAfter) {
  compare(with([](auto& c) { c.norm_placement = "after"; }));
}
TEST(CausalTransformer, NormsBeforeAndAfter) {
  compare(with([](auto& c) { c.norm_placement = "both", c.norm = "rms_plus_one"; }));
}
TEST(CausalTransformer, LayerNormsAfter) {
  compare(with([](auto& c) { c.norm_placement = "after", c.norm = "layer"; }));
}
TEST(CausalTransformer, QkNormOverAllHeads) {
  compare(with([](auto& c) { c.qk_norm_over = "all", c.num_kv_heads = 2; }));
}
TEST(CausalTransformer, ScaledEmbeddings) {
  compare(with([](auto& c) { c.scale_embeddings = true; }));
  compare(
      with([](auto& c) { c.scale_embeddings = true, c.positions = "learned", c.max_seq_len = 9; }));
}
TEST(CausalTransformer, AttentionScale) {
  compare(with([](auto& c) { c.attention_scale = 0.3; }));
}
TEST(CausalTransformer, UntiedHead) {
  compare(with([](auto& c) { c.tie_embeddings = false; }));
}
TEST(CausalTransformer, AttentionSoftcap) {
  compare(with([](auto& c) { c.attention_softcap = 0.7; }));
}
TEST(CausalTransformer, Window) {
  compare(with([](auto& c) { c.window = 2; }));
}
TEST(CausalTransformer, WindowPattern) {
  compare(with([](auto& c) { c.window_pattern = {2, 0}; }));
}
TEST(CausalTransformer, WindowOfEachLayer) {
  compare(with([](auto& c) { c.window_pattern = {3, 0, 1}; }));
}
TEST(CausalTransformer, LargeEpsilonAndTheta) {
  compare(with([](auto& c) { c.norm_eps = 0.3, c.rope_theta = 7; }));
}
TEST(CausalTransformer, LinearRopeScaling) {
  compare(with([](auto& c) { c.rope_scaling = {.type = "linear", .factor = 3}; }));
}
TEST(CausalTransformer, Llama3RopeScaling) {
  compare(with([](auto& c) {
    c.rope_theta = 50;
    c.rope_scaling = {.type = "llama3",
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_max_seq_len = 16};
  }));
}
TEST(CausalTransformer, LearnedPositions) {
  compare(with([](auto& c) { c.positions = "learned", c.max_seq_len = 9, c.head_dim = 5; }));
}
TEST(CausalTransformer, DropoutInTrainingOnly) {
  const TransformerConfig config = with([](auto& c) { c.dropout = 0.4; });
  compare(config, true);
  compare(config, false);
}

// Else the comparisons above would compare the same model again and again.
TEST(CausalTransformer, NumbersOfTheConfigAreFelt) {
  const std::vector<std::function<void(TransformerConfig&)>> changes = {
      [](auto& c) { c.attention_softcap = 0.7; },
      [](auto& c) { c.attention_scale = 0.3; },
      [](auto& c) { c.scale_embeddings = true; },
      [](auto& c) { c.norm = "rms_plus_one"; },
      [](auto& c) { c.window = 2; },
      [](auto& c) {
        c.window_pattern = {2, 0};
      },
      [](auto& c) { c.norm_eps = 0.3; },
      [](auto& c) { c.rope_theta = 7; },
      [](auto& c) { c.rope_scaling = {.type = "linear", .factor = 3}; },
      [](auto& c) { c.norm = "layer"; },
      [](auto& c) { c.mlp = "geglu"; },
      [](auto& c) { c.qk_norm = false; }};
  TransformerConfig base = tiny();
  base.norm = "layer";  // has the parameters of both norms
  const plain::Params params = plain::random_params(CausalTransformer(base).params(), 5);
  const plain::Sequence row = plain::random_batch(1, 7, 11, true)[0];
  const plain::Vec before = plain::Model(tiny(), params).states(row).back();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const plain::Vec after = plain::Model(with(changes[i]), params).states(row).back();
    EXPECT_GT(plain::worst_difference(before, after), 1e-3) << i;
  }
}

TEST(CausalTransformer, ColumnsMayStandInAnyOrder) {
  const TransformerConfig config = with([](auto& c) { c.dropout = 0.3, c.window = 3; });
  const CausalTransformer model(config);
  plain::Arrays in;
  plain::add_params(in, model.params(), plain::random_params(model.params(), 5), "params/");
  plain::add_batch(in, plain::random_batch(1, 6, 11, false));
  const Program program = forward_program(model, 1, 6, DType::f32, true);
  const plain::Vec straight = plain::run(program, in).at("states").data;
  for (const char* name : {"ids", "positions", "segments", "columns"}) {
    std::reverse(in[name].data.begin(), in[name].data.end());
  }
  const plain::Vec reversed = plain::run(program, in).at("states").data;
  plain::Vec back;
  for (std::size_t t = 6; t-- > 0;) {
    back.insert(back.end(), reversed.begin() + static_cast<std::ptrdiff_t>(t) * 12,
                reversed.begin() + static_cast<std::ptrdiff_t>(t + 1) * 12);
  }
  EXPECT_LT(plain::worst_difference(back, straight), 1e-12);
}

// All pins of a program and of the bodies of its scans, in order.
std::vector<AxisNames> pins(const Program& p) {
  std::vector<AxisNames> out;
  for (const ValueInfo& v : p.values()) {
    if (!v.pin.empty()) out.push_back(v.pin.front());
    if (v.node < 0 || v.result > 0) continue;
    const Node& node = p.nodes()[static_cast<std::size_t>(v.node)];
    if (const auto* scan = std::get_if<ScanAttrs>(&node.attrs)) {
      for (AxisNames& pin : pins(*scan->body)) out.push_back(std::move(pin));
    }
  }
  return out;
}

TEST(CausalTransformer, Pins) {
  const CausalTransformer model(tiny());
  const AxisNames states = {"activation_batch", "activation_length", ""};
  const AxisNames wide = {"activation_batch", "activation_length", "activation_mlp"};
  const auto heads = [](const char* axis) {
    return AxisNames{"activation_batch", "activation_length", axis, ""};
  };
  const std::vector<AxisNames> want = {states,                     // embedding
                                       heads("activation_heads"),  // q
                                       heads("activation_kv"),
                                       heads("activation_kv"),
                                       states,  // o
                                       wide,
                                       wide,
                                       states,   // gate, up, down
                                       states};  // final norm
  EXPECT_EQ(pins(forward_program(model, 2, 4, DType::f32, true)), want);
}

// The products of a bf16 run and its residual stream are bf16; f32 are only what norms and
// attention keep for themselves.
TEST(CausalTransformer, Bf16Types) {
  const CausalTransformer model(with([](auto& c) { c.attention_bias = c.mlp_bias = true; }));
  const Program p = forward_program(model, 2, 4, DType::bf16, true);
  const auto check = [](const Program& program) {
    for (const ValueInfo& v : program.values()) {
      const bool activation = v.data && !v.weight && v.type.rank() >= 3 && is_float(v.type.dtype);
      const bool statistic = v.node >= 0 && v.result > 0;
      if (!activation || statistic) continue;
      EXPECT_EQ(v.type.dtype, DType::bf16) << program.name() << " " << to_string(v.type);
    }
  };
  check(p);
  for (const Node& node : p.nodes()) {
    if (const auto* scan = std::get_if<ScanAttrs>(&node.attrs)) check(*scan->body);
  }
}

TEST(CausalTransformer, ProgramsDoNotGrowWithDepth) {
  TransformerConfig deep = tiny();
  deep.num_layers = 120;
  deep.window_pattern = {4, 0};
  TransformerConfig shallow = deep;
  shallow.num_layers = 2;
  const Program a = forward_program(CausalTransformer(deep), 2, 4, DType::f32, true);
  const Program b = forward_program(CausalTransformer(shallow), 2, 4, DType::f32, true);
  EXPECT_EQ(a.nodes().size(), b.nodes().size());
}

}  // namespace
}  // namespace dew::models
