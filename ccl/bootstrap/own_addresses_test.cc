// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/own_addresses.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

SocketAddress At(const std::string& ip) {
  return *SocketAddress::Parse(ip.find(':') == ip.npos ? ip + ":0"
                                                       : "[" + ip + "]:0");
}

NetworkInterface Up(const std::string& name,
                    const std::vector<std::string>& ips) {
  NetworkInterface interface {
    .name = name, .state = NetworkInterface::State::kUp
  };
  for (const std::string& ip : ips) interface.addresses.push_back(At(ip));
  return interface;
}

const std::vector<NetworkInterface>& Interfaces() {
  static const auto& interfaces = *new std::vector<NetworkInterface>{
      Up("docker0", {"172.17.0.1"}), Up("eth0", {"10.5.0.1"}),
      Up("eth1", {"10.1.0.1", "fd01::1"}), Up("lo", {"127.0.0.1"})};
  return interfaces;
}

using Texts = std::vector<std::string>;
Texts TextsOf(const std::vector<SocketAddress>& addresses) {
  Texts texts;
  for (const SocketAddress& address : addresses)
    texts.push_back(address.IpText());
  return texts;
}

TEST(OwnAddresses, AreThoseWhereOthersWereMet) {
  const OwnAddresses own = FindOwnAddresses(
      {{At("10.1.0.1"), At("10.1.0.2")}, {At("10.1.0.1"), At("10.1.0.3")}},
      Interfaces(), {});
  EXPECT_EQ(TextsOf(own.met), Texts{"10.1.0.1"});
  EXPECT_EQ(TextsOf(own.chosen), (Texts{"10.5.0.1", "10.1.0.1", "fd01::1"}));
}

TEST(OwnAddresses, AreNotLearntFromTheSameHost) {
  EXPECT_TRUE(FindOwnAddresses({{At("10.5.0.1"), At("10.5.0.1")},
                                {At("127.0.0.1"), At("127.0.0.1")}},
                               Interfaces(), {})
                  .met.empty());
}

TEST(OwnAddresses, AreOnlyThoseOfNamedInterfaces) {
  const std::vector<SocketEnds> sockets = {{At("10.1.0.1"), At("10.1.0.2")}};
  const OwnAddresses other =
      FindOwnAddresses(sockets, Interfaces(), {.names = "=eth0"});
  EXPECT_EQ(TextsOf(other.met), Texts{});
  EXPECT_EQ(TextsOf(other.chosen), Texts{"10.5.0.1"});
  const OwnAddresses named =
      FindOwnAddresses(sockets, Interfaces(), {.names = "eth"});
  EXPECT_EQ(TextsOf(named.met), Texts{"10.1.0.1"});
}

TEST(OwnAddresses, AreOnlyOfTheFamilyThatIsSet) {
  const OwnAddresses own =
      FindOwnAddresses({{At("10.1.0.1"), At("10.1.0.2")}}, Interfaces(),
                       {.family = SocketFamily::kIpv6});
  EXPECT_EQ(TextsOf(own.met), Texts{});
  EXPECT_EQ(TextsOf(own.chosen), Texts{"fd01::1"});
}

TEST(OwnAddresses, AreNoneWhereNothingFits) {
  const OwnAddresses own = FindOwnAddresses({}, Interfaces(), {.names = "ib"});
  EXPECT_TRUE(own.met.empty());
  EXPECT_TRUE(own.chosen.empty());
}

}  // namespace
}  // namespace trnccl
