// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The transport behind MakeShmTransport(). Its callers are shm.cc and tests of
// what a broken peer may write; everyone else uses shm.h.
//
// Thread rule: that of Transport.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/shared_memory.h"
#include "transports/shm/address.h"
#include "transports/shm/arena.h"
#include "transports/shm/control.h"
#include "transports/shm/gate.h"
#include "transports/shm/mapping_table.h"
#include "transports/shm/peers.h"
#include "transports/shm/shm.h"
#include "transports/transport.h"

namespace trnccl::shm {

class ShmTransport final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<ShmTransport>> Create(
      const ShmOptions& options);
  ~ShmTransport() override;

  const Traits& traits() const override { return traits_; }
  absl::Status Connect(const ConnectOptions& options) override;
  absl::StatusOr<std::unique_ptr<Region>> RegisterMemory(
      const MemoryRange& memory) override;
  std::byte* Reserve(std::span<const LinkId> links, size_t bytes) override;
  bool Send(std::span<const LinkId> links, const Outgoing& message) override;
  size_t Pending(LinkId link) override;
  const Incoming* Peek(LinkId link, const Expected* expected) override;
  void Release(LinkId link) override;
  absl::Status Progress() override;
  void SetPresence(Presence presence) override;

  // This rank's own memory.
  const Control& control() const { return own_; }
  // Over all peers, in the order of their connecting; there once connected.
  Gate& gate() { return gate_; }
  const std::vector<Peer>& peers() const { return peers_; }

 private:
  static constexpr uint32_t kNoSlice = UINT32_MAX;

  struct Sending {
    Descriptor* ring = nullptr;
    const std::atomic<uint32_t>* consumed = nullptr;  // the peer's
    const std::atomic<uint32_t>* asleep = nullptr;    // likewise
    const Peer* peer = nullptr;
    uint32_t next = 0;      // the number of the next message
    uint32_t released = 0;  // all before are released
    std::array<uint32_t, kRingDepth> slices = {};  // by number % kRingDepth
  };
  struct Receiving {
    const Descriptor* ring = nullptr;
    std::atomic<uint32_t>* consumed = nullptr;  // our own
    const Peer* peer = nullptr;
    uint32_t next = 0;
    bool peeked = false;
    Incoming incoming;
    SharedMapping mapping;  // keeps what `incoming` refers to
  };
  struct Reservation {
    size_t bytes = 0;
    MessageKind kind = MessageKind::kInline;
    Arena::Piece piece;
  };

  ShmTransport(const ShmOptions& options, SharedFile file,
               const Address& address);

  absl::Status MapOwn(const ConnectOptions& options);
  void WireLinks(const ConnectOptions& options);
  void MakeGate();

  bool Full(Sending& link);
  void Refresh(Sending& link);
  std::byte* ReserveInArena(std::span<const LinkId> links, size_t bytes);
  void SendInArena(std::span<const LinkId> links, const Outgoing& message,
                   MessageWord word);
  bool SendRegion(std::span<const LinkId> links, const Outgoing& message);
  bool SendReference(std::span<const LinkId> links, const Outgoing& message,
                     const SharedPiece& region);
  void Publish(Sending& link, const Envelope& envelope, MessageWord word);
  void Wake(const Sending& link);
  void Ring(const Peer& peer);
  const Incoming* Open(Receiving& link, const Descriptor& descriptor,
                       MessageWord word);
  absl::StatusOr<const std::byte*> Locate(Receiving& link,
                                          const Descriptor& descriptor,
                                          MessageWord word);
  void CheckPeers();
  void Fail(const absl::Status& status);

  const ShmOptions options_;
  const pid_t owner_pid_;
  const Address address_;
  Traits traits_;
  SharedFile file_;
  SharedMapping mapping_;
  Control own_;
  Arena arena_;
  bool arena_filled_ = false;
  std::vector<Peer> peers_;
  Gate gate_;
  std::vector<pollfd> deaths_;  // traits_.wake_fds
  bool watches_all_ = true;     // deaths_ has a descriptor of every peer
  bool rings_peers_ = false;    // some peer has a doorbell
  const bool sleep_barriers_;   // joined
  bool fences_ = false;         // needed, since not all have
  std::vector<Sending> sending_;
  std::vector<Receiving> receiving_;
  Reservation reserved_;
  alignas(kLineBytes) std::array<std::byte, kInlineBytes> staging_;
  MappingTable mappings_;
  absl::Status status_;
  uint32_t progress_calls_ = 0;
  bool check_peers_now_ = false;
};

}  // namespace trnccl::shm
