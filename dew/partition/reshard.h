// How one array travels from one placement to another: the cheapest list of collectives, found as a
// shortest path over specs.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "dew/sharding/spec.h"

namespace dew {

enum class Move {
  slice,           // devices keep their part of a dimension: nothing is sent
  keep_first,      // all but the first member put zeros in place of a whole value: nothing is sent
  all_gather,      // the minor atoms of a dimension are gathered
  all_to_all,      // the minor atom of one dimension goes to the end of another
  permute,         // the same part sizes under other atoms or in another order
  all_reduce,      // partial sums become whole
  reduce_scatter,  // partial sums become parts of a dimension
};
const char* name(Move move);

struct ReshardStep {
  Move move = Move::slice;
  std::vector<int> atoms;  // of the groups that communicate, major first
  std::vector<int> dims;   // the dimension; of all_to_all: from, to; of reductions to whole: none
  Spec from, to;
  double bytes = 0;  // sent by a device

  bool communicates() const { return move != Move::slice && move != Move::keep_first; }
};

class Resharder {
 public:
  explicit Resharder(const Mesh& mesh) : mesh_(mesh) {}

  // The steps that bring an array of this (global) shape from `from` to `to`. Both must divide it.
  // Sums may become partial again (keep_first) only where `to` says so.
  const std::vector<ReshardStep>& steps(const Dims& shape, std::int64_t element_bytes,
                                        const Spec& from, const Spec& to);

  // What a step costs, in bytes: those that a device sends and a charge for each collective.
  static double price(const ReshardStep& step);

 private:
  using Key = std::tuple<Dims, std::int64_t, Spec, Spec>;

  Mesh mesh_;
  std::map<Key, std::vector<ReshardStep>> known_;
};

}  // namespace dew
