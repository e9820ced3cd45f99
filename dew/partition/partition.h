// From programs over whole arrays to the program of one device, with explicit collectives.
//
// One forward walk: every op is placed by a vote of the mesh's atoms (sharding/vote.h), operands
// are brought to where it is computed, and sums over devices stay partial until something needs
// them whole. The bodies of scans take part.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dew/ir/module.h"
#include "dew/partition/reshard.h"
#include "dew/sharding/spec.h"

namespace dew {

// What is known of placement before the walk.
struct Placement {
  Mesh mesh;
  // Of each register of the module, where it is known: state by its layout, what the host writes.
  // The others are placed as the program that writes them leaves them.
  std::vector<std::optional<Spec>> registers = {};
  // Registers whose first dimension is a stack's, or the micro steps'.
  std::vector<bool> stacked = {};
  // The dimensions that a pin's logical names ask for.
  std::function<DimAtoms(const Dims& shape, const AxisNames& names)> pin = {};
  // Sums of parameter gradients over devices are made once a step, after the last micro step, and
  // not within the loops: fewer bytes sent, and an accumulator of the whole size on every device.
  bool accumulate_full = false;
};

// A collective as the programs hold it.
struct CollectiveRecord {
  std::string program, region;  // region: the body's name, or "top" and the number of loops before
  std::string what;             // "all_gather"
  std::vector<int> atoms;
  double bytes = 0;  // that a device sends in all iterations of the region's loop
  int value = -1;    // number in the program over whole arrays
};

struct Partitioned {
  Module module;                // of one device; registers have local shapes
  std::vector<Spec> registers;  // of each register, partial sums included
  std::vector<bool> stacked;
  std::vector<CollectiveRecord> collectives;
  std::string annotated;  // the given programs with the spec of every value: made, and kept where
                          // that differs
};

// Throws ErrorCode::layout_refused for what cannot be placed. REQUIRES: the specs given divide.
Partitioned partition(const Module& module, const Placement& placement);

}  // namespace dew
