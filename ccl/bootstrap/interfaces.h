// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which of this machine's addresses a listener binds to, chosen as NCCL users
// expect of NCCL_SOCKET_IFNAME. Says nothing about what can be reached.
//
// Thread rule: pure but for ListInterfaces, which asks the kernel.
//
//   ASSIGN_OR_RETURN(std::vector<NetworkInterface> all, ListInterfaces());
//   ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses,
//                    ChooseAddresses(all, {.names = "^docker"}));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/settings.h"
#include "ccl/bootstrap/address.h"

namespace trnccl {

struct NetworkInterface {
  enum class State { kDown, kUp };

  std::string name;
  State state = State::kDown;
  std::vector<SocketAddress> addresses;  // of port 0
};

struct InterfaceChoice {
  // Prefixes `eth,ib`; after ^ what to avoid, `^docker,lo`; after = exact
  // names, `=eth0,eth1` (and `^=eth0`). Empty: any, physical ones first.
  std::string names;
  SocketFamily family = SocketFamily::kAny;
};

absl::StatusOr<std::vector<NetworkInterface>> ListInterfaces();

// Addresses, as many as a unique id holds, the best first: of interfaces that
// are up, match, and are of the best kind present (physical, else virtual such
// as docker, virbr and veth, else loopback; all kinds if names ask for them).
// IPv4 comes before IPv6, link-local only where there is nothing else. The
// error lists all candidates and why each was left out.
absl::StatusOr<std::vector<SocketAddress>> ChooseAddresses(
    const std::vector<NetworkInterface>& interfaces,
    const InterfaceChoice& choice);

// Gives each link-local address without a scope this machine's own: one address
// for every interface, chosen as above, that has a link-local address.
absl::StatusOr<std::vector<SocketAddress>> WithScopes(
    const std::vector<SocketAddress>& addresses, const InterfaceChoice& choice);

}  // namespace trnccl
