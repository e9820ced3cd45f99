// The collectives of a training step, counted in the programs of one device: kind, axes and bytes
// in each region. Expected values follow from sizes and specs alone (see docs/sharding.md).
#include <gtest/gtest.h>

#include "dew/base/format.h"
#include "tests/sharding/placements.h"

namespace dew {
namespace {

using models::CausalTransformer;
using sharding_test::training_placement;

struct Model {
  models::TransformerConfig config;
  std::int64_t rows, columns;
  DType compute;
};

Model notebook(std::int64_t kv_heads = 4) {
  return {{.vocab_size = 256,
           .emb_features = 64,
           .num_layers = 2,
           .num_heads = 4,
           .num_kv_heads = kv_heads,
           .max_seq_len = 32},
          16,
          32,
          DType::f32};
}

// "fsdp+tensor"
std::string axes(const Mesh& mesh, const std::vector<int>& atoms) {
  std::string text;
  for (const int a : atoms)
    text += (text.empty() ? "" : "+") + mesh.atoms[static_cast<std::size_t>(a)].name;
  return text;
}

std::string summary(const Model& m, const Mesh& mesh) {
  const LMObjective objective(CausalTransformer(m.config), {.seq_len = m.columns});
  const Optimizer optimizer = {.clip_norm = 1.0};
  const Module module = sharding_test::optimized(
      training_module(objective, optimizer, {1, m.rows, m.columns}, m.compute));
  const Partitioned parts =
      partition(module, training_placement(module, objective, optimizer, mesh));
  EXPECT_TRUE(parts.detours.empty());
  std::map<std::string, std::map<std::string, std::pair<int, double>>> regions;
  for (const CollectiveRecord& c : parts.collectives) {
    if (c.program.starts_with("eval")) continue;
    auto& [count, bytes] = regions[c.program + "/" + c.region][c.what + " " + axes(mesh, c.atoms)];
    ++count;
    bytes += c.bytes;
  }
  std::string text;
  for (const auto& [region, kinds] : regions) {
    text += region + ":";
    for (const auto& [kind, sum] : kinds)
      text += format(" {} {} {:.0f};", sum.first, kind, sum.second);
    text += "\n";
  }
  return text;
}

struct Golden {
  const char* what;
  Model model;
  Mesh mesh;
  const char* collectives;
};

// The 11 weights of a layer: q k v o gate up down, two norm scales, q-norm, k-norm; of the head:
// table and final norm. Bytes are those that a device sends in one step, all layers together.
std::vector<Golden> goldens() {
  const auto mesh = [](const MeshSpec& spec, std::int64_t devices) {
    return build_mesh(spec, devices);
  };
  return {
      {"one device", notebook(), mesh({}, 1), ""},
      {"data", notebook(), mesh({}, 8),
       "micro_first/top 2: 3 all_reduce data 21;\n"
       "update/top 0: 13 all_reduce data 1034880;\n"},
      {"fsdp", notebook(), mesh({.fsdp = 2}, 2),
       "micro_first/layers: 11 all_gather fsdp 262784;\n"
       "micro_first/layers_grad: 11 all_gather fsdp 262784; 11 reduce_scatter fsdp 262784;\n"
       "micro_first/top 0: 1 all_gather fsdp 32768;\n"
       "micro_first/top 1: 2 all_gather fsdp 32896; 1 reduce_scatter fsdp 128;\n"
       "micro_first/top 2: 3 all_reduce fsdp 12; 1 reduce_scatter fsdp 32768;\n"
       "update/top 0: 1 all_reduce fsdp 4;\n"},
      {"tensor", notebook(), mesh({.tensor = 2}, 2),
       "micro_first/layers: 2 all_reduce tensor 524288;\n"
       "micro_first/layers_grad: 2 all_reduce tensor 524288;\n"
       "micro_first/top 0: 1 all_reduce tensor 131072;\n"
       "micro_first/top 1: 4 all_reduce tensor 137216;\n"
       "update/top 0: 3 all_reduce tensor 260;\n"},
      {"more tensor devices than kv heads", notebook(2),
       split_axis(mesh({.tensor = 4}, 4), kTensor, 2),
       "micro_first/layers: 2 all_reduce tensor.0+tensor.1 786432;\n"
       "micro_first/layers_grad: 2 all_reduce tensor.0+tensor.1 786432; 2 all_reduce tensor.1 "
       "131072;\n"
       "micro_first/top 0: 1 all_reduce tensor.0+tensor.1 196608;\n"
       "micro_first/top 1: 4 all_reduce tensor.0+tensor.1 205824;\n"
       "update/top 0: 1 all_reduce tensor.0 128; 2 all_reduce tensor.0+tensor.1 198;\n"},
      {"fsdp and tensor", notebook(), mesh({.fsdp = 2, .tensor = 2}, 4),
       "micro_first/layers: 11 all_gather fsdp 131712; 2 all_reduce tensor 262144;\n"
       "micro_first/layers_grad: 11 all_gather fsdp 131712; 2 all_reduce tensor 262144; 11 "
       "reduce_scatter fsdp 131712;\n"
       "micro_first/top 0: 1 all_gather fsdp 16384; 1 all_reduce tensor 65536;\n"
       "micro_first/top 1: 2 all_gather fsdp 16512; 4 all_reduce tensor 68608; 1 reduce_scatter "
       "fsdp 128;\n"
       "micro_first/top 2: 3 all_reduce fsdp 12; 1 reduce_scatter fsdp 16384;\n"
       "update/top 0: 1 all_reduce fsdp+tensor 6; 2 all_reduce tensor 128;\n"},
      {"hybrid: scattered within fsdp, summed over data once a step", notebook(),
       mesh({.fsdp = 4}, 8),
       "micro_first/layers: 11 all_gather fsdp 394176;\n"
       "micro_first/layers_grad: 11 all_gather fsdp 394176; 11 reduce_scatter fsdp 394176;\n"
       "micro_first/top 0: 1 all_gather fsdp 49152;\n"
       "micro_first/top 1: 2 all_gather fsdp 49344; 1 reduce_scatter fsdp 192;\n"
       "micro_first/top 2: 3 all_reduce data+fsdp 21; 1 reduce_scatter fsdp 49152;\n"
       "update/top 0: 13 all_reduce data 147840; 1 all_reduce fsdp 6;\n"},
  };
}

TEST(Goldens, CollectivesOfAStep) {
  for (const Golden& g : goldens()) EXPECT_EQ(summary(g.model, g.mesh), g.collectives) << g.what;
}

}  // namespace
}  // namespace dew
