// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// The transport behind MakeFabricTransport(). Its callers are fabric.cc and
// tests of what a broken peer may send; everyone else uses fabric.h.
//
// Links are restored from packets that may come in any order, by sequence
// numbers; how they're written is wire.h's, how they get there port.h's.
//
// Thread rule: that of Transport. The port's lock is held inside every call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transports/doorbell.h"
#include "transports/fabric/fabric.h"
#include "transports/fabric/links.h"
#include "transports/fabric/port.h"
#include "transports/fabric/region.h"
#include "transports/fabric/registration_cache.h"
#include "transports/transport.h"

namespace trnccl::fabric {

class FabricTransport final : public Transport, private Client {
 public:
  static absl::StatusOr<std::unique_ptr<FabricTransport>> Create(
      const FabricOptions& options);
  ~FabricTransport() override;

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

  // Sends the header as it is, with what the peer needs to find the link unless
  // it's given, and the body, of at most kSmallBytes: for tests of what a
  // broken peer may send.
  void SendRaw(LinkId link, const WireHeader& header,
               std::span<const std::byte> body = {});

 private:
  struct Peer {
    int rank = 0;
    PeerAddress address;
    uint32_t endpoint = 0;  // its transport's number
    uint32_t cookie = 0;    // and what its packets must carry
  };

  // What a transport is made of.
  struct Parts {
    std::shared_ptr<Port> port;
    std::unique_ptr<Ringer> ringer;
    uint32_t cookie = 0;
  };
  FabricTransport(const FabricOptions& options, Parts parts);

  // Client's.
  void OnPacket(Receive* packet) override;
  void OnSent(const fabric::Send& send) override;
  void OnSendFailed(const fabric::Send& send,
                    const absl::Status& status) override;
  void OnAwaited(Landing* landing) override;
  void OnLandingFailed(const Landing& landing,
                       const absl::Status& status) override;
  void OnLanded(Landing* landing) override;
  void OnPortFailed(const absl::Status& status) override;

  absl::Status AddPeer(const ConnectOptions::Peer& named);
  const Peer& PeerOf(LinkId link) const { return peers_[link.index / lanes_]; }
  LinkState& At(LinkId link);
  size_t RailOf(LinkId link) const;

  // Sending (sending.cc).
  bool Full(LinkId link);
  // A packet for the link, its header but for the kind filled in, or null.
  fabric::Send* NewPacket(LinkId link, WireKind kind, uint32_t sequence);
  void SendTo(LinkId link, const Outgoing& message);
  void SendShort(LinkId link, const OutSlot& slot, uint32_t sequence);
  void Announce(LinkId link, const OutSlot& slot, uint32_t sequence);
  void SendPayload(LinkId link, uint32_t sequence, const WireHeader& ready,
                   const WireTargets& targets);
  void Tell(LinkId link);
  void SayReleased(LinkId link, WireKind kind);
  void OnReady(LinkId link, const Receive& packet);
  void Credit(LinkId link, uint32_t released);

  // Receiving (receiving.cc).
  void Dispatch(Receive* packet);
  void OnMessage(LinkId link, Receive* packet);
  bool IsOvertaken(const InLink& in, const WireHeader& header) const;
  const Incoming* Open(InLink& in);
  // Says where the oldest message may go.
  void MakeReady(LinkId link, const Expected& expected, Certainty certainty);
  // Null, and an error of this transport, where there's no memory.
  Landing* NewLanding(LinkId link, const Expected& expected);
  void Aim(Landing* landing, const FabricRegion* region) const;
  void Withdraw(InLink& in);

  // No call waits until words of leaving, and to one that's leaving, have left:
  // that one may be gone.
  void CountPacket(const fabric::Send& send);
  void UncountPacket(const fabric::Send& send);

  // Leaving (fabric_transport.cc).
  void StartLeaving();
  void OnLeaving(LinkId link);
  void TakesNoMore(OutLink& out);
  void EndWait(OutLink& out);
  void Left();
  void DropUnsent();

  void Ring();
  // Rings if it's another thread that found something for this transport.
  void WakeOwner();
  void Fail(const absl::Status& status);
  // An error about the peer of a link.
  absl::Status About(LinkId link, const absl::Status& status) const;

  const FabricOptions options_;
  const std::shared_ptr<Port> port_;
  const std::unique_ptr<Ringer> ringer_;      // this process's own; may be null
  std::shared_ptr<RegistrationCache> cache_;  // null: nothing's registered
  const uint32_t cookie_;
  const uint32_t endpoint_;
  Traits traits_;
  int rank_ = 0;
  uint32_t lanes_ = 1;
  bool connected_ = false;
  std::vector<Receive*> early_;  // that came before Connect()
  std::vector<Peer> peers_;
  std::vector<int> index_of_rank_;  // in peers_; -1: none of them
  std::vector<std::unique_ptr<LinkState>> links_;
  fabric::Send* reserved_small_ = nullptr;
  Payload* reserved_ = nullptr;
  bool asleep_ = false;
  bool leaving_ = false;
  bool left_ = false;
  size_t courtesies_ = 0;       // that haven't left
  size_t open_landings_ = 0;    // in the caller's memory
  size_t open_references_ = 0;  // sends from there
  absl::Status status_;
};

}  // namespace trnccl::fabric
