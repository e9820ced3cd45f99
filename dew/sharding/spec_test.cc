#include "dew/sharding/spec.h"

#include <gtest/gtest.h>

#include "dew/base/error.h"

namespace dew {
namespace {

// Atoms 0 data, 1 fsdp, 2 tensor.0, 3 tensor.1 of sizes 2, 3, 2, 5.
const Mesh kMesh = split_axis(build_mesh({.fsdp = 3, .tensor = 10}, 60), kTensor, 2);

TEST(Spec, PrintsAsUsersReadIt) {
  const auto text = [](const DimAtoms& dims) { return to_user_string(kMesh, {dims, 0}); };
  EXPECT_EQ(text({}), "P()");
  EXPECT_EQ(text({{}, {}}), "P()");
  EXPECT_EQ(text({{1}, {}}), "P('fsdp',)");
  EXPECT_EQ(text({{1}, {2, 3}}), "P('fsdp', 'tensor')");
  EXPECT_EQ(text({{}, {1}, {}}), "P(None, 'fsdp')");
  EXPECT_EQ(text({{2, 3, 1}}), "P(('tensor', 'fsdp'),)");
  EXPECT_EQ(text({{0, 1}, {}, {2}}), "P(('data', 'fsdp'), None, 'tensor:(1)2')");
  EXPECT_EQ(text({{1}, {3}}), "P('fsdp', 'tensor:(2)5')");
  // The parts of an axis the wrong way round are not the axis.
  EXPECT_EQ(text({{3, 2}}), "P(('tensor:(2)5', 'tensor:(1)2'),)");
}

TEST(Spec, PrintsAsTheCompilerReadsIt) {
  EXPECT_EQ(to_string(kMesh, {{{0, 1}, {}, {2}}, bit(3)}),
            "[{data,fsdp},-,{tensor.0}] partial{tensor.1}");
  EXPECT_EQ(to_string(kMesh, {{}, bit(0) | bit(2)}), "[] partial{data,tensor.0}");
  EXPECT_EQ(to_string(kMesh, whole_spec(2)), "[-,-]");
}

TEST(Spec, WhatADeviceHolds) {
  const Spec spec = {{{2, 3, 1}, {}, {0}}, 0};
  EXPECT_TRUE(divides(kMesh, {60, 7, 4}, spec));
  EXPECT_EQ(local_shape(kMesh, {60, 7, 4}, spec), (Dims{2, 7, 2}));
  EXPECT_EQ(local_shape(kMesh, {0, 7, 4}, spec), (Dims{0, 7, 2}));
  EXPECT_FALSE(divides(kMesh, {45, 7, 4}, spec));
  EXPECT_FALSE(divides(kMesh, {60, 7, 3}, spec));
  EXPECT_FALSE(divides(kMesh, {60, 7}, spec));
  EXPECT_THROW(local_shape(kMesh, {45, 7, 4}, spec), Error);
  EXPECT_EQ(local_shape(kMesh, {}, whole_spec(0)), Dims());
}

TEST(Spec, AtomsThatTellDevicesApart) {
  EXPECT_EQ(atoms_in({{2, 3}, {}, {0}}), bit(0) | bit(2) | bit(3));
  // Those of the first dimension come last, sums count.
  EXPECT_EQ(distinct_atoms({{{2, 3}, {1}}, bit(0)}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(distinct_atoms({{{0}, {2}}, 0}), (std::vector<int>{2, 0}));
  EXPECT_EQ(distinct_atoms(whole_spec(3)), std::vector<int>());
}

}  // namespace
}  // namespace dew
