// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What rides on the lanes of point-to-point, and the check of what a peer sent.
//
//   kind     lane     payload
//   eager    control  the whole message
//   offer    control  its length; the sender keeps the message
//   readable control  its length and where it lies: as an offer, or the
//   receiver
//                     may read it there
//   accept   control  the receive's capacity; the data may come
//   refuse   control  the receive's capacity; too short, or of another type
//   taken    control  the message's length; the receiver has read it
//   declined control  why the sender has refused a call of its own, for what
//                     its arguments are: not an answer
//   made     control  nothing; such a call is made after all
//   data     data     the next part of the message
//
// Everything else is in the envelope, so a payload starts at its slice's start.
// Lengths are 8 bytes; where a message lies is a MemoryOffer.
//
// Thread rule: pure functions.
//
//   transport.Send(links, {.envelope = SealMessage(header, cookie), ...});
//   ASSIGN_OR_RETURN(MessageHeader header, OpenMessage(*incoming, cookie));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ccl/base/types.h"
#include "transports/peer_memory.h"
#include "transports/transport.h"

namespace trnccl {

enum class MessageKind : uint8_t {
  kEager = 1,
  kOffer = 2,
  kAccept = 3,
  kRefuse = 4,
  kData = 5,
  kReadable = 6,
  kTaken = 7,
  kDeclined = 8,
  kMade = 9,
};

struct MessageHeader {
  MessageKind kind = MessageKind::kEager;
  DataType type = DataType::kUint8;  // of an answer: the receive's
  uint32_t id = 0;   // the sender's name for an offer, its answer and data; of
                     // declined and made: the call's direction
  int64_t tag = 0;   // of eager, offer and readable; of declined and made:
                     // the call's, whatever that is
  size_t bytes = 0;  // the whole message's; of an answer: the capacity; of
                     // data: this part's
};

// The payload of the kinds that carry a length, and of readable ones.
inline constexpr size_t kLengthBytes = sizeof(uint64_t);
inline constexpr size_t kReadableBytes = kLengthBytes + sizeof(MemoryOffer);

// What's told at most of why a call was refused.
inline constexpr size_t kMaxWhyBytes = 1024;

Envelope SealMessage(const MessageHeader& header, uint32_t cookie);

// An error says what is wrong with the message; nothing in it may be used.
absl::StatusOr<MessageHeader> OpenMessage(const Incoming& incoming,
                                          uint32_t cookie);

// Of a declined one that was opened.
std::string WhyOf(const Incoming& incoming);

// Of a readable message that was opened.
MemoryOffer OfferedMemory(const Incoming& incoming);

}  // namespace trnccl
