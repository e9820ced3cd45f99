// A module on this process's cores: plans, kernels, memory, and the walk over them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dew/runtime/backend.h"
#include "dew/runtime/cpu/exchanges.h"
#include "dew/runtime/cpu/kernel.h"
#include "dew/runtime/cpu/memory.h"
#include "dew/runtime/cpu/pool.h"

namespace dew::cpu {

// One program: its plan and a kernel for each step; none for exchanges between processes.
struct Compiled {
  Plan plan;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<int> exchanges;         // of each step its number among the executable's, or -1
  std::vector<std::byte*> constants;  // by buffer, counts too; null for other buffers
};

// A step with the addresses of its operands in iteration 0, and the bytes that an iteration adds.
struct BoundStep {
  const Kernel* kernel = nullptr;  // null: an exchange
  int exchange = -1;
  bool starts = false;  // the exchange; or waits for it
  int number = 0;       // among the steps of all programs
  std::vector<std::byte*> base;
  std::vector<std::int64_t> stride;
  Dims outer;                       // sizes of the positions it runs at
  std::vector<std::int64_t> moves;  // bytes that a position adds: [outer][operand]
  int positions = 1;
};

struct BoundCall {
  const Plan* plan = nullptr;
  std::vector<BoundStep> steps;
};

class CpuExecutable : public Executable {
 public:
  // Throws if a program cannot be planned, if plans need more memory than there is (ErrorCode::
  // usage, before anything else is made) or a step has no kernel. `job` outlives this; null: one
  // process.
  CpuExecutable(Module module, Placed placed, std::shared_ptr<Pool> pool, comm::Job* job = nullptr);

  void run(int list) override;
  std::vector<Shard> shards(int reg) override;
  const Module& module() const override { return module_; }
  std::int64_t planned_bytes() const override { return static_cast<std::int64_t>(memory_.size()); }
  std::int64_t arena_bytes(int program) const override {
    return compiled_[static_cast<std::size_t>(program)].plan.arena_bytes;
  }
  std::string describe() const override;
  void start_trace(int list, int runs) override;
  Trace take_trace() override;

  const std::vector<Compiled>& compiled() const { return compiled_; }

 private:
  struct Worker;
  class Span;

  void make_plans();
  void expect_room() const;
  void make_kernels();
  void lay_out_memory();
  void make_constants(Compiled& compiled);
  void expect_equal_replicas() const;
  std::byte* address(const Compiled& compiled, const Call& call, const View& view) const;
  BoundCall bind(const Call& call) const;
  void walk(int list, int worker) const;
  void run_step(const BoundStep& step, std::int64_t iteration, Worker& worker) const;
  void run_exchange(const BoundStep& step, std::int64_t iteration, Worker& worker) const;
  Shard shard_at(const Spec& spec, const Dims& inside, const Dims& position,
                 const Dims& local) const;
  static void address_position(const BoundStep& step, std::int64_t iteration, int position,
                               Worker& worker);
  void run_phase(const BoundStep& step, std::int64_t iteration, int phase, int first_position,
                 int positions, Worker& worker) const;
  ValueInfo register_info(std::size_t reg) const;
  std::size_t most_spans(int list) const;

  Module module_;
  Placed placed_;
  MeshPart part_;
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Exchanges> exchanges_;  // null: one process
  std::vector<Compiled> compiled_;
  std::vector<std::vector<BoundCall>> lists_;
  Memory memory_;  // registers, constants, arena, shared scratch, scratch of each worker
  std::vector<std::size_t> register_offset_;
  std::size_t constants_offset_ = 0, arena_offset_ = 0, shared_offset_ = 0, worker_offset_ = 0,
              worker_bytes_ = 0;
  std::size_t max_operands_ = 0;
  mutable std::vector<std::vector<std::byte*>> operand_space_;  // one for each worker
  std::vector<std::function<void(int)>> bodies_;                // one for each list
  // While a list is traced: its number, the runs to come, and what they fill.
  int traced_list_ = -1, traced_runs_ = 0;
  mutable Trace trace_;
};

}  // namespace dew::cpu
