// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/acceptor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "ccl/bootstrap/dial.h"
#include "ccl/bootstrap/wire.h"

namespace trnccl {
namespace {

// How long a visitor may take to prove itself, and how many may be at it at
// once; further ones wait in the kernel's queue.
constexpr int kVisitMs = 5'000;
constexpr size_t kMaxVisitors = 64;

}  // namespace

void Acceptor::AppendPollFds(std::vector<pollfd>* fds) const {
  if (visitors_.size() < kMaxVisitors) {
    for (const Socket& listener : listeners_) {
      fds->push_back({listener.fd(), POLLIN, 0});
    }
  }
  for (const Visitor& visitor : visitors_) {
    fds->push_back({visitor.socket.fd(), POLLIN, 0});
  }
}

absl::StatusOr<std::vector<Guest>> Acceptor::Progress() {
  RETURN_IF_ERROR(TakeConnections());
  std::vector<Guest> guests;
  std::erase_if(visitors_, [&guests](Visitor& visitor) {
    if (!Advance(&visitor).ok() || visitor.deadline.expired()) return true;
    if (visitor.stage != Stage::kDone) return false;
    guests.push_back({std::move(visitor.socket), std::move(visitor.bytes)});
    return true;
  });
  return guests;
}

absl::Status Acceptor::TakeConnections() {
  for (const Socket& listener : listeners_) {
    while (visitors_.size() < kMaxVisitors) {
      ASSIGN_OR_RETURN(Socket socket, Accept(listener));
      if (!socket.is_open()) break;
      ASSIGN_OR_RETURN(ServerHandshake handshake,
                       ServerHandshake::Start(secret_));
      visitors_.push_back({.socket = std::move(socket),
                           .handshake = std::move(handshake),
                           .deadline = Deadline::After(kVisitMs)});
    }
  }
  return absl::OkStatus();
}

absl::Status Acceptor::Advance(Visitor* visitor) {
  while (visitor->stage != Stage::kDone) {
    const size_t done = visitor->bytes.size();
    visitor->bytes.resize(visitor->wanted_bytes);
    const absl::StatusOr<size_t> received = ReceiveSome(
        visitor->socket, &visitor->bytes[done], visitor->wanted_bytes - done);
    if (!received.ok()) return received.status();
    visitor->bytes.resize(done + *received);
    if (visitor->bytes.size() < visitor->wanted_bytes) {
      if (*received == 0) return absl::OkStatus();
      continue;
    }
    RETURN_IF_ERROR(FinishStage(visitor));
  }
  return absl::OkStatus();
}

absl::Status Acceptor::FinishStage(Visitor* visitor) {
  const std::string bytes = std::exchange(visitor->bytes, "");
  switch (visitor->stage) {
    case Stage::kOpening: {
      ASSIGN_OR_RETURN(const std::string challenge,
                       visitor->handshake.Challenge(bytes));
      visitor->stage = Stage::kProof;
      visitor->wanted_bytes = kProofBytes;
      // A fresh socket has room for it; who has none is no rank of ours.
      return SendAll(visitor->socket, challenge, {Deadline::After(0)});
    }
    case Stage::kProof:
      RETURN_IF_ERROR(visitor->handshake.Verify(bytes));
      visitor->stage = Stage::kLength;
      visitor->wanted_bytes = sizeof(uint32_t);
      return absl::OkStatus();
    case Stage::kLength:
      visitor->stage = Stage::kHello;
      visitor->wanted_bytes = WireReader(bytes).U32();
      if (visitor->wanted_bytes > 0 &&
          visitor->wanted_bytes <= kMaxHelloBytes) {
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError("a hello of a bad length");
    case Stage::kHello:
      visitor->bytes = bytes;
      visitor->stage = Stage::kDone;
      return absl::OkStatus();
    case Stage::kDone:
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Socket> Visit(const std::vector<SocketAddress>& addresses,
                             const Secret& secret, const Patience& patience) {
  ASSIGN_OR_RETURN(Socket socket, Dial(addresses, patience));
  const auto talk = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const ClientHandshake handshake,
                     ClientHandshake::Start(secret));
    RETURN_IF_ERROR(SendAll(socket, handshake.Opening(), patience));
    std::string challenge(kChallengeBytes, '\0');
    RETURN_IF_ERROR(
        ReceiveAll(socket, challenge.data(), challenge.size(), patience));
    ASSIGN_OR_RETURN(const std::string proof, handshake.Prove(challenge));
    return SendAll(socket, proof, patience);
  };
  const absl::Status said = talk();
  if (said.ok()) return socket;
  return absl::Status(
      said.code(),
      absl::StrCat("handshake with ", socket.peer(), ": ", said.message()));
}

}  // namespace trnccl
