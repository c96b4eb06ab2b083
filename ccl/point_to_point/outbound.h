// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A message of the control lane that waits for room on its link, and how it's
// written there.
//
// Thread rule: thread-compatible.
//
//   Outbound offer{{.kind = MessageKind::kOffer, ...}, &send};
//   if (WriteMessage(&offer, link)) Sent(offer);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ccl/point_to_point/message.h"
#include "ccl/point_to_point/transfer.h"
#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

struct Outbound {
  MessageHeader header;
  // A send, or the receive that was read; null for other messages.
  Transfer* transfer = nullptr;
  std::shared_ptr<const std::string> why = nullptr;  // of declined
};

struct ControlLink {
  Transport* transport = nullptr;
  LinkId link;
  PeerMemory* memory = nullptr;  // null if the peer can't read this rank's
  size_t unmapped_min_bytes = SIZE_MAX;
  uint32_t cookie = 0;
};

// An offer becomes a readable one where it can. False if there's no room.
bool WriteMessage(Outbound* outbound, const ControlLink& to);

}  // namespace trnccl
