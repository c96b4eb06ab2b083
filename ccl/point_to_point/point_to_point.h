// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Point-to-point messages of one communicator: matching by (peer, tag) with
// any source and any tag, eager for short messages, rendezvous above.
//
// It runs on two lanes of its own, so that no collective waits for it and it
// waits for no collective. On the control lane each peer's messages arrive in
// the order sent: short payloads whole, longer ones as an offer that the
// receiver answers once a receive matches; the data then comes on the data
// lane, transfer by transfer in the order of the answers, by reference where
// the memory is registered. Where the receiver reaches the sender's memory
// (transports/peer_memory.h) it reads the data there instead, and says so: one
// copy, and nothing for the sender to do.
//
// Not here: waiting, deadlines, requests (ccl/communicator), and the
// transports' Progress(), which the owner calls.
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   Transfer receive{.direction = Transfer::kReceive, .peer = kAnySource, ...};
//   point_to_point.Start(&receive);
//   while (!receive.done) point_to_point.Advance();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/point_to_point/refusals.h"
#include "ccl/point_to_point/transfer.h"
#include "ccl/route.h"

namespace trnccl {

class PointToPoint {
 public:
  struct Options {
    Membership membership;
    const Routes* routes = nullptr;  // connected; outlives this
    int control_lane = 0;
    int data_lane = 1;
    uint32_t cookie = 0;    // rides in every envelope; others are refused
    uint32_t first_id = 0;  // of offers, for tests of their wrap
    // From here on peers may read memory that they can't map.
    size_t unmapped_min_bytes = SIZE_MAX;
    // An error once that rank has failed or left, with its origin.
    std::function<absl::Status(int rank)> gone;
  };
  explicit PointToPoint(const Options& options);
  ~PointToPoint();

  // Starts a transfer; it may be done on return. Sends to oneself are matched
  // without any transport.
  void Start(Transfer* transfer);

  // Tells the peer of a call that was refused for its arguments, and so isn't
  // started: a transfer there may wait for it. Nobody if there's no such peer.
  // A later Start() in its place takes it back.
  void Refuse(const Transfer& refused, std::string_view why);
  // What that rank has refused and this transfer waits for, or null.
  const Refusals::Heard* RefusalBy(int rank, const Transfer& waiting) const;

  // Moves what can move. True if anything did. An error is a peer's broken
  // message: it fails the communicator.
  absl::StatusOr<bool> Advance();

  // Whether messages are on the move, so that Advance() is worth calling again
  // at once. What waits for a first message or an answer doesn't count.
  bool busy() const;

  // No peer reads an unfinished send's buffer any more, for good; an error if
  // one may. To be called before failing them.
  absl::Status Leave();

  // Every unfinished transfer is done with this status.
  void FailAll(const absl::Status& status);

  // What an unfinished transfer waits for: "send of 64 bytes to rank 3, tag 7:
  // no matching receive yet".
  std::string Describe(const Transfer& transfer) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trnccl
