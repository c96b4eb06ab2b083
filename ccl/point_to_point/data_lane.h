// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The data lane to and from one peer: the slices of accepted messages, one
// message after the other in the order of the answers, by reference where the
// memory is registered.
//
// Thread rule: thread-compatible.
//
//   lane.Send(send);  // once the peer has accepted it
//   ASSIGN_OR_RETURN(const bool moved, lane.Advance());
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ccl/point_to_point/fifo.h"
#include "ccl/point_to_point/transfer.h"
#include "transports/transport.h"

namespace trnccl {

class DataLane {
 public:
  struct Options {
    Transport* transport = nullptr;  // null for the rank itself
    LinkId link;
    int peer = 0;
    uint32_t cookie = 0;
    // An error once the peer has failed or left, by its word. Asked between
    // reading its memory and telling it so: then it can't have left in order.
    std::function<absl::Status(int peer)> gone;
  };
  explicit DataLane(Options options) : options_(std::move(options)) {}

  void Send(Transfer* send) { sending_.push_back(send); }
  void Receive(Transfer* receive) { receiving_.push_back(receive); }

  // True if anything moved. An error says what is wrong with a message.
  absl::StatusOr<bool> Advance();
  bool busy() const {
    return !sending_.empty() || !receiving_.empty() || !still_read_.empty();
  }
  // Every transfer that's on it is done with this status.
  void FailAll(const absl::Status& status);

 private:
  // A send by reference, all of it sent, that the peer may still read.
  struct StillRead {
    Transfer* transfer = nullptr;
    uint64_t last_message = 0;  // its number on the link, from 1
  };

  absl::StatusOr<bool> Read();
  // The next message, which belongs to the first transfer that receives.
  const Incoming* Look();
  bool Write();
  bool WriteSlice(Transfer& send);
  bool FinishReleased();
  bool GoesByReference(const Transfer& send) const;

  Options options_;
  Fifo<Transfer*> sending_;    // accepted, in the order of the answers
  Fifo<Transfer*> receiving_;  // the same, of this rank's answers
  Fifo<StillRead> still_read_;
  uint64_t messages_ = 0;  // sent so far
};

}  // namespace trnccl
