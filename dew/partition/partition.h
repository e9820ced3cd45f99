// From programs over whole arrays to the program of one device, with explicit collectives.
//
// One forward walk: every op is placed by a vote of the mesh's atoms (sharding/vote.h), operands
// are brought to where it is computed, and sums over devices stay partial until something needs
// them whole. The bodies of scans take part.
#pragma once

#include <functional>
#include <map>
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

// How a value of a program over whole arrays is placed: as it was made, and as it was kept.
struct PlacedValue {
  Spec made, kept;
};

// A way between two placements on which a device holds more than at either end of it.
struct Detour {
  std::string program;  // "micro_first", "micro_first/layers"
  int value = -1;       // number in the program over whole arrays
  Spec from, to, widest;
  std::int64_t bytes = 0, ends = 0;  // of a device: on the way, and at the larger end
};
// "micro_first %12 is brought from [{x},{y}] to [{y},{x}] by way of [{x},-]: a device holds 96
// bytes for a while, and 24 before and after"
std::string to_string(const Mesh& mesh, const Detour& detour);

struct Partitioned {
  Module module;                // of one device; registers have local shapes
  std::vector<Spec> registers;  // of each register, partial sums included
  std::vector<bool> stacked;
  std::vector<CollectiveRecord> collectives;
  std::vector<Detour> detours;
  // Of all values, by "program" or "program/body of a scan", in order of number.
  std::map<std::string, std::vector<PlacedValue>> values;
};

// Throws ErrorCode::layout_refused for what cannot be placed. REQUIRES: the specs given divide.
Partitioned partition(const Module& module, const Placement& placement);

// The programs given, with the spec of every value behind it: "made", or "made -> kept" where that
// differs.
std::string annotated(const Module& module, const Mesh& mesh, const Partitioned& parts);

}  // namespace dew
