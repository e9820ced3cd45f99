// All ways from one placement to another: the steps that the planner finds, carried out on every
// device with integers, end where they should, cost no more than gathering everything, and hardly
// ever hold more than the larger end.
#include "dew/partition/reshard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "dew/partition/lockstep_test_support.h"

namespace dew {
namespace {

using lockstep::at;
using lockstep::PerDevice;

std::vector<Spec> all_specs(const Mesh& mesh, const Dims& shape) {
  std::vector<Spec> out{whole_spec(shape.size())};
  for (int a = 0; a < static_cast<int>(mesh.atoms.size()); ++a) {
    const std::vector<Spec> before = out;
    for (Spec spec : before) {
      for (auto& dim : spec.dims) {
        for (std::size_t place = 0; place <= dim.size(); ++place) {
          const auto added = dim.insert(dim.begin() + static_cast<std::ptrdiff_t>(place), a);
          if (divides(mesh, shape, spec)) out.push_back(spec);
          dim.erase(added);
        }
      }
      spec.partial |= bit(a);
      out.push_back(spec);
    }
  }
  return out;
}

// What the steps mean, by their moves alone.
class Simulation {
 public:
  explicit Simulation(const Mesh& mesh) : devices_(mesh) {}

  PerDevice apply(const ReshardStep& step, const PerDevice& x) const {
    PerDevice out;
    for (std::size_t d = 0; d < devices_.count(); ++d) out.push_back(one(step, x, d));
    return out;
  }

  // Parts of sums are integers that add up to the whole.
  PerDevice start(const Array& whole, const Spec& spec, std::mt19937& random) const {
    PerDevice parts = devices_.split(whole, spec);
    for (int a = 0; spec.partial >> a != 0; ++a) {
      if (has(spec.partial, a)) spread(parts, a, spec, random);
    }
    return parts;
  }

  const lockstep::Devices& devices() const { return devices_; }

 private:
  // Moves something from the first member along the atom to each other one. What devices that hold
  // the same bits move depends on their place among those that hold others.
  void spread(PerDevice& parts, int atom, const Spec& spec, std::mt19937& random) const {
    const std::vector<int> distinct = distinct_atoms(spec);
    std::map<std::int64_t, double> moved;
    for (std::size_t d = 0; d < devices_.count(); ++d) {
      const std::size_t first = devices_.member(d, {atom}, 0);
      if (first == d) continue;
      const auto [found, added] = moved.emplace(devices_.number(d, distinct), 0);
      if (added) found->second = static_cast<double>(random() % 100);
      for (double& v : parts[d].data) v += found->second;
      for (double& v : parts[first].data) v -= found->second;
    }
  }

  Array one(const ReshardStep& s, const PerDevice& x, std::size_t d) const {
    const Dims atoms(s.atoms.begin(), s.atoms.end());
    const std::int64_t members = devices_.mesh().product(s.atoms);
    const std::int64_t mine = devices_.number(d, atoms);
    switch (s.move) {
      case Move::slice:
        return lockstep::cut(x[d], s.dims[0], members, mine);
      case Move::keep_first:
        return mine == 0 ? x[d] : Array(x[d].shape);
      case Move::all_gather:
        return gathered(s, x, d, members);
      case Move::all_to_all:
        return lockstep::cut(gathered(s, x, d, members), s.dims[1], members, mine);
      case Move::permute:
        return permuted(s, x, d);
      case Move::all_reduce:
        return summed(s, x, d, members);
      case Move::reduce_scatter:
        return lockstep::cut(summed(s, x, d, members), s.dims[0], members, mine);
    }
    return {};
  }

  Array gathered(const ReshardStep& s, const PerDevice& x, std::size_t d,
                 std::int64_t members) const {
    std::vector<const Array*> group;
    for (std::int64_t m = 0; m < members; ++m)
      group.push_back(&x[devices_.member(d, Dims(s.atoms.begin(), s.atoms.end()), m)]);
    return lockstep::join(group, s.dims[0]);
  }

  Array summed(const ReshardStep& s, const PerDevice& x, std::size_t d,
               std::int64_t members) const {
    Array sum(x[d].shape);
    for (std::int64_t m = 0; m < members; ++m) {
      const Array& part = x[devices_.member(d, Dims(s.atoms.begin(), s.atoms.end()), m)];
      for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += part.data[i];
    }
    return sum;
  }

  // The part that the device needs is on the one that has the same numbers of blocks and, along the
  // step's other atoms, the same place.
  Array permuted(const ReshardStep& s, const PerDevice& x, std::size_t d) const {
    for (std::size_t other = 0; other < devices_.count(); ++other) {
      bool same = true;
      for (std::size_t dim = 0; dim < s.to.dims.size(); ++dim)
        same =
            same && devices_.number(other, s.from.dims[dim]) == devices_.number(d, s.to.dims[dim]);
      for (int a = 0; a < static_cast<int>(devices_.mesh().atoms.size()); ++a) {
        const bool moves = has(atoms_in(s.from.dims) | atoms_in(s.to.dims), a);
        same = same && (moves || devices_.number(other, Dims{a}) == devices_.number(d, Dims{a}));
      }
      if (same) return x[other];
    }
    return {};
  }

  lockstep::Devices devices_;
};

// Reduces, gathers everything, slices.
double cost_of_gathering_all(const Mesh& mesh, const Dims& shape, const Spec& from,
                             const Spec& to) {
  double cost = 0;
  auto bytes = static_cast<double>(element_count(local_shape(mesh, shape, from)) * 4);
  const auto charge = [&](Move move, double sent) {
    cost += Resharder::price(
        {.move = move, .atoms = {}, .dims = {}, .from = from, .to = to, .bytes = sent});
  };
  std::vector<int> reduced;
  for (int a = 0; a < static_cast<int>(mesh.atoms.size()); ++a) {
    if (has(from.partial & ~to.partial, a)) reduced.push_back(a);
    if (has(to.partial & ~from.partial, a)) charge(Move::keep_first, 0);
  }
  const auto n = static_cast<double>(mesh.product(reduced));
  if (!reduced.empty()) charge(Move::all_reduce, 2 * bytes * (n - 1) / n);
  for (const std::vector<int>& dim : from.dims) {
    if (dim.empty()) continue;
    const auto members = static_cast<double>(mesh.product(dim));
    charge(Move::all_gather, bytes * (members - 1));
    bytes *= members;
  }
  for (const std::vector<int>& dim : to.dims) {
    for (std::size_t i = 0; i < dim.size(); ++i) charge(Move::slice, 0);
  }
  return cost;
}

struct Totals {
  int pairs = 0, large_above = 0;
};

class Planner {
 public:
  Planner(const Mesh& mesh, Dims shape)
      : mesh_(mesh), shape_(std::move(shape)), simulation_(mesh), planner_(mesh) {
    whole_ = Array(shape_);
    for (double& x : whole_.data) x = static_cast<double>(random_() % 1000);
  }

  void check(const Spec& from, const Spec& to) {
    SCOPED_TRACE(to_string(mesh_, from) + " -> " + to_string(mesh_, to) + " of [" + join(shape_) +
                 "]");
    const std::vector<ReshardStep>& steps = planner_.steps(shape_, 4, from, to);
    expect_modest(from, to);
    PerDevice x = simulation_.start(whole_, from, random_);
    double cost = 0;
    Spec now = from;
    for (const ReshardStep& step : steps) {
      EXPECT_EQ(step.from, now);
      x = simulation_.apply(step, x);
      now = step.to;
      ASSERT_EQ(x.front().shape, local_shape(mesh_, shape_, now));
      cost += Resharder::price(step);
    }
    ASSERT_EQ(now, to);
    Dims distinct;
    for (const int a : distinct_atoms(to)) distinct.push_back(a);
    ASSERT_NO_THROW(simulation_.devices().check_replicas(x, distinct, "end"));
    ASSERT_EQ(simulation_.devices().whole(x, to, shape_), whole_);
    if (to.partial == 0) {
      ASSERT_EQ(x, simulation_.devices().split(whole_, to));
    }
    EXPECT_LE(cost, cost_of_gathering_all(mesh_, shape_, from, to));
    ++totals_.pairs;
  }

  // Where bytes count for more than the start of a collective, what is on the way is hardly ever
  // larger than the larger end.
  void expect_modest(const Spec& from, const Spec& to) {
    std::int64_t peak = 0;
    for (const ReshardStep& step : planner_.steps(shape_, 1 << 20, from, to))
      peak = std::max(peak, size(step.to));
    totals_.large_above += peak > std::max(size(from), size(to)) ? 1 : 0;
  }

  const Totals& totals() const { return totals_; }
  std::mt19937& random() { return random_; }

 private:
  std::int64_t size(const Spec& spec) const {
    return element_count(local_shape(mesh_, shape_, spec));
  }

  Mesh mesh_;
  Dims shape_;
  Simulation simulation_;
  Resharder planner_;
  std::mt19937 random_{1};
  Array whole_;
  Totals totals_;
};

// All pairs where they are few, else as many as `most` at random.
Totals check_pairs(const Mesh& mesh, const Dims& shape, std::size_t most) {
  Planner planner(mesh, shape);
  const std::vector<Spec> specs = all_specs(mesh, shape);
  const std::size_t pairs = specs.size() * specs.size();
  for (std::size_t i = 0; i < std::min(pairs, most); ++i) {
    const std::size_t k = pairs <= most ? i : planner.random()() % pairs;
    planner.check(specs[k / specs.size()], specs[k % specs.size()]);
    if (testing::Test::HasFailure()) break;
  }
  return planner.totals();
}

TEST(Reshard, PairsOfTwoDimensions) {
  const Mesh two = build_mesh({.fsdp = 2}, 4), six = build_mesh({.fsdp = 3}, 6),
             four = build_mesh({.tensor = 4}, 8), three = build_mesh({.fsdp = 2, .tensor = 2}, 8);
  for (const auto& [mesh, shape] : std::vector<std::pair<Mesh, Dims>>{
           {two, {4, 12}}, {six, {6, 12}}, {four, {8, 16}}, {three, {8, 16}}, {three, {2, 8}}}) {
    const Totals t = check_pairs(mesh, shape, 2000);
    EXPECT_GT(t.pairs, 200) << to_string(mesh);
    EXPECT_LE(t.large_above * 50, t.pairs) << to_string(mesh);
  }
}

TEST(Reshard, PairsOfThreeDimensions) {
  const Mesh three = build_mesh({.fsdp = 2, .tensor = 2}, 8), six = build_mesh({.fsdp = 3}, 6);
  for (const auto& [mesh, shape] : std::vector<std::pair<Mesh, Dims>>{
           {three, {8, 8, 16}}, {six, {6, 6, 12}}, {six, {2, 3, 6}}}) {
    const Totals t = check_pairs(mesh, shape, 800);
    EXPECT_GT(t.pairs, 200) << to_string(mesh);
    EXPECT_LE(t.large_above * 50, t.pairs) << to_string(mesh);
  }
}

}  // namespace
}  // namespace dew
