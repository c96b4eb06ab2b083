// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/nics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trnccl {
namespace {

namespace fs = std::filesystem;

// A folder that looks like /sys.
class Sysfs : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "sys";
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void PutOnBus(const std::string& card, const std::string& device) {
    fs::create_directories(root_ / "devices" / device);
    fs::create_directories(root_ / "class" / card);
    fs::create_symlink(root_ / "devices" / device,
                       root_ / "class" / card / "device");
  }
  std::string Listed() const { return NicsText(ListNics(root_)); }

 private:
  fs::path root_;
};

TEST_F(Sysfs, ListsWhatIsOnTheBusWithSpeedAndState) {
  PutOnBus("net/eth1", "pci0000:00/0000:00:06.0");
  Write("class/net/eth1/operstate", "down");
  Write("class/net/eth1/speed", "-1");
  PutOnBus("net/eth0", "pci0000:00/0000:00:05.0");
  Write("class/net/eth0/operstate", "up");
  Write("class/net/eth0/speed", "25000");
  PutOnBus("infiniband/rdmap201s0", "pci0000:c0/0000:c9:00.0");
  Write("class/infiniband/rdmap201s0/ports/1/phys_state", "5: LinkUp");
  Write("class/infiniband/rdmap201s0/ports/1/rate", "200 Gb/sec (4X HDR)");
  EXPECT_EQ(Listed(),
            "eth0,0000:00:05.0,25000,up;eth1,0000:00:06.0,0,down;"
            "rdmap201s0,0000:c9:00.0,200000,up");
}

TEST_F(Sysfs, LeavesOutWhatIsNowhereOnTheBus) {
  Write("class/net/lo/operstate", "unknown");
  PutOnBus("net/usb0", "usb1/1-1");
  EXPECT_EQ(Listed(), "");
}

TEST_F(Sysfs, MayBeMissing) { EXPECT_EQ(Listed(), ""); }

TEST(Nics, ComeBackFromTheirText) {
  const std::vector<Nic> nics = {
      {.name = "eth0", .pci = "0000:00:05.0", .mbps = 25000},
      {.name = "tcp", .state = Nic::State::kDown}};
  const auto back = ParseNics(NicsText(nics));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, nics);
  EXPECT_TRUE(ParseNics("")->empty());
}

TEST(Nics, RefuseOtherText) {
  for (const char* text :
       {"eth0", "eth0,,1,up,", ",,1,up", "eth0,,1,", "eth0,,x,up",
        "eth0,0000:00:05,1,up", "eth 0,,1,up", "eth0,,1,up;"}) {
    EXPECT_FALSE(ParseNics(text).ok()) << text;
  }
}

}  // namespace
}  // namespace trnccl
