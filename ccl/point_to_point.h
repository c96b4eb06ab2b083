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
// the memory is registered.
//
// Not here: waiting, deadlines, requests (ccl/communicator).
//
// Thread rule: thread-compatible; owned with its communicator.
//
//   Transfer receive{.direction = Transfer::kReceive, .peer = kAnySource, ...};
//   point_to_point.Start(&receive);
//   while (!receive.done) point_to_point.Advance();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/base/membership.h"
#include "ccl/base/types.h"
#include "ccl/route.h"
#include "transports/transport.h"

namespace trnccl {

inline constexpr int kAnySource = -1;
inline constexpr int64_t kAnyTag = -1;

// One send or receive. The caller keeps it until it's done.
struct Transfer {
  enum Direction : uint8_t { kSend, kReceive };

  Direction direction = kSend;
  DataType type = DataType::kUint8;
  int peer = 0;  // kAnySource for receives
  int64_t tag = 0;
  std::byte* buffer = nullptr;  // only read by a send
  size_t bytes = 0;             // a receive's capacity
  const Region* region =
      nullptr;  // registered memory that holds a send's buffer

  // Results, once `done`.
  bool done = false;
  absl::Status status;
  int source = 0;
  int64_t received_tag = 0;
  size_t received_bytes = 0;

  uint32_t id = 0;  // the engine's own
  size_t moved_bytes = 0;
};

class PointToPoint {
 public:
  struct Options {
    Membership membership;
    const Routes* routes = nullptr;  // outlives this
    int control_lane = 0;
    int data_lane = 1;
    uint32_t cookie = 0;  // rides in every envelope; others are refused
  };
  explicit PointToPoint(const Options& options);
  ~PointToPoint();

  // Starts a transfer; it may be done on return. Sends to oneself are matched
  // without any transport.
  void Start(Transfer* transfer);

  // Moves what can move. True if anything did. An error is a peer's broken
  // message: it fails the communicator.
  absl::StatusOr<bool> Advance();

  // Whether Advance() has anything to do but look for arrivals.
  bool busy() const;

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
