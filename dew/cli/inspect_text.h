// What `dew inspect` prints for people: aligned tables of arrays and of calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dew/checkpoint/reader.h"
#include "dew/hf/model.h"
#include "dew/runtime/backend.h"
#include "dew/sharding/spec.h"

namespace dew::cli {

// An array of a state, one layer of it.
struct ArrayLine {
  std::string name;  // "params/layers_3/mlp/up_proj/kernel"
  Dims shape;
  std::string dtype;
  std::vector<std::string> axes;
  std::int64_t bytes = 0;
  std::string digest = {};  // empty: not asked for
  // On a mesh of devices: where it lives, and what one of them holds.
  Spec placed = {};
  std::string spec = "P()";
  Dims local_shape = {};
  std::int64_t bytes_per_device = 0;

  std::int64_t elements() const { return element_count(shape); }
};

struct ArrayTotals {
  std::int64_t parameters = 0, bytes = 0;  // elements of params/; bytes of everything
};
// "params/" of "params/layers_3/mlp/up_proj/kernel".
std::string group_of(const std::string& name);

ArrayTotals totals_of(std::span<const ArrayLine> lines);

// Where a run is and what its checkpoint holds.
std::string checkpoint_text(const CheckpointReader& reader, std::span<const ArrayLine> lines);

// The same of a Hugging Face model.
std::string hugging_face_text(const hf::Model& model, std::span<const ArrayLine> lines);

// Groups (params/, opt/m/, ...) with their arrays. Unless `all`, neighbours that differ only in
// the layer's number are one line, and a group with the arrays of params/ is one line. `placed`:
// with spec and bytes a device.
std::string arrays_text(std::span<const ArrayLine> lines, bool all, bool placed);

// What one call of a list touches.
struct CallMemory {
  std::string list, program;
  std::int64_t inputs = 0, outputs = 0;  // bytes of registers that it reads and writes
  std::int64_t arena = 0;                // bytes between them
};
std::vector<CallMemory> calls_of(const Executable& executable);

std::string plan_text(const Executable& executable, std::span<const CallMemory> calls);

}  // namespace dew::cli
