// Plans of partitioned steps, all devices' parts in one memory: run with the references, they give
// what one device gives.
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/sharding/machines.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

class PlannedStep : public ReferenceStep {
 public:
  using ReferenceStep::ReferenceStep;

  void expect_same(const Mesh& mesh, std::mt19937* random = nullptr) {
    SCOPED_TRACE(to_string(mesh));
    const Partitioned parts = partition(module(), placement_on(mesh, random));
    PlannedMachine machine(parts, module(), mesh);
    run_on(machine);
    for (const auto& [name, array] : after()) expect_close(name, machine.get(name), array, 1e-4);
  }
};

TEST(Plans, OfLlamaLikeSteps) {
  PlannedStep step({llama_like()});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
  step.expect_same(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
}

TEST(Plans, OfGptLikeSteps) {
  PlannedStep step({gpt_like(), 12, 2});
  for (const Mesh& mesh : sampled(meshes())) step.expect_same(mesh);
}

TEST(Plans, OfRandomLayouts) {
  std::mt19937 random(3);
  PlannedStep step({llama_like()});
  for (int i = 0; i < effort(6); ++i) {
    const std::vector<Mesh> all = meshes();
    step.expect_same(all[3 + random() % (all.size() - 3)], &random);
  }
}

}  // namespace
}  // namespace dew
