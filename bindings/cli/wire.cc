// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/cli/wire.h"

#include "absl/memory/memory.h"
#include "ccl/base/status_macros.h"
#include "transports/shm/shm.h"

namespace trnccl::cli {

absl::StatusOr<std::unique_ptr<Wire>> Wire::Connect(Seat& seat) {
  auto wire = absl::WrapUnique(new Wire(seat));
  // Nobody sleeps here, but who has no doorbell sends a little faster.
  ASSIGN_OR_RETURN(wire->doorbell_, Doorbell::Create());
  ASSIGN_OR_RETURN(wire->transport_,
                   MakeShmTransport({.doorbell = wire->doorbell_.get()}));
  ASSIGN_OR_RETURN(const std::string address,
                   seat.Swap(wire->transport_->traits().address));
  RETURN_IF_ERROR(wire->transport_->Connect(
      {.peers = {{.rank = seat.peer(), .address = address}},
       .rank = seat.rank(),
       .deadline = seat.deadline()}));
  wire->link_ = wire->transport_->Link(0, 0);
  return wire;
}

template <typename Condition>
absl::Status Wire::Await(Condition condition) {
  absl::Status status;
  RETURN_IF_ERROR(seat_.Await([&] {
    if (condition()) return true;
    status = transport_->Progress();
    return !status.ok();
  }));
  return status;
}

absl::StatusOr<std::byte*> Wire::Reserve(size_t bytes) {
  std::byte* slice = nullptr;
  RETURN_IF_ERROR(
      Await([&] { return (slice = TryReserve(bytes)) != nullptr; }));
  return slice;
}

absl::StatusOr<const Incoming*> Wire::Receive() {
  const Incoming* message = nullptr;
  RETURN_IF_ERROR(Await(
      [&] { return (message = transport_->Peek(link_, nullptr)) != nullptr; }));
  return message;
}

absl::Status Wire::Drain() {
  return Await([&] { return transport_->Pending(link_) == 0; });
}

}  // namespace trnccl::cli
