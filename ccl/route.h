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
//   const Incoming* message = route.transport->Peek(link, nullptr);
#pragma once

#include <array>
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

// A buffer as each transport knows it.
class BufferRegions {
 public:
  // Null where it can't be sent by reference or landed in.
  const Region* Of(const Transport* transport) const {
    for (const Entry& entry : entries_)
      if (entry.transport == transport) return entry.region;
    return nullptr;
  }
  void Add(const Transport* transport, const Region* region) {
    for (Entry& entry : entries_) {
      if (entry.transport != nullptr) continue;
      entry = {transport, region};
      return;
    }
  }

 private:
  struct Entry {
    const Transport* transport = nullptr;
    const Region* region = nullptr;
  };
  std::array<Entry, 3> entries_ = {};  // as many as there are transports
};

}  // namespace trnccl
