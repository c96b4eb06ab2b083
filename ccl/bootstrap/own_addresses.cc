// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/own_addresses.h"

#include <algorithm>
#include <optional>

namespace trnccl {
namespace {

bool SameIp(const SocketAddress& a, const SocketAddress& b) {
  return a.family == b.family && a.ip == b.ip;
}

bool Has(const std::vector<SocketAddress>& addresses,
         const SocketAddress& wanted) {
  return std::any_of(
      addresses.begin(), addresses.end(),
      [&](const SocketAddress& address) { return SameIp(address, wanted); });
}

std::optional<SocketEnds> EndsOf(const Socket& socket) {
  if (!socket.is_open()) return std::nullopt;
  const absl::StatusOr<SocketAddress> own = socket.LocalAddress();
  const std::optional<SocketAddress> peer = SocketAddress::Parse(socket.peer());
  if (!own.ok() || !peer) return std::nullopt;
  return SocketEnds{*own, *peer};
}

}  // namespace

OwnAddresses FindOwnAddresses(const std::vector<SocketEnds>& sockets,
                              const std::vector<NetworkInterface>& interfaces,
                              const InterfaceChoice& choice) {
  OwnAddresses own;
  const auto chosen = ChooseAddresses(interfaces, choice);
  if (chosen.ok()) own.chosen = *chosen;
  const bool strict =
      !choice.names.empty() || choice.family != SocketFamily::kAny;
  for (const SocketEnds& ends : sockets) {
    if (SameIp(ends.own, ends.peer) || Has(own.met, ends.own)) continue;
    if (strict && !Has(own.chosen, ends.own)) continue;
    own.met.push_back(ends.own);
  }
  return own;
}

OwnAddresses OwnAddressesOf(const Bootstrap& bootstrap,
                            const InterfaceChoice& choice) {
  std::vector<SocketEnds> sockets;
  if (const auto ends = EndsOf(bootstrap.parent().socket))
    sockets.push_back(*ends);
  for (const TreeLink& child : bootstrap.children())
    if (const auto ends = EndsOf(child.socket)) sockets.push_back(*ends);
  const auto interfaces = ListInterfaces();
  return FindOwnAddresses(
      sockets, interfaces.ok() ? *interfaces : std::vector<NetworkInterface>(),
      choice);
}

}  // namespace trnccl
