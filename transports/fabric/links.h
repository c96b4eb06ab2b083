// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the fabric transport keeps of each link: the window of messages that are
// on their way. Made when a link is first used, since of a thousand peers most
// never send to each other.
//
// Thread rule: plain values; the port's lock guards them.
//
//   OutSlot& slot = link.out.slots[sequence % kWindow];
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transports/fabric/buffers.h"
#include "transports/fabric/region.h"
#include "transports/fabric/wire.h"
#include "transports/transport.h"

namespace trnccl::fabric {

// Messages of one link between the first that the receiver isn't known to have
// released and the next.
inline constexpr uint32_t kWindow = 32;

// A message that's as long as this may lie in its sender's kernel for a while.
inline constexpr size_t kBulkBytes = size_t{4} << 10;

// A message that's on its way.
struct OutSlot {
  enum class State : uint8_t { kFree, kAwaitsReady, kSending };

  State state = State::kFree;
  uint32_t open = 0;  // sends that haven't completed
  Envelope envelope;
  size_t bytes = 0;
  const std::byte* data = nullptr;
  Payload* payload = nullptr;            // where it lies, if it's the port's
  const FabricRegion* region = nullptr;  // or this
};

struct OutLink {
  uint32_t next = 0;       // the number of the next message
  uint32_t released = 0;   // all before are, as far as is known
  uint32_t delivered = 0;  // all before have left this rank's memory
  // All before may lie in this rank's kernel, as long as they aren't released.
  uint32_t lingering = 0;
  bool said_leaving = false;
  bool awaits_release = false;  // of those; then that counts as unsent
  bool is_taken = true;         // false: the peer takes nothing any more
  // What the receiver said of the next message before it was sent.
  bool is_ready = false;
  WireHeader ready;
  WireTargets targets;
  std::array<OutSlot, kWindow> slots;
};

// A message that has come, or is coming.
struct InSlot {
  enum class State : uint8_t { kNone, kPacket, kAnnounced, kLanded };

  State state = State::kNone;
  Receive* packet = nullptr;  // kPacket
  Envelope envelope;          // kAnnounced, kLanded
  size_t bytes = 0;           // likewise
};

struct InLink {
  uint32_t head = 0;           // the number of the oldest that isn't released
  uint32_t told = 0;           // the peer knows that all before are released
  bool tells_each = false;     // since it's leaving
  Landing* landing = nullptr;  // for the oldest
  const FabricRegion* region = nullptr;  // the landing's, if it's the caller's
  bool landed = false;                   // its payload is there
  Incoming incoming;
  std::array<InSlot, kWindow> slots;
};

struct LinkState {
  OutLink out;
  InLink in;
};

}  // namespace trnccl::fabric
