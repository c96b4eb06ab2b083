// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/dial.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

constexpr int kGiveUpMs = 10'000;
// What an address has before the next one is tried as well.
constexpr int kHeadStartMs = 250;

class Race {
 public:
  explicit Race(const std::vector<SocketAddress>& addresses)
      : addresses_(addresses) {}

  absl::StatusOr<Socket> Run(const Patience& patience) {
    const Deadline give_up =
        Deadline::Earlier(patience.deadline, Deadline::After(kGiveUpMs));
    Deadline head_start = Deadline::After(0);
    while (true) {
      if (started_ < addresses_.size() &&
          (running_.empty() || head_start.expired())) {
        RETURN_IF_ERROR(StartNext());
        head_start = Deadline::After(kHeadStartMs);
      }
      ASSIGN_OR_RETURN(Socket winner, Winner());
      if (winner.is_open()) return winner;
      if (running_.empty() && started_ == addresses_.size()) return Lost();
      if (absl::Status status = patience.Check(); absl::IsAborted(status)) {
        return status;
      }
      if (give_up.expired()) return Lost();
      Wait({Deadline::Earlier(give_up, head_start), patience.abort});
    }
  }

 private:
  // Only what ails this machine is an error.
  absl::Status StartNext() {
    absl::StatusOr<Socket> socket = StartConnect(addresses_[started_++]);
    if (socket.ok()) {
      running_.push_back(*std::move(socket));
      return absl::OkStatus();
    }
    return Note(socket.status());
  }

  absl::Status Note(const absl::Status& failure) {
    if (absl::IsResourceExhausted(failure)) return failure;
    failures_.emplace_back(failure.message());
    return absl::OkStatus();
  }

  // One that's connected, the best of several; or a closed socket.
  absl::StatusOr<Socket> Winner() {
    for (size_t i = 0; i < running_.size();) {
      const absl::StatusOr<bool> connected = IsConnected(running_[i]);
      if (connected.ok() && *connected) return std::move(running_[i]);
      if (connected.ok()) {
        ++i;
        continue;
      }
      RETURN_IF_ERROR(Note(connected.status()));
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    }
    return Socket();
  }

  void Wait(const Patience& patience) const {
    std::vector<pollfd> fds;
    for (const Socket& socket : running_) {
      fds.push_back({socket.fd(), POLLOUT, 0});
    }
    if (!fds.empty()) PollSlice(fds.data(), fds.size(), patience);
  }

  absl::Status Lost() const {
    std::vector<std::string> outcomes = failures_;
    for (const Socket& socket : running_) {
      outcomes.push_back(
          absl::StrCat("connect to ", socket.peer(), ": no answer"));
    }
    const bool here_only =
        std::all_of(addresses_.begin(), addresses_.end(),
                    [](const SocketAddress& a) { return a.IsLoopback(); });
    const std::string tried = absl::StrJoin(outcomes, "; ");
    return absl::UnavailableError(absl::StrCat(
        "no server at ", ToString(addresses_), " (", tried, ")",
        absl::StrContains(tried, strerror(ECONNREFUSED))
            ? "; who listened there has ended, or has failed"
            : "",
        here_only ? "; a loopback address is for ranks on its own machine: "
                    "see there which interface TRNCCL_SOCKET_IFNAME and which "
                    "family TRNCCL_SOCKET_FAMILY takes"
                  : ""));
  }

  const std::vector<SocketAddress>& addresses_;
  size_t started_ = 0;
  std::vector<Socket> running_;
  std::vector<std::string> failures_;
};

}  // namespace

absl::StatusOr<Socket> Dial(const std::vector<SocketAddress>& addresses,
                            const Patience& patience) {
  return Race(addresses).Run(patience);
}

}  // namespace trnccl
