#include "dew/sharding/mesh.h"

#include <gtest/gtest.h>

#include "dew/base/error.h"

namespace dew {
namespace {

// Code, message and hint.
template <class Body>
std::string refusal(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what() +
           (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "no error";
}

TEST(Mesh, DataTakesWhatIsLeft) {
  EXPECT_EQ(to_string(build_mesh({}, 8)),
            "{'data': 8, 'expert': 1, 'fsdp': 1, 'tensor': 1, 'sequence': 1, 'stage': 1}");
  EXPECT_EQ(to_string(build_mesh({.fsdp = 8}, 8)),
            "{'data': 1, 'expert': 1, 'fsdp': 8, 'tensor': 1, 'sequence': 1, 'stage': 1}");
  EXPECT_EQ(to_string(build_mesh({.fsdp = 3, .expert = 2, .tensor = 5, .sequence = 7}, 630)),
            "{'data': 3, 'expert': 2, 'fsdp': 3, 'tensor': 5, 'sequence': 7, 'stage': 1}");
  EXPECT_EQ(build_mesh({}, 1).atoms.size(), 0U);
  EXPECT_EQ(build_mesh({.stage = 2, .microbatches = 4}, 2).size(kStage), 2);
}

TEST(Mesh, WhatDoesNotDivideIsRefusedWithEveryFactor) {
  const std::string hint =
      " | every factor is at least 1 and their product divides the number of devices; data takes "
      "what is left";
  EXPECT_EQ(
      refusal([] { build_mesh({.fsdp = 3}, 8); }),
      "3: mesh expert=1, fsdp=3, tensor=1, sequence=1, stage=1 does not divide 8 devices" + hint);
  EXPECT_EQ(
      refusal([] { build_mesh({.fsdp = 2, .tensor = 4, .stage = 2}, 8); }),
      "3: mesh expert=1, fsdp=2, tensor=4, sequence=1, stage=2 does not divide 8 devices" + hint);
  EXPECT_EQ(
      refusal([] { build_mesh({.expert = 0}, 1); }),
      "3: mesh expert=0, fsdp=1, tensor=1, sequence=1, stage=1 does not divide 1 device" + hint);
  EXPECT_EQ(refusal([] { build_mesh({.sequence = -2}, 8); }).substr(0, 2), "3:");
  EXPECT_EQ(refusal([] { build_mesh({}, 0); }).substr(0, 2), "3:");
  EXPECT_EQ(refusal([] { build_mesh({}, -4); }).substr(0, 2), "3:");
}

TEST(Mesh, AtomsAreAxesAboveOne) {
  const Mesh mesh = build_mesh({.fsdp = 2, .tensor = 6}, 36);
  ASSERT_EQ(mesh.atoms.size(), 3U);
  EXPECT_EQ(mesh.atoms_of(kData), (std::vector<int>{0}));
  EXPECT_EQ(mesh.atoms_of(kExpert), (std::vector<int>{}));
  EXPECT_EQ(mesh.atoms_of(kTensor), (std::vector<int>{2}));
  const Mesh split = split_axis(mesh, kTensor, 2);
  EXPECT_EQ(split.sizes, mesh.sizes);
  EXPECT_EQ(split.atoms_of(kTensor), (std::vector<int>{2, 3}));
  EXPECT_EQ(split.atoms[2], (MeshAtom{kTensor, 2, "tensor.0"}));
  EXPECT_EQ(split.atoms[3], (MeshAtom{kTensor, 3, "tensor.1"}));
  EXPECT_EQ(split_axis(mesh, kTensor, 1), mesh);
  EXPECT_EQ(split_axis(mesh, kTensor, 6), mesh);
}

TEST(Mesh, DevicesFillItRowMajor) {
  const Mesh mesh = split_axis(build_mesh({.fsdp = 2, .tensor = 6}, 36), kTensor, 2);
  std::int64_t device = 0;
  for (std::int64_t data = 0; data < 3; ++data) {
    for (std::int64_t fsdp = 0; fsdp < 2; ++fsdp) {
      for (std::int64_t tensor = 0; tensor < 6; ++tensor, ++device) {
        EXPECT_EQ(mesh.coordinates(device),
                  (std::vector<std::int64_t>{data, fsdp, tensor / 3, tensor % 3}));
        EXPECT_EQ(mesh.block(std::vector<int>{2, 3}, device), tensor);
        EXPECT_EQ(mesh.block(std::vector<int>{2, 1}, device), tensor / 3 * 2 + fsdp);
        EXPECT_EQ(mesh.block({}, device), 0);
      }
    }
  }
  EXPECT_EQ(device, mesh.devices());
}

TEST(Mesh, ReplicasAreGroupsOfHosts) {
  const auto order = [](std::int64_t replicas, const std::vector<std::int64_t>& hosts) {
    return device_order(build_mesh({.replicas = replicas}, std::ssize(hosts)), replicas, hosts);
  };
  using Order = std::vector<std::int64_t>;
  EXPECT_EQ(order(1, {0, 1, 0, 1}), (Order{0, 1, 2, 3}));
  EXPECT_EQ(order(2, {0, 1, 0, 1}), (Order{0, 2, 1, 3}));
  EXPECT_EQ(order(2, {0, 0, 1, 1}), (Order{0, 1, 2, 3}));
  EXPECT_EQ(order(2, {5, 5, 5, 5}), (Order{0, 1, 2, 3}));  // one host: the list is cut
  EXPECT_EQ(order(2, {3, 0, 2, 1}), (Order{1, 3, 0, 2}));
  EXPECT_EQ(order(3, {0, 1, 2, 0, 1, 2}), (Order{0, 3, 1, 4, 2, 5}));

  EXPECT_EQ(refusal([&] {
              order(2, {0, 1, 2, 2});
            }),
            "3: replicas = 2 does not divide 3 hosts | a replica is a group of whole hosts");
  EXPECT_EQ(
      refusal([&] {
        order(2, {0, 0, 0, 1});
      }),
      "3: replicas = 2 on 2 hosts: group 0 has 3 devices, each needs 2 | a replica is a group "
      "of whole hosts, and all have as many devices");
  EXPECT_EQ(refusal([] { build_mesh({.fsdp = 4, .replicas = 3}, 8); }),
            "3: replicas = 3 does not divide the data axis, which has size 2 (8 devices)");
  EXPECT_EQ(refusal([] { build_mesh({.replicas = 0}, 8); }),
            "3: replicas = 0 does not divide the data axis, which has size 8 (8 devices)");
}

TEST(Mesh, OnTheCommandLine) {
  EXPECT_EQ(parse_mesh(""), MeshSpec());
  EXPECT_EQ(parse_mesh("tensor=3,fsdp=16"), (MeshSpec{.fsdp = 16, .tensor = 3}));
  EXPECT_EQ(parse_mesh("expert=2,sequence=5,stage=7"),
            (MeshSpec{.expert = 2, .sequence = 5, .stage = 7}));
  EXPECT_EQ(parse_sizes("fsdp=16,data=2"), build_mesh({.fsdp = 16}, 32));
  EXPECT_EQ(parse_sizes(""), build_mesh({}, 1));

  const auto message = [](std::string_view text) { return refusal([&] { parse_mesh(text); }); };
  EXPECT_EQ(message("fspd=2"),
            "2: mesh: 'fspd' is no mesh axis, the nearest is 'fsdp'; there are data, expert, fsdp, "
            "tensor, sequence, stage");
  EXPECT_EQ(message("data=2"),
            "2: mesh 'data=2' gives data, which takes the devices that are left | leave data out");
  EXPECT_EQ(message("fsdp=2,fsdp=2"), "2: mesh 'fsdp=2,fsdp=2' has fsdp twice");
  for (const char* size : {"0", "-1", "", "2.0", "x", "2 ", "99999999999999999999"}) {
    EXPECT_EQ(message("fsdp=" + std::string(size)), "2: mesh fsdp = '" + std::string(size) +
                                                        "', but it must be a whole number of at "
                                                        "least 1");
  }
  for (const std::string text : {"fsdp", ",", "fsdp=2,", ",fsdp=2", "fsdp=2,,tensor=2"}) {
    EXPECT_EQ(message(text), "2: mesh '" + text + "' is not of the form fsdp=16,tensor=16");
  }
  EXPECT_EQ(message("fsdp=4000000000,tensor=4000000000"),
            "2: mesh 'fsdp=4000000000,tensor=4000000000' has 2^63 devices or more");
}

TEST(Mesh, Devices) {
  EXPECT_EQ(parse_devices("cpu"), 1);
  EXPECT_EQ(parse_devices("cpu:1"), 1);
  EXPECT_EQ(parse_devices("cpu:256"), 256);
  for (const char* text : {"", "cpu:", "cpu:0", "cpu:-1", "cpu:8x", "cpu8", "gpu", "gpu:8", "CPU",
                           "cpu:99999999999999999999"}) {
    EXPECT_EQ(parse_devices(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace dew
