// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A route: which transport reaches a rank, and under which index. What the
// executor and point-to-point know of a communicator's wires.
//
// Thread rule: plain values; the transports they name have one owner at a time.
//
//   const Route& route = routes[peer];
//   LinkId link = route.Link(lane);
//   const Incoming* message = route.transport->Peek(link);
#pragma once

#include <cstdint>
#include <vector>

#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

struct Route {
  Transport* transport = nullptr;  // null for the rank itself
  uint32_t peer_index = 0;
  PeerMemory* memory = nullptr;  // null where it isn't reached

  LinkId Link(int lane) const { return transport->Link(peer_index, lane); }
};

// By rank.
using Routes = std::vector<Route>;

}  // namespace trnccl
