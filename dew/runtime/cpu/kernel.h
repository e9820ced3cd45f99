// A kernel: one step of a plan, prepared once (primitives made, pieces cut), run many times.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dew/plan/plan.h"

namespace dew::cpu {

// Addresses of a step's inputs, then its outputs, in this iteration, and its scratch memory.
struct KernelArgs {
  std::byte* const* operands = nullptr;
  std::byte* shared = nullptr;  // `shared_scratch` bytes, one for all workers, 64-byte aligned
  std::byte* worker = nullptr;  // `worker_scratch` bytes of the calling worker, 64-byte aligned
};

// Work is cut into pieces whose number and sizes follow from shapes and dtypes alone, never from
// the number of workers: so bits do not depend on it. Pieces of one phase are independent; phases
// are separated by a barrier.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Called by any worker, once for every piece. Allocates nothing, locks nothing, throws nothing.
  virtual void run(const KernelArgs& args, int phase, int piece) const noexcept = 0;

  const std::vector<int>& phases() const { return phases_; }  // pieces of each phase
  std::size_t shared_scratch() const { return shared_scratch_; }
  std::size_t worker_scratch() const { return worker_scratch_; }
  const std::string& implementation() const {
    return implementation_;
  }  // "onednn brgemm", "highway"

 protected:
  std::vector<int> phases_{1};
  std::size_t shared_scratch_ = 0, worker_scratch_ = 0;
  std::string implementation_;
};

// Makes the kernel of a step; null if this implementation does not take it, with the reason in
// `why_not`.
using MakeKernel = std::unique_ptr<Kernel> (*)(const Step& step, std::string& why_not);

struct KernelRow {
  const OpDef* op;   // null: fused groups, copies
  const char* name;  // of the implementation
  MakeKernel make;
};

// All implementations, in order of preference (kernel_table.cc).
std::span<const KernelRow> kernel_table();

// The first implementation that takes the step; throws an internal Error naming the op and every
// refusal otherwise.
std::unique_ptr<Kernel> make_kernel(const Step& step);

}  // namespace dew::cpu
