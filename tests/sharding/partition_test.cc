// One training step on many meshes, all devices in lockstep, against the same step on one device.
#include <gtest/gtest.h>

#include "dew/partition/lockstep_test_support.h"
#include "tests/effort.h"
#include "tests/sharding/placed_program.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

class PartitionedStep {
 public:
  explicit PartitionedStep(const Case& c)
      : objective_(CausalTransformer(c.config), {.seq_len = kColumns, .z_loss = 0.02}),
        module_(sharding_test::optimized(
            training_module(objective_, optimizer_, {c.micro_steps, c.rows, kColumns}, c.compute))),
        before_(start(objective_, optimizer_, c)),
        after_(before_) {
    plain::run_list(module_, "train", after_);
    plain::run_list(module_, "eval", after_);
  }

  void expect_same(const Mesh& mesh, std::mt19937* random = nullptr) {
    const Placement placement = training_placement(module_, objective_, optimizer_, mesh, random);
    const Partitioned parts = partition(module_, placement);
    lockstep::Machine machine(parts, module_, mesh);
    for (const auto& [name, array] : before_) machine.set(name, array);
    machine.run("train");
    machine.run("eval");
    expect_sent(machine, parts, mesh);
    for (const auto& [name, array] : after_) {
      double scale = 1e-3;
      for (const double v : array.data) scale = std::max(scale, std::abs(v));
      EXPECT_LT(plain::worst_difference(machine.get(name).data, array.data) / scale, 1e-9)
          << name << " on " << to_string(mesh);
    }
  }

 private:
  // What devices sent while they ran is what partition() says they would.
  static void expect_sent(const lockstep::Machine& machine, const Partitioned& parts,
                          const Mesh& mesh) {
    std::map<std::string, int> calls;
    for (const CallList& list : parts.module.lists) {
      for (const Call& call : list.calls)
        ++calls[parts.module.programs[static_cast<std::size_t>(call.program)].name()];
    }
    lockstep::Traffic said;
    for (const CollectiveRecord& c : parts.collectives) {
      std::string kind = c.what;
      if (kind != "permute")
        kind += " " + lockstep::axes(mesh, Dims(c.atoms.begin(), c.atoms.end()));
      said[c.program + "/" + c.region][kind] += c.bytes * calls[c.program];
    }
    for (const auto& [region, kinds] : said) {
      for (const auto& [kind, bytes] : kinds) {
        const auto found = machine.traffic().find(region);
        ASSERT_NE(found, machine.traffic().end()) << region;
        ASSERT_TRUE(found->second.contains(kind)) << region << " " << kind;
        EXPECT_NEAR(found->second.at(kind), bytes, 1e-6 * bytes) << region << " " << kind;
      }
      EXPECT_EQ(machine.traffic().at(region).size(), kinds.size()) << region;
    }
    EXPECT_EQ(machine.traffic().size(), said.size());
  }

  const Optimizer optimizer_ = {.clip_norm = 0.5, .ema_decay = 0.9};
  LMObjective objective_;
  Module module_;
  Arrays before_, after_;
};

TEST(Partition, LlamaLikeStep) {
  PartitionedStep step({llama_like()});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
  // Two kv heads on four tensor devices.
  step.expect_same(split_axis(build_mesh({.tensor = 4}, 4), kTensor, 2));
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
}

TEST(Partition, GptLikeStepInMicroSteps) {
  PartitionedStep step({gpt_like(), 12, 3});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
}

TEST(Partition, Bf16Step) {
  PartitionedStep step({llama_like(), 12, 2, DType::bf16});
  step.expect_same(build_mesh({.fsdp = 2, .tensor = 2}, 8));
}

// Of so few bytes one gather is cheaper than a permutation and an exchange.
TEST(Partition, WaysThatTakeMoreMemoryAreReported) {
  const Mesh mesh = build_mesh({.fsdp = 2, .tensor = 3}, 6);
  const int fsdp = mesh.atoms_of(kFsdp)[0], tensor = mesh.atoms_of(kTensor)[0];
  PlacedProgram placed;
  const Type type{DType::f32, {6, 12}};
  const Value x = placed.input(type, Array(type.shape), {{{fsdp}, {tensor}}, 0});
  const Value moved = exp(x);
  placed.pin(moved, {{tensor}, {fsdp}});
  placed.program.output("y", moved);
  const Judges judges(placed, mesh);
  ASSERT_EQ(judges.parts().detours.size(), 1u);
  EXPECT_EQ(to_string(mesh, judges.parts().detours[0]),
            "placed %1 is brought from [{fsdp,tensor},-] to [{tensor},{fsdp}] by way of [-,-]: "
            "a device holds 288 bytes for a while, and 48 before and after");
  EXPECT_EQ(judges.lockstep()[0].data, std::vector<double>(72, 1.0));
}

TEST(Partition, RandomLayouts) {
  const char* given = std::getenv("DEW_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : 1;
  std::mt19937 random(seed);
  PartitionedStep llama({llama_like()}), gpt({gpt_like(), 12, 2});
  for (int i = 0; i < effort(12); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", layout " + std::to_string(i));
    const std::vector<Mesh> all = meshes();
    PartitionedStep& step = i % 2 == 0 ? llama : gpt;
    step.expect_same(all[3 + random() % (all.size() - 3)], &random);
  }
}

}  // namespace
}  // namespace dew
