// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Where a TCP socket is: an IPv4 or IPv6 address and a port. A plain value that
// travels in unique ids and hellos; names are never resolved.
//
// Thread rule: plain values and pure functions.
//
//   SocketAddress address = *SocketAddress::Parse("[::1]:4000");
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ccl/bootstrap/wire.h"

namespace trnccl {

// Of one rank, in a unique id or a hello: 24 of IPv4, or 6 of IPv6.
inline constexpr size_t kMaxIpBytes = 96;

struct SocketAddress {
  enum class Family : uint8_t { kIpv4 = 4, kIpv6 = 6 };

  Family family = Family::kIpv4;
  std::array<uint8_t, 16> ip = {};  // IPv4 fills the first four
  uint16_t port = 0;                // host order
  // The interface of a link-local address. Means something on its own machine
  // only, so it doesn't travel; whoever connects fills in its own.
  uint32_t scope_id = 0;

  // Nothing for a family other than the two.
  static std::optional<SocketAddress> FromSockaddr(const sockaddr* raw);
  // "10.0.0.1:4000", "[fe80::1%2]:4000"; nothing if it isn't that.
  static std::optional<SocketAddress> Parse(std::string_view text);

  // Fills `storage`, returns how much of it counts.
  socklen_t ToSockaddr(sockaddr_storage* storage) const;

  bool IsLoopback() const;
  bool IsLinkLocal() const;  // IPv6 fe80::/10

  std::string IpText() const;
  std::string ToString() const;

  bool operator==(const SocketAddress&) const = default;
};

// "10.0.0.1:4000, [::1]:4000"
std::string ToString(const std::vector<SocketAddress>& addresses);

// As many of them as fit kMaxIpBytes, in their order; one of each family that
// is there, whatever their order.
std::vector<SocketAddress> FirstThatFit(
    const std::vector<SocketAddress>& addresses);

// They share one port and fit kMaxIpBytes.
void WriteAddresses(const std::vector<SocketAddress>& addresses,
                    WireWriter* writer);
// What WriteAddresses wrote, IPv4 first, at least one; otherwise nothing.
std::optional<std::vector<SocketAddress>> ReadAddresses(WireReader* reader);

}  // namespace trnccl
