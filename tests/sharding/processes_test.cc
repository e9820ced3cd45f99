// Partitioned steps on several processes (threads that exchange), against the reference on one
// device.
#include <gtest/gtest.h>

#include <mutex>

#include "dew/ops/ops.h"
#include "dew/runtime/comm/threads_test_support.h"
#include "dew/sharding/process_grid.h"
#include "tests/effort.h"
#include "tests/sharding/machines.h"
#include "tests/sharding/step_cases.h"

namespace dew {
namespace {

using namespace sharding_test;

// An array that arrives part by part.
struct Gathered {
  std::vector<std::byte> bytes;
  std::map<Dims, std::pair<Box, int>> boxes;  // by start, with the number of processes that had it
  std::map<Dims, std::vector<std::byte>> parts;
};

class StepOnProcesses : public ReferenceStep {
 public:
  using ReferenceStep::ReferenceStep;

  void expect_same(const Mesh& mesh, int processes, double tolerance,
                   std::mt19937* random = nullptr) {
    SCOPED_TRACE(to_string(mesh) + " on " + std::to_string(processes));
    const Placement placement = placement_on(mesh, random);
    arrays_.clear();
    comm::run_processes(processes, [&](comm::Job& job) { run(job, placement); });
    for (const auto& [name, array] : after()) {
      const Type& type =
          module().registers[static_cast<std::size_t>(module().register_index(name))].type;
      const Gathered& found = arrays_[name];
      if (found.boxes.empty()) continue;
      std::vector<Box> boxes;
      for (const auto& [first, box] : found.boxes) boxes.push_back(box.first);
      if (type.elements() > 0) {
        EXPECT_EQ(tiling_problem(type.shape, boxes), "") << name;
      }
      expect_close(name, load(type, found.bytes.data()), array, tolerance);
    }
  }

 private:
  void run(comm::Job& job, const Placement& placement) {
    const std::unique_ptr<Backend> backend =
        cpu_backend(1 + job.rank() % 2, placement.mesh.devices(), &job);
    ExecutedMachine machine(module(), placement, *backend);
    run_on(machine);
    const std::lock_guard lock(mutex_);
    for (const auto& [name, array] : after()) collect(name, machine.shards(name));
  }

  // The same bits in every process that has them.
  void collect(const std::string& name, const std::vector<Shard>& shards) {
    const Type& type =
        module().registers[static_cast<std::size_t>(module().register_index(name))].type;
    Gathered& all = arrays_[name];
    all.bytes.resize(static_cast<std::size_t>(type.bytes()));
    for (const Shard& s : shards) {
      const Box box{s.start, s.extent};
      auto& [known, count] = all.boxes[s.start];
      const std::vector<std::byte> bytes(s.bytes.begin(), s.bytes.end());
      if (count++ > 0) {
        EXPECT_EQ(known, box) << name;
        EXPECT_EQ(all.parts[s.start], bytes) << name << to_string(box) << " differs";
      }
      known = box;
      all.parts[s.start] = bytes;
      EXPECT_LT(s.copy, s.copies);
      copy_part(box, byte_size(type.dtype), box, s.bytes, dew::whole(type.shape), all.bytes);
    }
  }

  std::mutex mutex_;
  std::map<std::string, Gathered> arrays_;
};

std::vector<int> process_counts(const Mesh& mesh) {
  std::vector<int> counts;
  for (int p = 2; p <= mesh.devices(); ++p) {
    if (mesh.devices() % p == 0) counts.push_back(p);
  }
  return sampled(counts);
}

TEST(Processes, LlamaLikeSteps) {
  StepOnProcesses step({llama_like()});
  std::vector<Mesh> all = meshes();
  all.push_back(split_axis(build_mesh({.fsdp = 2, .tensor = 4}, 8), kTensor, 2));
  for (const Mesh& mesh : all) {
    for (const int p : process_counts(mesh)) step.expect_same(mesh, p, 1e-4);
  }
}

TEST(Processes, GptLikeStepsInMicroSteps) {
  StepOnProcesses step({gpt_like(), 12, 3});
  for (const Mesh& mesh : sampled(meshes())) {
    for (const int p : process_counts(mesh)) step.expect_same(mesh, p, 1e-4);
  }
}

TEST(Processes, Bf16Steps) {
  StepOnProcesses step({llama_like(), 12, 2, DType::bf16});
  for (const Mesh& mesh : sampled(meshes())) {
    for (const int p : process_counts(mesh)) step.expect_same(mesh, p, 0.1);
  }
}

TEST(Processes, RandomLayouts) {
  std::mt19937 random(5);
  StepOnProcesses step({llama_like(), 12, 2});
  const std::vector<Mesh> all = meshes();
  for (int i = 0; i < effort(12); ++i) {
    const Mesh& mesh = all[3 + random() % (all.size() - 3)];
    const std::vector<int> counts = process_counts(mesh);
    step.expect_same(mesh, counts[random() % counts.size()], 1e-4, &random);
  }
}

}  // namespace
}  // namespace dew
