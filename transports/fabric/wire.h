// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What endpoints of the fabric transport write to each other. Both ends run the
// same release on the same kind of processor (the bootstrap compares versions),
// so structures travel as they lie.
//
// A short message is one packet: a header and the payload. A long one waits
// until the receiver has said where it may go: the sender announces it, the
// receiver answers (or has said so before, if it knew what comes) that it's
// ready, and then the payload travels straight into that memory, as a tagged
// message with a header of its own, or written by the sender's adapter.
//
//   sender      receiver            sender      receiver
//     | kMessage -> |                 | kAnnounce -> |    left out if kReady
//                                     | <--- kReady  |    came first
//                                     | payload ---> |
//
// Thread rule: plain values.
//
//   WireHeader header{.kind = WireKind::kCredit, ...};
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace trnccl::fabric {

// The most endpoints (network adapters) that one process uses at once.
inline constexpr size_t kMaxRails = 16;

enum class WireKind : uint8_t {
  kMessage,   // the whole message
  kAnnounce,  // a long message that waits for kReady
  kReady,     // the receiver's memory for message `sequence`
  kPayload,   // heads the payload of a long message that travels tagged
  kCredit,    // nothing but `released`
  kLeaving,  // the sender takes no more, and waits until the receiver has taken
             // what it was sent
};

struct WireHeader {
  uint32_t cookie = 0;    // the receiving transport's own: who has its address
                          // by the bootstrap knows it, and no stranger does
  uint32_t endpoint = 0;  // which of the receiver's transports
  uint32_t source = 0;    // the sender's rank
  uint32_t sequence = 0;  // of the message, on its link
  uint32_t released = 0;  // of the other direction: all before it are
  uint16_t lane = 0;
  WireKind kind = WireKind::kMessage;
  uint8_t stripes = 0;   // kReady: on how many rails
  uint64_t bytes = 0;    // of the message; kReady: of the memory
  Envelope envelope;     // kMessage, kAnnounce, kPayload
  uint64_t landing = 0;  // kReady: the tag, or the number to write with
};
static_assert(sizeof(WireHeader) == 64);

// Where a stripe may be written: the payload of kReady, one a rail.
struct WireTarget {
  uint64_t address = 0;
  uint64_t key = 0;
};
using WireTargets = std::array<WireTarget, kMaxRails>;

}  // namespace trnccl::fabric
