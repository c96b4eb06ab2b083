// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A rank's own IP addresses on the networks that its peers may be on: what
// those of a bootstrap's sockets tell, and what the settings wish. Which of
// them all ranks can use follows from all ranks' (ccl/topology/network.h).
//
// Thread rule: pure, but for OwnAddressesOf(), which asks the kernel.
//
//   const OwnAddresses own = OwnAddressesOf(*bootstrap, interfaces);
//   own.met.front().IpText();
#pragma once

#include <vector>

#include "ccl/bootstrap/address.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/bootstrap/interfaces.h"

namespace trnccl {

struct OwnAddresses {
  // Those at which ranks of other hosts were met: they reach them.
  std::vector<SocketAddress> met;
  // Those of the interfaces that are chosen, best first.
  std::vector<SocketAddress> chosen;
};

// The ends of a connection.
struct SocketEnds {
  SocketAddress own;
  SocketAddress peer;
};

// Who's met at one's own address is on the same host, and tells nothing.
// Named interfaces rule out others, whatever was met there.
OwnAddresses FindOwnAddresses(const std::vector<SocketEnds>& sockets,
                              const std::vector<NetworkInterface>& interfaces,
                              const InterfaceChoice& choice);

// Nothing where the kernel tells nothing.
OwnAddresses OwnAddressesOf(const Bootstrap& bootstrap,
                            const InterfaceChoice& choice);

}  // namespace trnccl
