// The reverse sweep over the nodes of one program (a top level or the body of a scan).
#pragma once

#include <functional>
#include <vector>

#include "dew/ir/program.h"

namespace dew {

class Sweep {
 public:
  // What is done with a scan: given its node and the cotangents of its results (invalid: none),
  // returns those of its operands. `needs` says which operands want one.
  using ScanRule = std::function<std::vector<Value>(int node, std::span<const Value> cotangents,
                                                    const std::vector<bool>& needs)>;

  // Values that depend on `wrt` get cotangents. Only nodes that exist now are swept.
  Sweep(Program& program, std::span<const Value> wrt, ScanRule scan_rule);

  // Adds a contribution to the cotangent of a value.
  void contribute(Value to, Value cotangent);

  // Visits all nodes, last first.
  void run();

  // The sum of all contributions so far; invalid if there is none. Marked `like` the value.
  Value total(int id);

 private:
  void visit(int node);

  Program& program_;
  ScanRule scan_rule_;
  std::size_t node_count_;
  std::vector<bool> depends_;                // on wrt, per value
  std::vector<std::vector<Value>> pending_;  // contributions, per value
};

// Type of the cotangent of a value: f32 for weights, whose gradients are summed over the whole
// batch.
Type cotangent_type(const ValueInfo& info);

}  // namespace dew
