// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The 128 bytes by which ranks find each other: a secret and where to meet.
// Making one also binds the listener behind it, so that there's never a chosen
// port to lose; the listener waits in a process-wide table for the first rank
// of this process that takes it, and that rank serves the others.
//
// Thread rule: UniqueId is a plain value; the two functions are thread-safe.
//
//   ASSIGN_OR_RETURN(UniqueId id, CreateUniqueId({}));   // on one rank
//   Broadcast(id.Serialize());                           // by other means
//   ASSIGN_OR_RETURN(UniqueId id, UniqueId::Parse(bytes));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/bootstrap/address.h"
#include "ccl/bootstrap/handshake.h"
#include "ccl/bootstrap/interfaces.h"
#include "ccl/bootstrap/socket.h"

namespace trnccl {

inline constexpr size_t kUniqueIdBytes = 128;

struct UniqueId {
  Secret secret = {};
  std::vector<SocketAddress> addresses;  // the best first

  std::string Serialize() const;
  // InvalidArgument for whatever Serialize didn't write.
  static absl::StatusOr<UniqueId> Parse(std::string_view bytes);

  // For messages: the addresses without the secret.
  std::string ToString() const;
};

absl::StatusOr<UniqueId> CreateUniqueId(const InterfaceChoice& choice);

// The listeners behind `id` if this process made it and no rank has taken them
// yet; otherwise none.
std::vector<Socket> TakeListeners(const UniqueId& id);

// A place where ranks may come to meet, as often as they need to: those who
// come before somebody serves there wait. It's in no table: who has it serves.
class MeetingPlace {
 public:
  static absl::StatusOr<std::unique_ptr<MeetingPlace>> Open(
      const Secret& secret, const SocketAddress& address);

  const UniqueId& id() const { return id_; }
  // To serve a meeting with.
  absl::StatusOr<std::vector<Socket>> Listeners() const;

 private:
  MeetingPlace(UniqueId id, std::vector<Socket> listeners)
      : id_(std::move(id)), listeners_(std::move(listeners)) {}

  UniqueId id_;
  std::vector<Socket> listeners_;
};

}  // namespace trnccl
