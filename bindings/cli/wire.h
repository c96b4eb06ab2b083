// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The shared-memory links between the two processes of a pair, as a
// communicator has them, with waiting.
//
// Thread rule: that of Transport.
//
//   ASSIGN_OR_RETURN(auto wire, Wire::Connect(seat));
//   ASSIGN_OR_RETURN(std::byte* slice, wire->Reserve(bytes));
//   wire->Send(bytes);
//   ASSIGN_OR_RETURN(const Incoming* message, wire->Receive());
//   wire->Release();
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/cli/pair.h"
#include "transports/doorbell.h"
#include "transports/transport.h"

namespace trnccl::cli {

class Wire {
 public:
  // By both, together. The seat outlives the wire.
  static absl::StatusOr<std::unique_ptr<Wire>> Connect(Seat& seat);

  Transport& transport() { return *transport_; }

  // Waits for room.
  absl::StatusOr<std::byte*> Reserve(size_t bytes);
  // Null where there's no room.
  std::byte* TryReserve(size_t bytes) {
    return transport_->Reserve({&link_, 1}, bytes);
  }
  void Send(size_t bytes) { transport_->Send({&link_, 1}, {.bytes = bytes}); }
  // Waits for a message.
  absl::StatusOr<const Incoming*> Receive();
  void Release() { transport_->Release(link_); }
  // Waits until the peer has released all messages.
  absl::Status Drain();

 private:
  explicit Wire(const Seat& seat) : seat_(seat) {}
  // Until the condition holds; the transport's error if it has one.
  template <typename Condition>
  absl::Status Await(Condition condition);

  const Seat& seat_;
  std::unique_ptr<Doorbell> doorbell_;
  std::unique_ptr<Transport> transport_;
  LinkId link_;
};

}  // namespace trnccl::cli
