// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/shm/peers.h"

#include <time.h>

#include <functional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ccl/base/status_macros.h"
#include "transports/shm/process_memory.h"

namespace trnccl::shm {
namespace {

absl::Status About(const Peer& peer, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("shm: connecting to ", peer.Name(), ": ",
                                   absl::string_view(status.message())));
}

// Until `done` says true; for what a peer has to do first.
absl::Status Await(const ConnectOptions& options, const Peer& peer,
                   const std::function<absl::StatusOr<bool>()>& done) {
  while (true) {
    // Asked before looking: what a peer did before its end still counts.
    const bool alive = peer.process->alive();
    ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) return absl::OkStatus();
    if (!alive) return absl::UnavailableError("it died");
    if (options.abort != nullptr && options.abort->load()) {
      return absl::AbortedError("aborted while waiting for it");
    }
    if (options.deadline.expired()) {
      return absl::DeadlineExceededError(
          "it didn't connect in time; is it in the same call?");
    }
    const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000};
    nanosleep(&pause, nullptr);
  }
}

absl::Status OpenProcess(const Address& address, Peer& peer) {
  if (peer.address.pid_namespace != address.pid_namespace) {
    return absl::UnavailableError(
        "it's in another pid namespace or on another host; let containers of a "
        "node share one pid namespace");
  }
  auto process = PeerProcess::Find({peer.address.pid, peer.address.doorbell});
  if (!process.ok()) return std::move(process).status();
  peer.process = *std::move(process);
  return absl::OkStatus();
}

// False: it hasn't got that far.
absl::StatusOr<bool> TryMap(const Shape& shape, Peer& peer) {
  const SharedReference reference = {.pid = peer.address.pid,
                                     .fd = peer.address.fd,
                                     .inode = peer.address.inode,
                                     .bytes = Control::Bytes(shape)};
  auto mapping = MapShared(reference, SharedAccess::kRead);
  if (mapping.status().code() == absl::StatusCode::kFailedPrecondition) {
    return false;
  }
  if (mapping.status().code() == absl::StatusCode::kInvalidArgument) {
    return absl::InvalidArgumentError(absl::StrCat(
        absl::string_view(mapping.status().message()),
        "; do ranks, lanes and the arena's size agree on all ranks?"));
  }
  if (!mapping.ok()) return std::move(mapping).status();
  peer.mapping = *std::move(mapping);
  peer.control = Control(peer.mapping.base(), shape);
  return true;
}

absl::Status CheckHeader(const Header& mine, const Peer& peer) {
  const Header& theirs = peer.control.header();
  if (theirs.token != peer.address.token) {
    return absl::UnavailableError("another process has its number by now");
  }
  if (theirs.magic != mine.magic ||
      theirs.first_sequence != mine.first_sequence) {
    return absl::FailedPreconditionError("it runs another release of trnccl");
  }
  if (theirs.rank != peer.rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("its address is that of rank ", theirs.rank));
  }
  return absl::OkStatus();
}

absl::Status MapPeer(const ConnectOptions& options, const Control& own,
                     Peer& peer) {
  RETURN_IF_ERROR(
      Await(options, peer, [&] { return TryMap(own.shape(), peer); }));
  RETURN_IF_ERROR(Await(options, peer, [&]() -> absl::StatusOr<bool> {
    return peer.control.header().ready.load(std::memory_order_acquire) != 0;
  }));
  RETURN_IF_ERROR(CheckHeader(own.header(), peer));
  // Whoever was opened by number is the one whose memory it is, unless it's
  // dead by now and its number went to another in between.
  if (!peer.process->alive()) return absl::UnavailableError("it died");
  return absl::OkStatus();
}

}  // namespace

std::string Peer::Name() const {
  return absl::StrCat("rank ", rank, " (pid ", address.pid, ")");
}

absl::StatusOr<std::vector<Peer>> ConnectPeers(const ConnectOptions& options,
                                               const Address& address,
                                               const Control& own) {
  std::vector<Peer> peers(options.peers.size());
  size_t below = 0;  // ranks below this one
  for (const ConnectOptions::Peer& peer : options.peers) {
    below += peer.rank < options.rank ? 1 : 0;
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    Peer& peer = peers[i];
    peer.rank = options.peers[i].rank;
    peer.my_index = peer.rank < options.rank ? below - 1 : below;
    auto parsed = Address::Parse(options.peers[i].address);
    if (!parsed.ok()) return About(peer, parsed.status());
    peer.address = *std::move(parsed);
    absl::Status status = OpenProcess(address, peer);
    if (!status.ok()) return About(peer, status);
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    absl::Status status = MapPeer(options, own, peers[i]);
    if (!status.ok()) return About(peers[i], status);
    own.ack(i).store(1, std::memory_order_release);
  }
  for (const Peer& peer : peers) {
    absl::Status status = Await(options, peer, [&]() -> absl::StatusOr<bool> {
      const auto& ack = peer.control.ack(peer.my_index);
      return ack.load(std::memory_order_acquire) != 0;
    });
    if (!status.ok()) return About(peer, status);
  }
  return peers;
}

bool ReachesMemoryOf(const Peer& peer) {
  const Header& theirs = peer.control.header();
  uint64_t token = 0;
  const absl::Status read =
      ReadProcess({.pid = peer.address.pid, .address = theirs.token_address},
                  std::as_writable_bytes(std::span(&token, 1)));
  return read.ok() && token == theirs.token;
}

}  // namespace trnccl::shm
