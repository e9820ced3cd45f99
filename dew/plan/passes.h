// The stages of make_plan: lower, then decide what shares memory, then allocate.
#pragma once

#include <vector>

#include "dew/plan/plan.h"

namespace dew {

// What the stages know of a buffer beyond the plan.
struct BufferScope {
  int loop = -1;  // the loop whose iterations each write it anew; -1: lives outside of loops
  // Read before it is written in an iteration: loop-carried, or stacked over iterations.
  bool carried = false;
};

struct Draft {
  Plan plan;
  std::vector<BufferScope> scopes;  // of plan.buffers
};

// Program to steps over buffers; every value has its own buffer, results that must arrive somewhere
// are copied there.
Draft lower(const Program& program, const MeshPart& part, Replicas replicas);

// Turns a product followed by an addition in place into a product that adds (lower's form: dot,
// then a group of one add). Lets a step write its result straight to where it is copied next, and
// over an operand that is read there for the last time. `replaces` as in make_plan.
void share_buffers(Draft& draft, std::span<const int> replaces);

// Lifetimes and offsets of the arena.
void allocate(Draft& draft);

// True if the step may write output `output` over input `input`, both being the same view.
bool works_in_place(const Step& step, std::size_t input, std::size_t output);

}  // namespace dew
