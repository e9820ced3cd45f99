// Writes the program of one device while the walk goes over a program on whole arrays.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dew/partition/partition.h"
#include "dew/sharding/vote.h"

namespace dew {

// What one walk knows of a value.
struct WalkedValue {
  Value local;       // in the device's program
  Spec spec;         // now
  DimAtoms defined;  // the dimensions it was defined with; what is like it takes these
  bool stacked = false;
};

// What backward bodies must know of the values of their forward body.
struct KnownValue {
  Dims shape;
  DimAtoms dims;
  bool weight = false;
};
using KnownBodies = std::map<std::string, std::vector<KnownValue>>;

// Where Partitioned::values has those of `program`: the program `top` itself, or a body in it.
inline std::string values_name(const std::string& top, const Program& program) {
  return program.name() == top ? top : top + "/" + program.name();
}

// What the walks of one module share.
struct WalkContext {
  const Placement& placement;
  Resharder resharder;
  std::vector<CollectiveRecord> collectives = {};
  std::vector<Detour> detours = {};
  std::map<std::string, std::vector<PlacedValue>> values = {};  // see Partitioned
};

// The walk over one program or body.
class DeviceProgram {
 public:
  // `late`: what leaves the program is summed further by somebody else, so that sums of parameter
  // gradients over devices can wait. `trips`: how often the program's loop runs it.
  DeviceProgram(WalkContext& context, KnownBodies& bodies, const Program& whole, bool late,
                std::int64_t trips, std::string top);

  // The next input of the program, in order.
  void input(const Spec& spec, bool stacked);
  // All nodes.
  void walk();
  // How output `i` stands after the walk.
  const WalkedValue& output(std::size_t i) const;
  // Declares it, brought to `spec` first.
  void output(std::size_t i, const Spec& spec);

  Program take() { return std::move(local_); }

 private:
  struct Fetched {
    int id;
    Spec spec;
    Value local;
  };

  const ValueInfo& info(int id) const { return whole_.values()[static_cast<std::size_t>(id)]; }
  WalkedValue& placed(int id) { return placed_[static_cast<std::size_t>(id)]; }
  const Mesh& mesh() const { return context_.placement.mesh; }

  void node(const Node& node);
  void compute(const Node& node);
  void scan(const Node& node);
  std::optional<DimAtoms> wish(int id) const;
  const KnownValue* reference(int other, KnownValue& space) const;
  bool wish_weight(int id) const;
  Spec kept_spec(int id, const Spec& made) const;
  Spec summed_within_loops(int id, const Spec& made, const Spec& goal) const;
  void define(int id, Value local, const Spec& made, bool stacked);
  Value fetch(int id, const Spec& spec);
  Value reshard(int id, Value local, const Spec& from, const Spec& to);
  Value apply(Value x, const ReshardStep& step);
  Value counted_from_part(Value integers, const std::vector<int>& atoms, std::int64_t part);
  Value annotated(Value local, const Spec& spec, bool stacked);
  GroupAttrs group(const std::vector<int>& atoms, const std::vector<int>& dims = {}) const;
  void record(const char* what, const std::vector<int>& atoms, double bytes, int id);
  void record_detour(const std::vector<ReshardStep>& steps, const Type& type, int id);
  void record_inner(const Node& node, const FactorRule& rule, const Assignment& at);
  Attrs local_attrs(const Node& node, const FactorRule& rule, const Assignment& at) const;
  bool is_stacked(const Node& node, const FactorRule& rule, std::size_t result) const;
  std::string region() const;

  WalkContext& context_;
  KnownBodies& bodies_;
  const Program& whole_;
  Program local_;
  const bool late_;
  const std::int64_t trips_;
  const std::string top_;
  int loops_ = 0;
  std::vector<WalkedValue> placed_;
  std::vector<Fetched> fetched_;  // within the region
  std::size_t inputs_ = 0;
  std::vector<PlacedValue>& values_;  // in the context
};

}  // namespace dew
