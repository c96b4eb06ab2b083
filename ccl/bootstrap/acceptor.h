// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The serving side of a handshake: takes connections, lets in who knows the
// secret, and reads the one message with which each starts. Everyone else is
// dropped without effect: garbage, oversized lengths, a wrong secret, and
// whoever dribbles or says nothing for a few seconds. A crowd of those doesn't
// keep a rank waiting, nor is it an error that they leave no descriptors.
//
// Thread rule: one thread. Never waits: its owner polls.
//
//   acceptor.AppendPollFds(&fds);
//   PollSlice(fds.data(), fds.size(), patience);
//   ASSIGN_OR_RETURN(std::vector<Guest> guests, acceptor.Progress());
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ccl/base/clock.h"
#include "ccl/bootstrap/handshake.h"
#include "ccl/bootstrap/socket.h"

namespace trnccl {

inline constexpr size_t kMaxHelloBytes = 16 << 10;

// Someone who knows the secret, and what they said first.
struct Guest {
  Socket socket;
  std::string hello;
};

class Acceptor {
 public:
  struct Limits {
    // That are let in but haven't said their hello; further ones wait in the
    // kernel's queue.
    size_t visitors = 256;
    int visit_ms = 5'000;  // until a visitor has said it
    // Likewise until it has proved itself, while there's no room for others.
    int crowded_visit_ms = 1'000;
  };

  Acceptor(std::vector<Socket> listeners, const Secret& secret)
      : Acceptor(std::move(listeners), secret, Limits{}) {}
  Acceptor(std::vector<Socket> listeners, const Secret& secret,
           const Limits& limits)
      : limits_(limits), listeners_(std::move(listeners)), secret_(secret) {}

  void AppendPollFds(std::vector<pollfd>* fds) const;

  // Goes as far as what has arrived allows. An error is the machine's: no
  // descriptors, no random bytes.
  absl::StatusOr<std::vector<Guest>> Progress();

 private:
  enum class Stage { kOpening, kProof, kLength, kHello, kDone };

  struct Visitor {
    Socket socket;
    ServerHandshake handshake;
    Deadline deadline;
    Deadline crowded_deadline;
    Stage stage = Stage::kOpening;
    std::string bytes;  // received of this stage
    size_t wanted_bytes = kOpeningBytes;
  };

  bool HasRoom() const {
    return !starved_ && visitors_.size() < limits_.visitors;
  }
  absl::Status TakeConnections();
  void DropLingerers();
  // An error means that the visitor is to be dropped.
  static absl::Status Advance(Visitor* visitor);
  static absl::Status FinishStage(Visitor* visitor);

  const Limits limits_;
  std::vector<Socket> listeners_;
  Secret secret_;
  std::vector<Visitor> visitors_;
  bool starved_ = false;  // there was no descriptor for one more
};

// The client's side: connects to the first of `addresses` that answers, and
// proves that it knows the secret; its hello, a frame, comes next. Comes again
// a few times if it's sent away, as by a server with too many visitors. The
// error lists what was tried.
absl::StatusOr<Socket> Visit(const std::vector<SocketAddress>& addresses,
                             const Secret& secret, const Patience& patience);

}  // namespace trnccl
