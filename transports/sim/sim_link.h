// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One simulated link: a FIFO of messages, each with the moments at which it
// leaves its sender, arrives, and is known to have been released. It draws
// nothing and knows no clock: it's told.
//
// On a wire that doesn't deliver (Traits::delivers), as in shared memory, a
// message is where the receiver finds it as soon as it's sent, and one by
// reference is read from the sender's own memory. On one that does, a message
// leaves only in a call of its sender's, and by reference it's copied then.
//
// Thread rule: thread-compatible; the network's lock guards it.
//
//   SimLink link({.capacity = 1, .slice_bytes = 256});
//   if (!link.Full(now)) link.Send(message, {.now = now, .delay = 100});
//   const Incoming* message = link.Peek(now + 100, nullptr);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/transport.h"

namespace trnccl {

struct SimLinkForm {
  size_t capacity = 1;  // messages
  size_t slice_bytes = 4096;
  size_t inline_bytes = 0;  // longer ones may land where they're expected
  bool delivers = false;
};

class SimLink {
 public:
  explicit SimLink(const SimLinkForm& form);

  struct Times {
    int64_t now_ns = 0;
    int64_t delay_ns = 0;
  };

  // The sender's.
  bool Full(int64_t now_ns);
  size_t Pending(int64_t now_ns);
  // Where the next message is built.
  std::byte* Slice();
  void Send(const Outgoing& message, const Times& times);
  // Messages that leave now; only where the wire delivers.
  size_t Leave(int64_t now_ns);
  // Gives up its caller's memory: what was sent is seen from now on, but what
  // lies in that memory is garbage, or, where the wire delivers, never leaves.
  // The messages that don't.
  size_t Abandon(int64_t now_ns);

  // The receiver's.
  const Incoming* Peek(int64_t now_ns, const Expected* expected);
  void Release(const Times& times);

  // Nothing passes any more.
  void Cut(int64_t now_ns) { cut_ns_ = std::min(cut_ns_, now_ns); }
  // What hasn't left by now never will.
  void LoseSender(int64_t now_ns);
  // The next moment after `now_ns` at which something happens.
  int64_t NextNs(int64_t now_ns) const;
  // Whether news are on their way, to either end.
  bool Busy(int64_t now_ns) const { return NextNs(now_ns) != INT64_MAX; }

 private:
  struct Message {
    Incoming incoming;
    std::unique_ptr<std::byte[]> slice;  // made when first used
    const std::byte* source = nullptr;   // by reference: the sender's memory
    int64_t leaves_ns = 0;
    int64_t arrives_ns = 0;
    int64_t known_ns = 0;  // to the sender, as released
    bool peeked = false;
  };
  Message& At(size_t number) { return ring_[number % ring_.size()]; }
  const Message& At(size_t number) const {
    return ring_[number % ring_.size()];
  }
  void Settle(int64_t now_ns);

  const SimLinkForm form_;
  std::vector<Message> ring_;
  // Numbers of messages: known <= released <= left <= sent.
  size_t sent_ = 0;
  size_t left_ = 0;
  size_t released_ = 0;
  size_t known_ = 0;
  int64_t last_arrival_ns_ = 0;
  int64_t last_known_ns_ = 0;
  int64_t cut_ns_ = INT64_MAX;
  bool stuck_ = false;  // its sender has gone: nothing leaves any more
};

}  // namespace trnccl
