// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/network.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace trnccl {
namespace {

using Addresses = std::vector<std::string>;

HostFacts On(const std::string& node, Addresses met_at, Addresses addresses) {
  return {.host_id = node,
          .machine = node,
          .met_at = std::move(met_at),
          .addresses = std::move(addresses)};
}

TEST(NetworkAddresses, BeginWithThoseThatReachOthers) {
  const std::vector<HostFacts> hosts = {
      On("a", {"10.1.0.1"}, {"10.5.0.1", "10.1.0.1"}),
      On("b", {"10.1.0.2"}, {"10.5.0.1", "10.1.0.2"})};
  EXPECT_EQ(NetworkAddresses(hosts, 0), (Addresses{"10.1.0.1", "10.5.0.1"}));
  EXPECT_EQ(NetworkAddresses(hosts, 1), (Addresses{"10.1.0.2", "10.5.0.1"}));
}

// Whose neighbours in the tree are all on its own node.
TEST(NetworkAddresses, AreLearntFromRanksOfTheSameNode) {
  const std::vector<HostFacts> hosts = {
      On("a", {"10.1.0.1"}, {"10.5.0.1", "10.1.0.1"}),
      On("a", {}, {"10.5.0.1", "10.1.0.1"}),
      On("b", {"10.1.0.2"}, {"10.1.0.2"})};
  EXPECT_EQ(NetworkAddresses(hosts, 1), NetworkAddresses(hosts, 0));
}

TEST(NetworkAddresses, AreOfAFamilyThatAllHave) {
  std::vector<HostFacts> hosts = {
      On("a", {"10.1.0.1"}, {"10.1.0.1", "fd01::1"}),
      On("b", {"10.1.0.2"}, {"10.1.0.2", "fd01::2"})};
  EXPECT_EQ(NetworkAddresses(hosts, 0), Addresses{"10.1.0.1"});
  hosts.push_back(On("c", {"fd01::3"}, {"fd01::3"}));
  EXPECT_EQ(NetworkAddresses(hosts, 0), Addresses{"fd01::1"});
  EXPECT_EQ(NetworkAddresses(hosts, 2), Addresses{"fd01::3"});
}

// All have addresses of IPv4, but it's by IPv6 that they met.
TEST(NetworkAddresses, AreOfTheFamilyByWhichAllMet) {
  const std::vector<HostFacts> hosts = {
      On("a", {"fd01::1"}, {"10.5.0.1", "fd01::1"}),
      On("b", {"fd01::2"}, {"10.6.0.1", "fd01::2"})};
  EXPECT_EQ(NetworkAddresses(hosts, 0), Addresses{"fd01::1"});
}

TEST(NetworkAddresses, AreAllWhereRanksHaveNoFamilyInCommon) {
  const std::vector<HostFacts> hosts = {On("a", {}, {"10.1.0.1"}),
                                        On("b", {}, {"fd01::1"})};
  EXPECT_EQ(NetworkAddresses(hosts, 0), Addresses{"10.1.0.1"});
  EXPECT_EQ(NetworkAddresses(hosts, 1), Addresses{"fd01::1"});
}

TEST(NetworkAddresses, AreThoseOfTheSettingsWhereNobodyWasMet) {
  const std::vector<HostFacts> hosts = {On("a", {}, {"10.1.0.1", "fd01::1"}),
                                        On("b", {}, {"10.1.0.1", "fd01::1"})};
  EXPECT_EQ(NetworkAddresses(hosts, 0), Addresses{"10.1.0.1"});
}

class PciOrders : public testing::Test {
 protected:
  // hardware_test.cc says what's where.
  static HostFacts WithCards(CpuSet cpus) {
    HostFacts facts = On("a", {}, {});
    facts.cpus = std::move(cpus);
    for (const std::string bus : {"01", "04", "41", "61", "81"})
      facts.nics.push_back(
          {.name = "card" + bus, .pci = "0000:" + bus + ":00.0", .mbps = 100});
    return facts;
  }

  static std::vector<std::string> OrderOf(const std::vector<HostFacts>& hosts,
                                          int rank) {
    const auto hardware =
        Hardware::FromXmlFile("ccl/topology/testdata/two_packages.xml");
    EXPECT_TRUE(hardware.ok()) << hardware.status();
    return PciOrder(MakeTopology(hosts, rank), *hardware);
  }
};

TEST_F(PciOrders, GiveRanksOfANodeCardsOfTheirOwn) {
  // Three cards are alike near to these processors; the second rank is
  // elsewhere and leaves them alone.
  const std::vector<HostFacts> hosts = {WithCards({0, 1}), WithCards({4, 5}),
                                        WithCards({0, 1}), WithCards({0, 1})};
  std::set<std::string> first;
  for (const int rank : {0, 2, 3}) first.insert(OrderOf(hosts, rank)[0]);
  EXPECT_EQ(first, (std::set<std::string>{"0000:01:00.0", "0000:04:00.0",
                                          "0000:41:00.0"}));
  EXPECT_EQ(OrderOf(hosts, 1)[0], "0000:81:00.0");
}

TEST_F(PciOrders, NameAllCards) {
  for (const std::string& first : OrderOf({WithCards({0, 1})}, 0))
    EXPECT_EQ(first.size(), 12u);
  EXPECT_EQ(OrderOf({WithCards({0, 1})}, 0).size(), 5u);
}

TEST_F(PciOrders, AreEmptyWithoutCards) {
  EXPECT_TRUE(OrderOf({On("a", {}, {})}, 0).empty());
}

}  // namespace
}  // namespace trnccl
