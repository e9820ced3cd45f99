#include "dew/sharding/process_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

#include "dew/base/error.h"
#include "dew/sharding/cluster.h"

namespace dew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh mesh_of(const MeshSpec& spec, std::int64_t devices) { return build_mesh(spec, devices); }

std::vector<std::int64_t> sizes_of(const Mesh& mesh) {
  std::vector<std::int64_t> sizes;
  for (const MeshAtom& a : mesh.atoms) sizes.push_back(a.size);
  return sizes;
}

TEST(ProcessGrid, TheExample) {
  const ProcessGrid grid = process_grid(mesh_of({.fsdp = 8, .tensor = 2}, 16), 4);
  EXPECT_THAT(sizes_of(grid.mesh), ElementsAre(4, 2, 2));
  EXPECT_THAT(grid.crosses, ElementsAre(true, false, false));
  EXPECT_THAT(grid.parts, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_EQ(grid.mesh.atoms[0].name, "fsdp.0");
  EXPECT_EQ(grid.mesh.atoms[2].name, "tensor");
  EXPECT_THAT(grid.place(3), ElementsAre(3, -1, -1));
}

// The seed's: hosts of four devices, tensor in four parts of four.
TEST(ProcessGrid, OfTheSeed) {
  const Mesh mesh = split_axis(mesh_of({.fsdp = 16, .tensor = 16}, 256), kTensor, 8);
  const ProcessGrid grid = process_grid(mesh, 64);
  EXPECT_THAT(sizes_of(grid.mesh), ElementsAre(16, 4, 2, 2));
  EXPECT_THAT(grid.crosses, ElementsAre(true, true, false, false));
  EXPECT_EQ(grid.process_of_device(), consecutive_processes(256, 4));
}

TEST(ProcessGrid, WhereConsecutiveDevicesAreNoBox) {
  const ProcessGrid grid = process_grid(mesh_of({.tensor = 3}, 6), 3);
  EXPECT_THAT(grid.crosses, ElementsAre(false, true));
  EXPECT_THAT(grid.process_of_device(), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(ProcessGrid, RefusesWhatDoesNotDivide) {
  for (const std::int64_t processes : {0, 3, 16}) {
    try {
      process_grid(mesh_of({.fsdp = 2}, 8), processes);
      FAIL() << processes;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::layout_refused);
      EXPECT_THAT(e.what(), HasSubstr("8 devices"));
    }
  }
}

// Each process has equally many devices, which are a box: all combinations of what it has along
// each atom. Where the p-th so many devices are a box, they are its.
TEST(ProcessGrid, HoldsForAnyMesh) {
  rc::check([] {
    const auto size = [](int most) { return *rc::gen::inRange<std::int64_t>(1, most); };
    const MeshSpec spec{.fsdp = size(7), .expert = size(4), .tensor = size(7)};
    const std::int64_t devices = spec.fsdp * spec.expert * spec.tensor * size(5);
    std::vector<std::int64_t> divisors;
    for (std::int64_t p = 1; p <= devices; ++p) {
      if (devices % p == 0) divisors.push_back(p);
    }
    const std::int64_t processes = *rc::gen::elementOf(divisors);
    const Mesh mesh = mesh_of(spec, devices);
    const ProcessGrid grid = process_grid(mesh, processes);
    RC_ASSERT(grid.mesh.devices() == devices);
    const std::vector<std::int64_t> owner = grid.process_of_device();
    std::map<std::int64_t, std::vector<std::set<std::int64_t>>> along;
    std::map<std::int64_t, std::int64_t> held;
    for (std::int64_t d = 0; d < devices; ++d) {
      const std::int64_t p = owner[static_cast<std::size_t>(d)];
      along[p].resize(mesh.atoms.size());
      const auto where = mesh.coordinates(d);
      for (std::size_t a = 0; a < where.size(); ++a) along[p][a].insert(where[a]);
      ++held[p];
      const Dims place = grid.place(p);
      const auto fine = grid.mesh.coordinates(d);
      for (std::size_t a = 0; a < place.size(); ++a) RC_ASSERT(place[a] < 0 || place[a] == fine[a]);
    }
    RC_ASSERT(static_cast<std::int64_t>(held.size()) == processes);
    bool consecutive = true;
    for (const auto& [p, sets] : along) {
      std::int64_t box = 1;
      for (const auto& s : sets) box *= static_cast<std::int64_t>(s.size());
      RC_ASSERT(box == devices / processes);
      RC_ASSERT(held[p] == devices / processes);
    }
    // A border inside the last atom that crosses, everything behind it inside: a box in a row.
    bool inside = true;
    for (std::size_t a = grid.crosses.size(); a-- > 0;) {
      inside = inside && !grid.crosses[a];
      consecutive = consecutive && (inside || grid.crosses[a]);
    }
    if (consecutive) RC_ASSERT(owner == consecutive_processes(devices, devices / processes));
  });
}

}  // namespace
}  // namespace dew
