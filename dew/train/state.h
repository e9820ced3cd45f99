// What a user sees of a run's state: where it is, and its parameters by name.
//
//   const TrainState state = trainer.fit(data, {.steps = 20});
//   state.params.at("embed_tokens/embedding").sharding()   "P('fsdp',)"
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dew/checkpoint/manifest.h"
#include "dew/train/stepper.h"

namespace dew {

// Views of arrays on the devices: valid as long as the trainer, and they show what it makes of
// them.
class ArrayViews {
 public:
  ArrayViews() = default;
  explicit ArrayViews(std::vector<Stepper::Array> arrays) : arrays_(std::move(arrays)) {}

  // Throws ErrorCode::usage, with the nearest name, if there is none.
  const Stepper::Array& at(std::string_view name) const;

  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }
  std::size_t size() const { return arrays_.size(); }

 private:
  std::vector<Stepper::Array> arrays_;
};

struct TrainState {
  Clocks clocks;
  ArrayViews params;  // a layer at a time: "layers_1/mlp/up_proj/kernel"
};

}  // namespace dew
