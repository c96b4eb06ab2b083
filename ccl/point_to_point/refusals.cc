// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/point_to_point/refusals.h"

#include <utility>

#include "ccl/base/clock.h"

namespace trnccl {
namespace {

// Whether the one's message would be the other's.
bool Matches(const RefusedCall& a, const RefusedCall& b) {
  if (a.direction == b.direction) return false;
  const RefusedCall& receive = a.direction == Transfer::kReceive ? a : b;
  return receive.tag == kAnyTag || a.tag == b.tag;
}

// Of the call in a list, which is added if there's room.
template <typename Item>
Item* FindOrAdd(std::vector<Item>& items, const RefusedCall& call) {
  for (Item& item : items)
    if (item.call == call) return &item;
  if (items.size() >= Refusals::kMostCalls) return nullptr;
  items.push_back({.call = call});
  return &items.back();
}

}  // namespace

bool Refusals::Note(int peer, const RefusedCall& call) {
  Own* own = FindOrAdd(peers_[static_cast<size_t>(peer)].own, call);
  if (own == nullptr) return false;
  ++own->times;
  own->owed = true;
  owes_ = true;
  return true;
}

void Refusals::Hear(int peer, const RefusedCall& call, std::string why) {
  Heard* heard = FindOrAdd(peers_[static_cast<size_t>(peer)].heard, call);
  if (heard == nullptr) return;
  ++heard->times;
  heard->why = std::move(why);
  heard->heard_ns = NowNs();
}

void Refusals::HearMade(int peer, const RefusedCall& call) {
  Peer& from = peers_[static_cast<size_t>(peer)];
  std::erase_if(from.heard,
                [&](const Heard& heard) { return heard.call == call; });
  std::erase_if(from.own, [&](const Own& own) {
    return !own.owed && Matches(own.call, call);
  });
}

const Refusals::Heard* Refusals::Against(int peer,
                                         const Transfer& waiting) const {
  const bool any =
      waiting.direction == Transfer::kReceive && waiting.peer == kAnySource;
  if (waiting.peer != peer && !any) return nullptr;
  const Peer& of = peers_[static_cast<size_t>(peer)];
  for (const Heard& heard : of.heard) {
    if (Matches(heard.call, {waiting.direction, waiting.tag}) &&
        heard.times > OwnTimes(of, heard.call))
      return &heard;
  }
  return nullptr;
}

// A tag that can't be was meant to be another.
bool Refusals::Replaces(const Transfer& made, int peer,
                        const RefusedCall& call) {
  const bool receives = made.direction == Transfer::kReceive;
  return made.direction == call.direction &&
         (made.peer == peer || (receives && made.peer == kAnySource)) &&
         (made.tag == call.tag || (receives && made.tag == kAnyTag) ||
          call.tag < (receives ? kAnyTag : 0));
}

uint32_t Refusals::HeardTimes(const Peer& peer, const RefusedCall& own) {
  uint32_t times = 0;
  for (const Heard& heard : peer.heard)
    if (Matches(heard.call, own)) times += heard.times;
  return times;
}

uint32_t Refusals::OwnTimes(const Peer& peer, const RefusedCall& heard) {
  uint32_t times = 0;
  for (const Own& own : peer.own)
    if (Matches(own.call, heard)) times += own.times;
  return times;
}

}  // namespace trnccl
