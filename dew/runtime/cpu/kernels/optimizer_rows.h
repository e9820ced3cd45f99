// Optimizer updates of arrays, for one instruction set.
#pragma once

#include <cstddef>

namespace dew::cpu {

struct Update {
  const float* state[3] = {};  // p and moments; ema: e
  const float* g = nullptr;    // gradient; ema: p
  float* out[3] = {};          // new state, may lie over the old
  std::size_t n = 0;
  float lr = 0, c1 = 0, c2 = 0, scale = 0;  // scalars of the step
  float b1 = 0, rest1 = 0, b2 = 0, rest2 = 0, epsilon = 0,
        weight_decay = 0;  // rest = 1 - b; sgd: b1 is the momentum
};

struct UpdateTable {
  using Routine = void (*)(const Update& u);
  Routine adamw, lion, sgd, ema;
};

const UpdateTable& update_table();

}  // namespace dew::cpu
