// Where a run's registers live: its devices as a mesh, and what the layout says of each array.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dew/compile.h"
#include "dew/nn/transformer.h"
#include "dew/sharding/layout.h"

namespace dew {

// The devices of a run and how arrays are spread over them.
struct Arrangement {
  Mesh mesh = {};
  Layout layout = {};
  // See Placement::accumulate_full.
  bool accumulate_full = false;

  // Devices that hold different rows of a batch.
  std::int64_t batch_shards() const;
};

// The devices as the mesh that a model runs on. Throws ErrorCode::layout_refused if the mesh does
// not fit the devices, the model's heads do not divide, too many parameters would stay whole, or an
// axis is asked for that no op can be split over yet.
Arrangement arrange(const MeshSpec& mesh, std::int64_t devices, const Layout& layout,
                    const models::CausalTransformer& model);

// The batch shards whose rows a process of the backend's holds, in ascending order.
std::vector<std::int64_t> shards_of_process(const Arrangement& arrangement, Processes& processes);

// The placement of an array of state or of a step's batch, per layer of a stack.
Spec state_spec(const Arrangement& arrangement, const ParamSpec& param);

// Of a training or evaluation module (train/step.h). REQUIRES: the batch shards divide the rows of
// the step's arrays. What pins of the model stay whole for not dividing is appended to `dropped`.
Placement place_module(const Module& module, std::span<const ParamSpec> params,
                       const Arrangement& arrangement, std::vector<DroppedPin>* dropped = nullptr);

}  // namespace dew
