// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Which of their own sends and receives ranks have refused, for bad arguments:
// what this rank has told its peers of that, and what they have told it. A
// later call that is made in the place of a refused one takes it back.
//
// Not here: how it's told (point_to_point.h); how long one who waits leaves the
// other to make the call after all (ccl/communicator).
//
// Thread rule: thread-compatible.
//
//   if (refusals.Note(3, {Transfer::kSend, tag})) Tell(3, ...);
//   refusals.TakeBack(transfer, [&](int rank, const RefusedCall& call) {...});
//   if (const Refusals::Heard* heard = refusals.Against(2, waiting)) ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ccl/point_to_point/transfer.h"

namespace trnccl {

// As its rank named it: the tag of a send may be one that can't be.
struct RefusedCall {
  Transfer::Direction direction = Transfer::kSend;
  int64_t tag = 0;

  bool operator==(const RefusedCall&) const = default;
};

class Refusals {
 public:
  explicit Refusals(int ranks) : peers_(static_cast<size_t>(ranks)) {}

  // What a peer has refused.
  struct Heard {
    RefusedCall call;
    uint32_t times = 0;
    std::string why;
    int64_t heard_ns = 0;
  };
  // So many different calls are kept of each rank, whatever a peer says.
  static constexpr size_t kMostCalls = 64;

  // This rank's own, with that peer; false if it can't be told, because it
  // couldn't be taken back.
  bool Note(int peer, const RefusedCall& call);
  // Whether any of its own is still to be taken back.
  bool owes() const { return owes_; }
  // Of a call that's made: tell(peer, refused) of each that it takes back.
  template <typename Tell>
  void TakeBack(const Transfer& made, const Tell& tell) {
    if (!owes_) [[likely]]
      return;
    owes_ = false;
    for (size_t rank = 0; rank < peers_.size(); ++rank)
      TakeBackFrom(static_cast<int>(rank), made, tell);
  }

  void Hear(int peer, const RefusedCall& call, std::string why);
  void HearMade(int peer, const RefusedCall& call);

  // A peer's refusal that this transfer may wait for in vain, or null. What
  // both ranks have refused is nobody's to wait for.
  const Heard* Against(int peer, const Transfer& waiting) const;

 private:
  struct Own {
    RefusedCall call;
    uint32_t times = 0;
    bool owed = false;  // to be taken back
  };
  struct Peer {
    std::vector<Own> own;
    std::vector<Heard> heard;
  };

  template <typename Tell>
  void TakeBackFrom(int rank, const Transfer& made, const Tell& tell) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    for (Own& own : peer.own) {
      if (own.owed && Replaces(made, rank, own.call)) {
        tell(rank, own.call);
        own.owed = false;
        // What the peer has refused alike stays nobody's.
        own.times = std::min(own.times, HeardTimes(peer, own.call));
      }
      owes_ |= own.owed;
    }
    std::erase_if(peer.own, [](const Own& own) { return own.times == 0; });
  }
  static bool Replaces(const Transfer& made, int peer, const RefusedCall& call);
  static uint32_t HeardTimes(const Peer& peer, const RefusedCall& own);
  static uint32_t OwnTimes(const Peer& peer, const RefusedCall& heard);

  std::vector<Peer> peers_;  // by rank
  bool owes_ = false;        // any of them
};

}  // namespace trnccl
