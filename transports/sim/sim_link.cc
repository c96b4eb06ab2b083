// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/sim/sim_link.h"

#include <algorithm>
#include <cstring>

#include "ccl/base/check.h"

namespace trnccl {
namespace {

constexpr std::byte kGarbage{0xdb};

// A region of all memory begins at null, to which nothing may be added.
const std::byte* SourceOf(const Outgoing& message) {
  return reinterpret_cast<const std::byte*>(
      reinterpret_cast<uintptr_t>(message.region->base()) + message.offset);
}

}  // namespace

SimLink::SimLink(const SimLinkForm& form) : form_(form), ring_(form.capacity) {}

// Takes in which releases the sender knows of by now.
void SimLink::Settle(int64_t now_ns) {
  while (known_ < released_ && At(known_).known_ns <= now_ns &&
         At(known_).known_ns <= cut_ns_)
    ++known_;
}

bool SimLink::Full(int64_t now_ns) {
  Settle(now_ns);
  return stuck_ || sent_ - known_ == ring_.size();
}

size_t SimLink::Pending(int64_t now_ns) {
  Settle(now_ns);
  return sent_ - (form_.delivers ? left_ : known_);
}

std::byte* SimLink::Slice() {
  Message& next = At(sent_);
  if (next.slice == nullptr) next.slice.reset(new std::byte[form_.slice_bytes]);
  return next.slice.get();
}

void SimLink::Send(const Outgoing& message, const Times& times) {
  std::byte* slice = Slice();
  Message& next = At(sent_++);
  next.peeked = false;
  next.source = message.region == nullptr ? nullptr : SourceOf(message);
  next.incoming = {.envelope = message.envelope,
                   .data = next.source == nullptr ? slice : next.source,
                   .bytes = message.bytes,
                   .by_reference = next.source != nullptr && !form_.delivers};
  next.leaves_ns = times.now_ns + (form_.delivers ? times.delay_ns / 2 : 0);
  last_arrival_ns_ = std::max(last_arrival_ns_, times.now_ns + times.delay_ns);
  next.arrives_ns = last_arrival_ns_;
  if (!form_.delivers) ++left_;
}

size_t SimLink::Leave(int64_t now_ns) {
  size_t leaving = 0;
  for (; left_ < sent_ && !stuck_; ++left_, ++leaving) {
    Message& next = At(left_);
    if (next.leaves_ns > now_ns || next.leaves_ns > cut_ns_) break;
    if (next.source != nullptr) {
      if (next.incoming.bytes > 0)
        std::memcpy(next.slice.get(), next.source, next.incoming.bytes);
      next.incoming.data = next.slice.get();
    }
    last_arrival_ns_ = std::max(last_arrival_ns_, now_ns);
    next.arrives_ns = std::max(next.arrives_ns, now_ns);
  }
  return leaving;
}

size_t SimLink::Abandon(int64_t now_ns) {
  if (form_.delivers) {
    size_t first = left_;
    while (first < sent_ && At(first).source == nullptr) ++first;
    if (first == sent_) return 0;
    // One that's missing holds up all behind it.
    stuck_ = true;
    return sent_ - left_;
  }
  for (size_t number = released_; number < sent_; ++number) {
    Message& message = At(number);
    message.arrives_ns = std::min(message.arrives_ns, now_ns);
    if (message.source == nullptr) continue;
    std::fill_n(message.slice.get(), message.incoming.bytes, kGarbage);
    message.incoming.data = message.slice.get();
  }
  last_arrival_ns_ = std::min(last_arrival_ns_, now_ns);
  return 0;
}

const Incoming* SimLink::Peek(int64_t now_ns, const Expected* expected) {
  if (released_ == left_) return nullptr;
  Message& message = At(released_);
  if (message.peeked) return &message.incoming;
  if (message.arrives_ns > now_ns || message.arrives_ns > cut_ns_)
    return nullptr;
  message.peeked = true;
  const bool lands = form_.delivers && expected != nullptr &&
                     expected->landing != nullptr &&
                     expected->bytes == message.incoming.bytes &&
                     expected->bytes > form_.inline_bytes;
  if (lands) {
    std::memcpy(expected->landing, message.incoming.data, expected->bytes);
    message.incoming.data = expected->landing;
  }
  return &message.incoming;
}

void SimLink::Release(const Times& times) {
  TRNCCL_CHECK(released_ < left_ && At(released_).peeked);
  last_known_ns_ = std::max(last_known_ns_, times.now_ns + times.delay_ns);
  At(released_++).known_ns = last_known_ns_;
}

void SimLink::LoseSender(int64_t now_ns) {
  Leave(now_ns);
  stuck_ = true;
}

int64_t SimLink::NextNs(int64_t now_ns) const {
  int64_t next = INT64_MAX;
  const auto consider = [&](int64_t ns) {
    if (ns > now_ns && ns <= cut_ns_) next = std::min(next, ns);
  };
  if (left_ < sent_ && !stuck_) consider(At(left_).leaves_ns);
  if (released_ < left_) consider(At(released_).arrives_ns);
  if (known_ < released_) consider(At(known_).known_ns);
  return next;
}

}  // namespace trnccl
