// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/address.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(SocketAddress, TextReadsBackAlike) {
  for (const char* text : {"127.0.0.1:1", "10.1.2.3:65535", "[::1]:4000",
                           "[fe80::1%7]:22", "[2001:db8::a:b]:80"}) {
    const std::optional<SocketAddress> address = SocketAddress::Parse(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(address->ToString(), text);
    sockaddr_storage storage;
    EXPECT_GT(address->ToSockaddr(&storage), 0u);
    EXPECT_EQ(SocketAddress::FromSockaddr(
                  reinterpret_cast<const sockaddr*>(&storage)),
              address);
  }
}

TEST(SocketAddress, BadTextIsRefused) {
  for (const char* text :
       {"", "127.0.0.1", "localhost:80", "1.2.3:4", "127.0.0.1:65536",
        "127.0.0.1:", "[]:1", "::1:80", "[::1%x]:80", "[::1]:-1"}) {
    EXPECT_FALSE(SocketAddress::Parse(text).has_value()) << text;
  }
}

TEST(SocketAddress, KnowsItsKind) {
  EXPECT_TRUE(SocketAddress::Parse("127.3.0.1:1")->IsLoopback());
  EXPECT_TRUE(SocketAddress::Parse("[::1]:1")->IsLoopback());
  EXPECT_FALSE(SocketAddress::Parse("[::2]:1")->IsLoopback());
  EXPECT_FALSE(SocketAddress::Parse("10.0.0.1:1")->IsLoopback());
  EXPECT_TRUE(SocketAddress::Parse("[fe80::5]:1")->IsLinkLocal());
  EXPECT_FALSE(SocketAddress::Parse("[fec0::5]:1")->IsLinkLocal());
  EXPECT_FALSE(SocketAddress::Parse("169.254.0.1:1")->IsLinkLocal());
}

TEST(SocketAddress, TravelsWithoutItsScope) {
  const std::vector<SocketAddress> addresses = {
      *SocketAddress::Parse("[fe80::1%7]:8"),
      *SocketAddress::Parse("10.1.2.3:8")};
  WireWriter writer;
  WriteAddresses(addresses, &writer);
  WireReader reader(writer.bytes());
  const auto read = ReadAddresses(&reader);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(reader.Finished());
  EXPECT_EQ(ToString(*read), "10.1.2.3:8, [fe80::1]:8");
}

TEST(SocketAddress, AsManyTravelAsFitAndBothFamiliesDo) {
  std::vector<SocketAddress> addresses(30, *SocketAddress::Parse("10.1.2.3:8"));
  EXPECT_EQ(FirstThatFit(addresses).size(), 24u);
  addresses.insert(addresses.end(), 10,
                   *SocketAddress::Parse("[2001:db8::1]:8"));
  const std::vector<SocketAddress> fit = FirstThatFit(addresses);
  EXPECT_EQ(fit.size(), 21u);
  EXPECT_EQ(fit.back(), addresses.back());
  WireWriter writer;
  WriteAddresses(fit, &writer);
  WireReader reader(writer.bytes());
  EXPECT_EQ(ReadAddresses(&reader), fit);
  std::reverse(addresses.begin(), addresses.end());
  EXPECT_EQ(FirstThatFit(addresses).size(), 9u);  // 5 of IPv6, 4 of IPv4
}

TEST(SocketAddress, BadBytesAreRefused) {
  WireWriter writer;
  WriteAddresses({*SocketAddress::Parse("10.1.2.3:4")}, &writer);
  const std::string good = writer.bytes();
  for (size_t size = 0; size < good.size(); ++size) {
    WireReader reader(std::string_view(good).substr(0, size));
    EXPECT_FALSE(ReadAddresses(&reader).has_value()) << size;
  }
  const auto refused = [&good](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    WireReader reader(bad);
    return !ReadAddresses(&reader).has_value();
  };
  EXPECT_TRUE(refused(0, 0));   // none
  EXPECT_TRUE(refused(0, 25));  // too many
  EXPECT_TRUE(refused(1, 6));   // too many with the other
  EXPECT_TRUE(refused(2, 0));   // port 0
  EXPECT_TRUE(refused(4, 1));   // port beyond 16 bits
}

}  // namespace
}  // namespace trnccl
