// A model that no machine of ours could hold: partitioned and planned, not run.
#include <gtest/gtest.h>

#include <chrono>

#include "dew/plan/plan.h"
#include "dew/train/placement.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

struct Planned {
  std::size_t nodes = 0, steps = 0;
  DeviceMemory memory;
  double seconds = 0;
};

// The shape of Llama 3.1 405B, 16 rows of 8,192 tokens a step.
Planned plan_405b(std::int64_t layers, const MeshSpec& spec, std::int64_t devices) {
  const models::CausalTransformer model({.vocab_size = 128256,
                                         .emb_features = 16384,
                                         .num_layers = layers,
                                         .num_heads = 128,
                                         .num_kv_heads = 8,
                                         .mlp_features = 53248,
                                         .max_seq_len = 8192,
                                         .remat = "save_list",
                                         .qk_norm = false,
                                         .tie_embeddings = false});
  const LMObjective objective(model, {.seq_len = 8192});
  const auto begin = std::chrono::steady_clock::now();
  const Arrangement arrangement = arrange(spec, devices, {}, model);
  Module module = sharding_test::optimized(training_module(
      objective, {.clip_norm = 1}, {1, arrangement.batch_shards(), 8192}, DType::bf16));
  const Partitioned parts =
      partition(module, place_module(module, objective.params(), arrangement));
  Planned out;
  Dims sizes;
  for (const MeshAtom& a : arrangement.mesh.atoms) sizes.push_back(a.size);
  for (std::size_t p = 0; p < parts.module.programs.size(); ++p) {
    const Program& program = parts.module.programs[p];
    out.nodes += program.nodes().size();
    out.steps += make_plan(program, replaced_inputs(parts.module, static_cast<int>(p)),
                           {.atom_sizes = sizes})
                     .steps.size();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  out.seconds = took.count();
  out.memory = device_memory(parts.module);
  return out;
}

TEST(Large, PlanningDoesNotDependOnDepthOrDevices) {
  const Planned deep = plan_405b(126, {.fsdp = 16, .tensor = 16}, 256);
  const Planned shallow = plan_405b(2, {.fsdp = 16, .tensor = 16}, 256);
  const Planned wide = plan_405b(126, {.fsdp = 128, .tensor = 16}, 16384);
  EXPECT_EQ(deep.nodes, shallow.nodes);
  EXPECT_EQ(deep.steps, shallow.steps);
  EXPECT_LT(wide.nodes, deep.nodes + 20);
  std::cout << "126 layers on 16 x 16: " << deep.nodes << " nodes, " << deep.steps
            << " steps, on a device " << static_cast<double>(deep.memory.registers) / 1e9
            << " GB of state and " << static_cast<double>(deep.memory.arena) / 1e9
            << " GB of arena, " << deep.seconds << " s; 2 layers " << shallow.seconds
            << " s; 8 x 128 x 16: " << wide.seconds << " s\n";
}

// fsdp = 8: an eighth of the state on each device, and gathered weights only while they are used.
TEST(Account, AnEighthOfTheStateAndOneLayersWeights) {
  const LMObjective objective(models::CausalTransformer({.vocab_size = 256,
                                                         .emb_features = 64,
                                                         .num_layers = 12,
                                                         .num_heads = 4,
                                                         .max_seq_len = 32}),
                              {.seq_len = 32});
  const auto memory = [&](const MeshSpec& spec, std::int64_t devices, std::int64_t& state) {
    const Arrangement arrangement = arrange(spec, devices, {.min_shard = 1}, objective.model());
    const Module module = sharding_test::optimized(training_module(
        objective, {.clip_norm = 1}, {1, 2 * arrangement.batch_shards(), 32}, DType::f32));
    const Partitioned parts =
        partition(module, place_module(module, objective.params(), arrangement));
    for (const StateArray& array : state_arrays(objective.params(), {})) {
      const int reg = parts.module.register_index(array.name);
      state += parts.module.registers[static_cast<std::size_t>(reg)].type.bytes();
    }
    return device_memory(parts.module);
  };
  std::int64_t whole_state = 0, sharded_state = 0;
  const DeviceMemory one = memory({}, 1, whole_state);
  const DeviceMemory sharded = memory({.fsdp = 8}, 8, sharded_state);
  EXPECT_EQ(sharded_state * 8, whole_state);
  std::int64_t layer = 0, others = 0;
  for (const ParamSpec& p : objective.params()) {
    if (p.stack.empty()) {
      others += p.type.bytes();
    } else {
      layer += p.layer_elements() * 4;
    }
  }
  // Both have two rows a device. What is more is the weights of a layer, or the table and its
  // gradient: not those of twelve layers.
  EXPECT_LE(sharded.arena, one.arena + layer + 2 * others);
  EXPECT_GT(12 * layer, layer + 2 * others);
}

}  // namespace
}  // namespace dew
