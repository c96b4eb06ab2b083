// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the ranks of a communicator tell each other beside the data: that one
// has failed, and why; and, after a while of waiting, in which call a rank
// waits, so that two that wait for each other in different calls find out; and
// that a rank has refused a call of its own, or left.
//
// Each rank tells each other rank directly, on a lane that carries nothing
// else. A rank that isn't in the library reads it when it is. What was said
// outlives the one who said it, as far as the transport's messages do.
//
// Not here: what is to be done about it (ccl/communicator).
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   health.Listen();
//   if (const Health::Notice* notice = health.notice()) Fail(notice->cause);
//   health.Tell({.origin = 2, .sequence = 7, .cause = cause});
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "ccl/base/membership.h"
#include "ccl/route.h"

namespace trnccl {

class Health {
 public:
  struct Options {
    Membership membership;
    const Routes* routes = nullptr;  // connected; outlives this
    int lane = 0;                    // the first of kLanes
    uint32_t cookie = 0;             // others' messages are refused
  };
  // One for failures and leaving, one for what may be lost: a link may hold
  // just one message, and a peer that doesn't read hints must still learn of a
  // failure.
  static constexpr int kLanes = 2;
  explicit Health(const Options& options);

  // That a rank's communicator has failed.
  struct Notice {
    int origin = 0;  // the rank that it began at
    // Of the first collective that whoever says so hasn't completed.
    uint32_t sequence = 0;
    absl::Status cause;
  };

  // Tells all peers that this rank has failed, with the first cause: what it
  // heard, if it heard of a failure. Each peer is told once; one whose link is
  // full is tried again by the next Tell().
  void Tell(const Notice& notice);

  // Tells all peers that this rank waits in that call. Not to those who haven't
  // read the last one.
  void SayWaiting(const Envelope& call);

  // That this rank has refused its own call, so that its peers may wait for it
  // in vain.
  struct Refusal {
    uint32_t sequence = 0;  // that the call would have had
    uint32_t times = 0;     // that a call was refused at this point
    std::string text;
    int64_t heard_ns = 0;  // when; not told
  };
  void SayRefused(const Refusal& refusal);
  // That the call which was refused is made after all. Who has no room for that
  // is told by the next Listen() or SayWaiting(): a refusal that nobody takes
  // back counts against all later calls.
  void SayMade(const Envelope& call);

  // A rank's last calls, the latest first; zeros where there are none. Who is
  // further behind needs something of it sooner or later, and learns by that.
  using LastCalls = std::array<Envelope, 8>;
  static std::string TextOf(const LastCalls& calls);
  // Of what a peer sent: of a text that's too short, those that it holds.
  static LastCalls LastCallsOf(std::string_view text);
  // A rank that has ended its communicator in order.
  struct Leaving {
    uint32_t sequence = 0;  // it makes no call from here on
    LastCalls last_calls = {};
    int64_t heard_ns = 0;  // when; not told
  };
  // Tells the peers of the node that this rank has. Those of other nodes learn
  // of it by the watch (vigil.h): a message may cost a connection to each.
  void SayLeft(const Leaving& leaving);
  // What the watch has heard.
  void HearLeft(int rank, const Leaving& leaving);

  // Takes in what peers have said. A few loads a peer if that's nothing.
  void Listen();
  // The same, of failures and leaving alone.
  void ListenForFailures();

  // The first that was heard, or null; its sequence is the lowest of all.
  const Notice* notice() const {
    return notice_.has_value() ? &*notice_ : nullptr;
  }

  // The call that a peer last said it waits in, or null.
  const Envelope* WaitingIn(int rank) const;

  // What a peer last refused, and that it hasn't made since; or null.
  const Refusal* RefusedBy(int rank) const;

  bool anyone_left() const { return anyone_left_; }
  // Whether a peer has left, or null.
  const Leaving* LeftBy(int rank) const;

  // The peers that haven't said that they failed or left.
  std::vector<int> Silent() const;

 private:
  struct Peer {
    Transport* transport = nullptr;  // null for the rank itself
    LinkId link;
    LinkId hints;
    bool told = false;    // has been told
    bool owed = false;    // the word that a refused call was made
    bool failed = false;  // has said so
    std::optional<Envelope> waiting;
    std::optional<Refusal> refusal;
    std::optional<Leaving> leaving;
  };

  void SayOwed();
  void ListenTo(LinkId Peer::*link);
  // Says it wherever there's room.
  void SayToAll(LinkId Peer::*link, const Envelope& envelope,
                std::string_view payload);
  void Hear(Peer& peer, const Incoming& message);
  void HearFailure(Peer& peer, const Incoming& message);

  bool anyone_left_ = false;
  const uint32_t cookie_;
  std::vector<Peer> peers_;  // by rank
  std::optional<Notice> notice_;
  bool owes_ = false;  // any of them
  Envelope made_;      // what's owed
};

}  // namespace trnccl
