// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/interfaces.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NetworkInterface Interface(
    const std::string& name, const std::vector<std::string>& addresses,
    NetworkInterface::State state = NetworkInterface::State::kUp) {
  NetworkInterface interface {
    name, state, {}
  };
  for (const std::string& text : addresses) {
    interface.addresses.push_back(*SocketAddress::Parse(text));
  }
  return interface;
}

std::vector<NetworkInterface> Machine() {
  return {
      Interface("lo", {"127.0.0.1:0", "[::1]:0"}),
      Interface("docker0", {"172.17.0.1:0"}),
      Interface("veth12", {"172.18.0.1:0"}),
      Interface("eth0", {"10.0.0.1:0", "[fd00::1]:0", "[fe80::1%4]:0"}),
      Interface("eth1", {"10.1.0.1:0"}),
      Interface("eth10", {"10.10.0.1:0"}, NetworkInterface::State::kDown),
      Interface("ib0", {"10.2.0.1:0"}),
  };
}

std::string Chosen(const std::string& names,
                   SocketFamily family = SocketFamily::kAny) {
  const auto addresses = ChooseAddresses(Machine(), {names, family});
  return addresses.ok() ? ToString(*addresses)
                        : std::string(addresses.status().message());
}

TEST(Interfaces, PhysicalOnesComeFirstByThemselves) {
  EXPECT_EQ(Chosen(""), "10.0.0.1:0, 10.1.0.1:0, 10.2.0.1:0, [fd00::1]:0");
}

TEST(Interfaces, NamesSelectExcludeAndMatchExactly) {
  EXPECT_EQ(Chosen("ib"), "10.2.0.1:0");
  EXPECT_EQ(Chosen("=eth1"), "10.1.0.1:0");
  EXPECT_EQ(Chosen("ib,=eth"), "10.2.0.1:0");  // = counts in front only
  EXPECT_EQ(Chosen("^eth"), "10.2.0.1:0");
  EXPECT_EQ(Chosen("^=eth0"), "10.1.0.1:0, 10.2.0.1:0");
  EXPECT_EQ(Chosen("docker,lo"), "127.0.0.1:0, 172.17.0.1:0, [::1]:0");
}

TEST(Interfaces, FamilySelects) {
  EXPECT_EQ(Chosen("", SocketFamily::kIpv6), "[fd00::1]:0");
  EXPECT_EQ(Chosen("lo", SocketFamily::kIpv6), "[::1]:0");
  EXPECT_EQ(Chosen("lo", SocketFamily::kIpv4), "127.0.0.1:0");
}

TEST(Interfaces, VirtualAndLoopbackAreTheLastResort) {
  EXPECT_EQ(Chosen("^eth,ib"), "172.17.0.1:0, 172.18.0.1:0");
  EXPECT_EQ(Chosen("^eth,ib,docker,veth"), "127.0.0.1:0, [::1]:0");
}

TEST(Interfaces, LinkLocalKeepsItsScopeWhenThereIsNothingElse) {
  const auto addresses = ChooseAddresses({Interface("eth0", {"[fe80::1%4]:0"})},
                                         InterfaceChoice{});
  EXPECT_EQ(ToString(addresses.value()), "[fe80::1%4]:0");
}

TEST(Interfaces, ErrorListsEveryCandidateAndWhyNot) {
  EXPECT_THAT(Chosen("=eth10"),
              AllOf(HasSubstr("'=eth10'"), HasSubstr("eth10 (down)"),
                    HasSubstr("eth0 (left out by name)"),
                    HasSubstr("TRNCCL_SOCKET_IFNAME")));
  EXPECT_THAT(Chosen("ib", SocketFamily::kIpv6),
              HasSubstr("ib0 (no address of the wanted family)"));
  EXPECT_FALSE(ChooseAddresses({}, InterfaceChoice{}).ok());
}

TEST(Interfaces, ThisMachineHasALoopback) {
  const auto interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  const auto addresses =
      ChooseAddresses(*interfaces, {"lo", SocketFamily::kIpv4});
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_TRUE(addresses->front().IsLoopback());
}

}  // namespace
}  // namespace trnccl
