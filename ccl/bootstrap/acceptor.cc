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

// How often a rank comes to a server that sends it away.
constexpr int kVisits = 5;

absl::Status Prove(const Socket& socket, const Secret& secret,
                   const Patience& patience) {
  ASSIGN_OR_RETURN(const ClientHandshake handshake,
                   ClientHandshake::Start(secret));
  RETURN_IF_ERROR(SendAll(socket, handshake.Opening(), patience));
  std::string challenge(kChallengeBytes, '\0');
  RETURN_IF_ERROR(
      ReceiveAll(socket, challenge.data(), challenge.size(), patience));
  ASSIGN_OR_RETURN(const std::string proof, handshake.Prove(challenge));
  return SendAll(socket, proof, patience);
}

}  // namespace

void Acceptor::AppendPollFds(std::vector<pollfd>* fds) const {
  if (HasRoom()) {
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
  if (!HasRoom()) DropLingerers();
  return guests;
}

void Acceptor::DropLingerers() {
  std::erase_if(visitors_, [](const Visitor& visitor) {
    return visitor.stage < Stage::kLength && visitor.crowded_deadline.expired();
  });
}

absl::Status Acceptor::TakeConnections() {
  starved_ = false;
  for (const Socket& listener : listeners_) {
    while (HasRoom()) {
      absl::StatusOr<Socket> socket = Accept(listener);
      // Descriptors come back as visitors leave.
      starved_ = absl::IsResourceExhausted(socket.status());
      if (starved_ && !visitors_.empty()) return absl::OkStatus();
      if (!socket.ok()) return socket.status();
      if (!socket->is_open()) break;
      ASSIGN_OR_RETURN(ServerHandshake handshake,
                       ServerHandshake::Start(secret_));
      visitors_.push_back(
          {.socket = *std::move(socket),
           .handshake = std::move(handshake),
           .deadline = Deadline::After(limits_.visit_ms),
           .crowded_deadline = Deadline::After(limits_.crowded_visit_ms)});
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
  for (int visit = 1;; ++visit) {
    ASSIGN_OR_RETURN(Socket socket, Dial(addresses, patience));
    const absl::Status proved = Prove(socket, secret, patience);
    if (proved.ok()) return socket;
    if (absl::IsUnavailable(proved) && visit < kVisits) continue;
    return absl::Status(
        proved.code(),
        absl::StrCat("handshake with ", socket.peer(), ": ", proved.message()));
  }
}

}  // namespace trnccl
