#include "dew/sharding/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dew/base/error.h"
#include "dew/nn/names.h"

namespace dew {
namespace {

Mesh mesh_of(const MeshSpec& spec, std::int64_t data = 1) {
  return build_mesh(spec,
                    data * spec.expert * spec.fsdp * spec.tensor * spec.sequence * spec.stage);
}

const Layout kSplitAll = {.min_shard = 1};

std::string placed(const Mesh& mesh, const Dims& shape, const AxisNames& names,
                   const Layout& layout = kSplitAll) {
  return to_user_string(mesh, parameter_spec(mesh, layout, shape, names));
}

std::string pinned(const Mesh& mesh, const Dims& shape, const AxisNames& names,
                   const Layout& layout = {}) {
  return to_string(mesh, {pin_dims(mesh, layout, shape, names), 0});
}

// Code, message and hint.
template <class Body>
std::string refusal(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what() +
           (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "no error";
}

TEST(Layout, WorkedExamples) {
  const AxisNames table = {"vocab", "embed"};
  const Mesh fsdp8 = mesh_of({.fsdp = 8}), data8 = mesh_of({}, 8);
  EXPECT_EQ(placed(fsdp8, {256, 64}, table), "P('fsdp',)");
  EXPECT_EQ(local_shape(fsdp8, {256, 64}, parameter_spec(fsdp8, kSplitAll, {256, 64}, table)),
            (Dims{32, 64}));
  EXPECT_EQ(placed(data8, {256, 64}, table), "P()");
  EXPECT_EQ(placed(fsdp8, {256, 64}, table, Layout()), "P()");  // 16,384 elements
  EXPECT_EQ(placed(fsdp8, {256, 64}, table, {.min_shard = 16384}), "P('fsdp',)");
  EXPECT_EQ(placed(fsdp8, {256, 64}, table, {.min_shard = 16385}), "P()");

  const Mesh both = mesh_of({.fsdp = 2, .tensor = 2});
  const Spec mlp = parameter_spec(both, Layout(), {256, 1024}, {"embed", "mlp"});
  EXPECT_EQ(to_user_string(both, mlp), "P('fsdp', 'tensor')");
  EXPECT_EQ(local_shape(both, {256, 1024}, mlp), (Dims{128, 512}));
}

// Every kind of parameter of a transformer.
struct Placement {
  const char* what;
  Dims shape;
  AxisNames names;
  const char* data;
  const char* fsdp;
  const char* tensor;
  const char* both;
};

TEST(Layout, ParametersOfAModel) {
  const Placement placements[] = {
      {"table",
       {256, 64},
       {"vocab", "embed"},
       "P()",
       "P('fsdp',)",
       "P('tensor',)",
       "P(('tensor', 'fsdp'),)"},
      {"positions",
       {32, 64},
       {"positions", "embed"},
       "P()",
       "P(None, 'fsdp')",
       "P()",
       "P(None, 'fsdp')"},
      {"q",
       {64, 4, 16},
       {"embed", "heads", "head_dim"},
       "P()",
       "P('fsdp',)",
       "P(None, 'tensor')",
       "P('fsdp', 'tensor')"},
      {"k",
       {64, 4, 16},
       {"embed", "kv", "head_dim"},
       "P()",
       "P('fsdp',)",
       "P(None, 'tensor')",
       "P('fsdp', 'tensor')"},
      {"q bias",
       {4, 16},
       {"heads", "head_dim"},
       "P()",
       "P(None, 'fsdp')",
       "P('tensor',)",
       "P('tensor', 'fsdp')"},
      {"o",
       {64, 64},
       {"attention", "embed"},
       "P()",
       "P('fsdp',)",
       "P('tensor',)",
       "P('tensor', 'fsdp')"},
      {"up",
       {64, 256},
       {"embed", "mlp"},
       "P()",
       "P(None, 'fsdp')",
       "P(None, 'tensor')",
       "P('fsdp', 'tensor')"},
      {"down",
       {256, 64},
       {"mlp", "embed"},
       "P()",
       "P('fsdp',)",
       "P('tensor',)",
       "P('tensor', 'fsdp')"},
      {"norm", {64}, {"embed"}, "P()", "P('fsdp',)", "P()", "P('fsdp',)"},
      {"q norm", {16}, {"head_dim"}, "P()", "P('fsdp',)", "P()", "P('fsdp',)"},
      {"experts",
       {8, 64, 32},
       {"exp", "embed", "mlp"},
       "P()",
       "P(None, None, 'fsdp')",
       "P(None, None, 'tensor')",
       "P(None, 'fsdp', 'tensor')"},
      {"unknown to us", {3, 5}, {"", ""}, "P()", "P()", "P()", "P()"},
      {"scalar", {}, {}, "P()", "P()", "P()", "P()"},
      {"nothing", {0, 64}, {"vocab", "embed"}, "P()", "P()", "P()", "P()"},
  };
  const Mesh data = mesh_of({}, 4), fsdp = mesh_of({.fsdp = 4}), tensor = mesh_of({.tensor = 4}),
             both = mesh_of({.fsdp = 2, .tensor = 2}, 2);
  for (const Placement& p : placements) {
    SCOPED_TRACE(p.what);
    EXPECT_EQ(placed(data, p.shape, p.names), p.data);
    EXPECT_EQ(placed(fsdp, p.shape, p.names), p.fsdp);
    EXPECT_EQ(placed(tensor, p.shape, p.names), p.tensor);
    EXPECT_EQ(placed(both, p.shape, p.names), p.both);
  }
  EXPECT_EQ(placed(mesh_of({.fsdp = 2, .expert = 2}), {8, 64, 32}, {"exp", "embed", "mlp"}),
            "P('expert', None, 'fsdp')");
}

// A rule that does not divide makes way for the next one, for this array alone.
TEST(Layout, FallbacksWhereRulesDoNotDivide) {
  const AxisNames table = {"vocab", "embed"};
  const Mesh large = mesh_of({.fsdp = 16, .tensor = 16});
  EXPECT_EQ(placed(large, {50304, 4096}, table), "P('tensor', 'fsdp')");
  EXPECT_EQ(placed(large, {32768, 4096}, table), "P(('tensor', 'fsdp'),)");
  EXPECT_EQ(placed(large, {50257, 4096}, table), "P(None, 'fsdp')");
  EXPECT_EQ(placed(mesh_of({.fsdp = 3, .tensor = 5}), {18, 7}, table), "P('fsdp',)");
  EXPECT_EQ(placed(mesh_of({.fsdp = 2, .tensor = 2, .stage = 2}), {256, 64}, table),
            "P(('tensor', 'fsdp', 'stage'),)");
  EXPECT_EQ(placed(mesh_of({.fsdp = 2, .tensor = 2, .stage = 2}), {12, 64}, table),
            "P(('tensor', 'fsdp'),)");

  for (const std::int64_t n : {3, 6}) {
    SCOPED_TRACE(n);
    const Mesh fsdp = mesh_of({.fsdp = n}), tensor = mesh_of({.tensor = n});
    EXPECT_EQ(placed(fsdp, {256, 64}, table), "P()");
    EXPECT_EQ(placed(fsdp, {256, 18}, table), "P(None, 'fsdp')");
    EXPECT_EQ(placed(fsdp, {64, 4, 18}, {"embed", "heads", "head_dim"}), "P(None, None, 'fsdp')");
    EXPECT_EQ(placed(fsdp, {5, 18, 7}, {"embed", "heads", "head_dim"}), "P(None, 'fsdp')");
    EXPECT_EQ(placed(tensor, {256, 64}, {"mlp", "embed"}), "P()");
    EXPECT_EQ(placed(tensor, {18, 5}, {"mlp", "embed"}), "P('tensor',)");
  }
  EXPECT_EQ(placed(mesh_of({.fsdp = 2, .tensor = 3}), {256, 64}, {"mlp", "embed"}), "P('fsdp',)");
}

TEST(Layout, UndeclaredIsSplitOnItsLargestDimension) {
  const Mesh mesh = mesh_of({.fsdp = 3, .tensor = 2});
  EXPECT_EQ(placed(mesh, {6, 9}, {"", ""}), "P(None, 'fsdp')");
  EXPECT_EQ(placed(mesh, {9, 9}, {"", ""}), "P('fsdp',)");
  EXPECT_EQ(placed(mesh, {6, 100}, {"", ""}), "P('fsdp',)");
  EXPECT_EQ(placed(mesh, {7, 100}, {"", ""}), "P()");
  EXPECT_EQ(placed(mesh, {6, 9}, {"", ""}, {.min_shard = 55}), "P()");
  EXPECT_EQ(placed(mesh_of({.tensor = 2}), {6, 8}, {"", ""}), "P()");
}

TEST(Layout, HeadsOfKeysAndValues) {
  const auto kv = [](std::int64_t tensor, std::int64_t heads, std::int64_t kv_heads) {
    const Mesh mesh = mesh_for_heads(mesh_of({.fsdp = 2, .tensor = tensor}), heads, kv_heads);
    EXPECT_EQ(mesh.devices(), 2 * tensor);
    return placed(mesh, {64, heads, 16}, {"embed", "heads", "head_dim"}) + " " +
           placed(mesh, {64, kv_heads, 16}, {"embed", "kv", "head_dim"});
  };
  EXPECT_EQ(kv(4, 4, 4), "P('fsdp', 'tensor') P('fsdp', 'tensor')");
  EXPECT_EQ(kv(4, 8, 4), "P('fsdp', 'tensor') P('fsdp', 'tensor')");
  EXPECT_EQ(kv(4, 4, 2), "P('fsdp', 'tensor') P('fsdp', 'tensor:(1)2')");
  EXPECT_EQ(kv(16, 128, 8), "P('fsdp', 'tensor') P('fsdp', 'tensor:(1)8')");
  EXPECT_EQ(kv(8, 64, 8), "P('fsdp', 'tensor') P('fsdp', 'tensor')");
  EXPECT_EQ(kv(8, 32, 4), "P('fsdp', 'tensor') P('fsdp', 'tensor:(1)4')");
  EXPECT_EQ(kv(6, 18, 3), "P('fsdp', 'tensor') P('fsdp', 'tensor:(1)3')");
  EXPECT_EQ(kv(3, 9, 9), "P('fsdp', 'tensor') P('fsdp', 'tensor')");
  EXPECT_EQ(kv(4, 4, 1), "P('fsdp', 'tensor') P('fsdp',)");
  EXPECT_EQ(kv(1, 4, 1), "P('fsdp',) P('fsdp',)");

  const Mesh half = mesh_for_heads(mesh_of({.fsdp = 2, .tensor = 4}, 2), 4, 2);
  EXPECT_EQ(pinned(half, {16, 32, 4, 16},
                   {"activation_batch", "activation_length", "activation_heads", ""}),
            "[{data,fsdp},-,{tensor.0,tensor.1},-]");
  EXPECT_EQ(
      pinned(half, {16, 32, 2, 16}, {"activation_batch", "activation_length", "activation_kv", ""}),
      "[{data,fsdp},-,{tensor.0},-]");
  // Widths are split over the whole axis all the same.
  EXPECT_EQ(placed(half, {64, 256}, {"embed", "mlp"}), "P('fsdp', 'tensor')");
  // A bias has no other dimension that could take fsdp.
  EXPECT_EQ(placed(half, {2, 5}, {"kv", "head_dim"}), "P('tensor:(1)2',)");
  EXPECT_EQ(placed(mesh_of({.fsdp = 2, .tensor = 2}), {4, 5}, {"kv", "head_dim"}),
            "P(('tensor', 'fsdp'),)");
}

TEST(Layout, SizesThatDoNotFitTheHeadsAreRefused) {
  const auto message = [](std::int64_t tensor, std::int64_t heads, std::int64_t kv_heads) {
    return refusal([&] { mesh_for_heads(mesh_of({.tensor = tensor}), heads, kv_heads); });
  };
  const std::string hint =
      " | tensor divides the number of heads, and divides that of keys and values or is a multiple "
      "of it";
  EXPECT_EQ(message(4, 12, 6),
            "3: mesh tensor = 4 cannot split 12 heads with 6 heads of keys and values; tensor may "
            "be 1, 2, 3, 6, 12" +
                hint);
  EXPECT_EQ(message(16, 24, 8),
            "3: mesh tensor = 16 cannot split 24 heads with 8 heads of keys and values; tensor may "
            "be 1, 2, 4, 8, 24" +
                hint);
  EXPECT_EQ(message(3, 4, 4),
            "3: mesh tensor = 3 cannot split 4 heads with 4 heads of keys and values; tensor may "
            "be 1, 2, 4" +
                hint);
  for (const std::int64_t t : {1, 2, 3, 6, 12}) EXPECT_EQ(message(t, 12, 6), "no error");
}

TEST(Layout, Activations) {
  const AxisNames rows = {"activation_batch", "activation_length", ""};
  const AxisNames wide = {"activation_batch", "activation_length", "activation_mlp"};
  const Mesh mesh = mesh_of({.fsdp = 2, .expert = 3, .tensor = 2, .sequence = 2}, 2);
  EXPECT_EQ(pinned(mesh, {12, 32, 64}, rows), "[{data,expert,fsdp},{sequence},-]");
  EXPECT_EQ(pinned(mesh, {12, 32, 64}, wide), "[{data,expert,fsdp},{sequence},{tensor}]");
  EXPECT_EQ(pinned(mesh_of({}), {3, 5, 7}, wide), "[-,-,-]");
  EXPECT_EQ(pinned(mesh_of({.tensor = 2}), {3, 5, 6}, {"", "", "activation_vocab"}),
            "[-,-,{tensor}]");
}

TEST(Layout, WhatDoesNotDivideIsDroppedAndReported) {
  const Mesh mesh = mesh_of({.fsdp = 3, .tensor = 4}, 2);
  std::vector<DroppedPin> dropped;
  const DimAtoms dims =
      pin_dims(mesh, Layout(), {9, 32, 18},
               {"activation_batch", "activation_length", "activation_mlp"}, &dropped);
  EXPECT_EQ(to_string(mesh, {dims, 0}), "[-,-,-]");
  ASSERT_EQ(dropped.size(), 2U);
  EXPECT_EQ(to_string(mesh, dropped[0]),
            "activation_batch of size 9 stays whole: data (2) x fsdp (3) does not divide it");
  EXPECT_EQ(to_string(mesh, dropped[1]),
            "activation_mlp of size 18 stays whole: tensor (4) does not divide it");

  // Not reported: what no rule asks for, what a fallback takes, kv heads that are whole by design.
  dropped.clear();
  const Layout fallback = {.rules = {{"activation_mlp", {"tensor"}}, {"activation_mlp", {"fsdp"}}}};
  EXPECT_EQ(pin_dims(mesh, fallback, {9, 18}, {"", "activation_mlp"}, &dropped),
            (DimAtoms{{}, {1}}));
  EXPECT_EQ(pin_dims(mesh, Layout(), {9, 1}, {"", "activation_kv"}, &dropped), (DimAtoms{{}, {}}));
  EXPECT_TRUE(dropped.empty());
}

TEST(Layout, RulesOfOnesOwn) {
  const Mesh mesh = mesh_of({.fsdp = 2, .tensor = 2});
  const Layout width = {.rules = {{"embed", {"tensor", "fsdp"}}, {"mlp", {}}}, .min_shard = 1};
  EXPECT_EQ(placed(mesh, {256, 64}, {"vocab", "embed"}, width), "P(None, ('tensor', 'fsdp'))");
  EXPECT_EQ(placed(mesh, {64, 256}, {"embed", "mlp"}, width), "P(('tensor', 'fsdp'),)");
  EXPECT_EQ(placed(mesh, {256}, {"mlp"}, width), "P()");
  EXPECT_EQ(placed(mesh, {256}, {"vocab"}, width), "P()");  // the default table is gone
  // Activations keep their default rules, and parameters keep theirs.
  EXPECT_EQ(pinned(mesh, {4, 8}, {"activation_batch", "activation_mlp"}, width),
            "[{fsdp},{tensor}]");
  const Layout narrow = {.rules = {{"activation_length", {"tensor"}}}, .min_shard = 1};
  EXPECT_EQ(pinned(mesh, {4, 8}, {"activation_batch", "activation_length"}, narrow),
            "[-,{tensor}]");
  EXPECT_EQ(placed(mesh, {64, 256}, {"embed", "mlp"}, narrow), "P('fsdp', 'tensor')");
}

TEST(Layout, RulesThatCannotWorkAreRefused) {
  const auto message = [](const LayoutRule& rule) {
    return refusal([&] { check_layout(mesh_of({}), {.rules = {rule}}, {}); });
  };
  EXPECT_EQ(message({"embed", {"data"}}),
            "3: layout.rules: rule 'embed: data' puts parameters on data, which holds a copy of "
            "each on every device | fsdp splits parameters and batch rows alike");
  EXPECT_EQ(message({"mlp", {"tensor", "data"}}).substr(0, 42),
            "3: layout.rules: rule 'mlp: tensor+data' p");
  EXPECT_EQ(message({"embedd", {"fsdp"}}),
            "2: layout.rules: 'embedd' is no logical name, the nearest is 'embed'");
  EXPECT_EQ(message({"activation_head", {"tensor"}}),
            "2: layout.rules: 'activation_head' is no logical name, the nearest is "
            "'activation_heads'");
  EXPECT_EQ(message({"mlp", {"tensors"}}),
            "2: layout.rules: 'tensors' is no mesh axis, the nearest is 'tensor'; there are data, "
            "expert, fsdp, tensor, sequence, stage");
  EXPECT_EQ(message({"mlp", {"fsdp", "tensor", "fsdp"}}),
            "2: layout.rules: rule 'mlp: fsdp+tensor+fsdp' names fsdp twice");
  EXPECT_EQ(message({"layers", {"fsdp"}}),
            "2: layout.rules: rule 'layers: fsdp', but layers can be split over stage only");
  EXPECT_EQ(message({"activation_batch", {"fsdp"}}),
            "2: layout.rules: rule 'activation_batch: fsdp', but rows of a batch are always split "
            "over data+expert+fsdp");
  EXPECT_EQ(message({"positions", {"fsdp"}}), "no error");
  EXPECT_EQ(message({"mlp", {}}), "no error");
  check_rules(default_rules());
}

// The notebook's model.
std::vector<LayoutParameter> notebook_parameters() {
  return {{"embed_tokens/embedding", {256, 64}, {"vocab", "embed"}},
          {"layers/attention_norm/scale", {64}, {"embed"}, 2},
          {"layers/attention/q_proj/kernel", {64, 4, 16}, {"embed", "heads", "head_dim"}, 2},
          {"layers/attention/k_proj/kernel", {64, 4, 16}, {"embed", "kv", "head_dim"}, 2},
          {"layers/attention/v_proj/kernel", {64, 4, 16}, {"embed", "kv", "head_dim"}, 2},
          {"layers/attention/o_proj/kernel", {64, 64}, {"attention", "embed"}, 2},
          {"layers/attention/q_norm/scale", {16}, {"head_dim"}, 2},
          {"layers/attention/k_norm/scale", {16}, {"head_dim"}, 2},
          {"layers/mlp_norm/scale", {64}, {"embed"}, 2},
          {"layers/mlp/gate_proj/kernel", {64, 256}, {"embed", "mlp"}, 2},
          {"layers/mlp/up_proj/kernel", {64, 256}, {"embed", "mlp"}, 2},
          {"layers/mlp/down_proj/kernel", {256, 64}, {"mlp", "embed"}, 2},
          {"final_norm/scale", {64}, {"embed"}}};
}

TEST(Layout, TooMuchThatStaysWholeIsRefused) {
  const auto message = [](const Mesh& mesh, const Layout& layout) {
    return refusal([&] { check_layout(mesh, layout, notebook_parameters()); });
  };
  const std::string six = message(mesh_of({.fsdp = 6}), kSplitAll);
  EXPECT_EQ(
      six,
      "3: layout leaves 147840 of 147840 elements (100.0 %) whole on every device of mesh "
      "{'data': 1, 'expert': 1, 'fsdp': 6, 'tensor': 1, 'sequence': 1, 'stage': 1}, "
      "layout.tolerance = 0.02 allows 2 %; the largest of 13: "
      "layers/mlp/gate_proj/kernel (2 x (64, 256)), layers/mlp/up_proj/kernel (2 x (64, "
      "256)), layers/mlp/down_proj/kernel (2 x (256, 64)), embed_tokens/embedding (256, 64), "
      "layers/attention/q_proj/kernel (2 x (64, 4, 16)) | choose axis sizes that divide these "
      "dimensions, add a rule for their names, or accept it with layout.tolerance = 1");
  EXPECT_EQ(message(mesh_of({.fsdp = 6}), {.min_shard = 1, .tolerance = 1}), "no error");
  EXPECT_EQ(message(mesh_of({.fsdp = 6}), {.min_shard = 1, .tolerance = 0.999}).substr(0, 2), "3:");
  // Only parameters of at least min_shard count, a layer for itself; here there are none.
  EXPECT_EQ(message(mesh_of({.fsdp = 6}), Layout()), "no error");
  EXPECT_EQ(message(mesh_of({.fsdp = 6}), {.min_shard = 16384}).substr(0, 64),
            "3: layout leaves 114688 of 114688 elements (100.0 %) whole on ev");
  // No axis that splits parameters.
  EXPECT_EQ(message(mesh_of({.expert = 3}, 2), kSplitAll), "no error");
  EXPECT_EQ(message(mesh_of({.sequence = 5}), kSplitAll), "no error");
  // Norm scales alone stay whole: 384 of 147840.
  const Mesh mixed = mesh_of({.fsdp = 3, .tensor = 2});
  EXPECT_EQ(message(mixed, kSplitAll), "no error");
  EXPECT_EQ(message(mixed, {.min_shard = 1, .tolerance = 0.002}).substr(0, 47),
            "3: layout leaves 384 of 147840 elements (0.3 %)");
}

// An expert axis counts for models with experts, sequence where a rule gives it parameters.
TEST(Layout, AxesThatCountDependOnModelAndRules) {
  const std::vector<LayoutParameter> experts = {{"up", {5, 8}, {"exp", "embed"}}};
  const Mesh three = mesh_of({.expert = 3});
  EXPECT_EQ(refusal([&] { check_layout(three, kSplitAll, experts); }).substr(0, 40),
            "3: layout leaves 40 of 40 elements (100.");
  const Layout by_sequence = {.rules = {{"embed", {"sequence"}}}, .min_shard = 1};
  EXPECT_EQ(refusal([&] { check_layout(mesh_of({.sequence = 2}), by_sequence, experts); }),
            "no error");
  EXPECT_EQ(
      refusal([&] { check_layout(mesh_of({.sequence = 3}), by_sequence, experts); }).substr(0, 40),
      "3: layout leaves 40 of 40 elements (100.");
}

TEST(Layout, EveryNameOfTheModelsHasAMeaning) {
  for (const char* name :
       {names::kVocab, names::kEmbed, names::kHeads, names::kKv, names::kHeadDim, names::kAttention,
        names::kMlp, names::kPositions, names::kLayers, names::kBatch, names::kLength,
        names::kActivationHeads, names::kActivationKv, names::kActivationMlp}) {
    const bool ruled =
        std::ranges::find(default_rules(), name, &LayoutRule::name) != default_rules().end();
    EXPECT_TRUE(ruled || name == std::string(names::kPositions)) << name;
  }
}

}  // namespace
}  // namespace dew
