// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/hardware.h"

#include <gtest/gtest.h>

namespace trnccl {
namespace {

// Package 0: cores 0-1 with two host bridges (of buses 00 and 40, the first one
// with two switches), cores 2-3 with one (60). Package 1: cores 4-5 with one
// (80), cores 6-7. Each pair of cores is a NUMA node.
constexpr char kTwoPackages[] = "ccl/topology/testdata/two_packages.xml";

Hardware TwoPackages() {
  auto hardware = Hardware::FromXmlFile(kTwoPackages);
  EXPECT_TRUE(hardware.ok()) << hardware.status();
  return *std::move(hardware);
}

TEST(Hardware, KnowsWhatTwoDevicesShare) {
  const Hardware hardware = TwoPackages();
  const auto closeness = [&](const char* a, const char* b) {
    EXPECT_EQ(hardware.Between(a, b), hardware.Between(b, a));
    return hardware.Between(a, b).closeness;
  };
  const char* nic = "0000:01:00.0";
  EXPECT_EQ(closeness(nic, nic), Closeness::kSwitch);
  EXPECT_EQ(closeness(nic, "0000:01:01.0"), Closeness::kSwitch);
  EXPECT_EQ(closeness(nic, "0000:04:01.0"), Closeness::kHostBridge);
  EXPECT_EQ(closeness(nic, "0000:41:00.0"), Closeness::kNumaNode);
  EXPECT_EQ(closeness(nic, "0000:61:00.0"), Closeness::kPackage);
  EXPECT_EQ(closeness(nic, "0000:81:01.0"), Closeness::kMachine);
  EXPECT_EQ(closeness(nic, "0000:99:00.0"), Closeness::kUnknown);
  EXPECT_EQ(closeness(nic, ""), Closeness::kUnknown);
}

TEST(Hardware, KnowsWhereADeviceIsForProcessors) {
  const Hardware hardware = TwoPackages();
  const auto closeness = [&](const CpuSet& cpus) {
    return hardware.Between("0000:01:00.0", cpus).closeness;
  };
  EXPECT_EQ(closeness({0}), Closeness::kNumaNode);
  EXPECT_EQ(closeness({1, 6}), Closeness::kNumaNode);
  EXPECT_EQ(closeness({2, 3}), Closeness::kPackage);
  EXPECT_EQ(closeness({2, 4}), Closeness::kMachine);
  EXPECT_EQ(closeness({7}), Closeness::kMachine);
  EXPECT_EQ(closeness({}), Closeness::kUnknown);
}

TEST(Hardware, LoadsThisMachine) {
  const auto hardware = Hardware::Load();
  ASSERT_TRUE(hardware.ok()) << hardware.status();
  EXPECT_EQ(hardware->Between("ffff:ff:1f.7", CpuSet{0}).closeness,
            Closeness::kUnknown);
}

TEST(Hardware, NamesAFileThatItCannotRead) {
  const auto hardware = Hardware::FromXmlFile("/no/such/file.xml");
  ASSERT_FALSE(hardware.ok());
  EXPECT_NE(hardware.status().message().find("/no/such/file.xml"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace trnccl
