// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/sim/sim.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/origin.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

class SimRegion final : public Region {
 public:
  SimRegion(const MemoryRange& memory, const SimOptions& options)
      : Region({.base = memory.base,
                .bytes = memory.bytes,
                .by_reference = options.by_reference}) {}
};

class SimTransport final : public Transport {
 public:
  explicit SimTransport(const SimOptions& options)
      : options_(options),
        network_(*options.network),
        self_(std::make_shared<SimEndpoint>()) {
    if (options.doorbell != nullptr)
      self_->doorbell = options.doorbell->address();
    traits_.name = options.name;
    traits_.address = network_.Add(self_);
    traits_.slice_bytes = options.form.slice_bytes;
    traits_.inline_bytes = options.form.inline_bytes;
    traits_.by_reference = options.by_reference;
    traits_.any_memory = options.any_memory;
    traits_.delivers = options.form.delivers;
  }

  const Traits& traits() const override { return traits_; }
  absl::Status Connect(const ConnectOptions& options) override;

  absl::StatusOr<std::unique_ptr<Region>> RegisterMemory(
      const MemoryRange& memory) override {
    if (memory.kind != MemoryRange::Kind::kHost)
      return absl::UnimplementedError("sim reaches no device's memory");
    return std::make_unique<SimRegion>(memory, options_);
  }

  std::byte* Reserve(std::span<const LinkId> links, size_t bytes) override {
    TRNCCL_CHECK(bytes <= traits_.slice_bytes);
    MutexLock lock(network_.mutex());
    return AnyFull(links) ? nullptr : Out(links[0]).Slice();
  }

  bool Send(std::span<const LinkId> links, const Outgoing& message) override;

  size_t Pending(LinkId link) override {
    MutexLock lock(network_.mutex());
    Leave(link);
    return Out(link).Pending(network_.now_ns());
  }

  const Incoming* Peek(LinkId link, const Expected* expected) override {
    MutexLock lock(network_.mutex());
    return incoming_[link.index]->Peek(network_.now_ns(), expected);
  }

  void Release(LinkId link) override {
    {
      MutexLock lock(network_.mutex());
      incoming_[link.index]->Release(DrawTimes());
    }
    Wake(link);
  }

  absl::Status Progress() override;
  void SetPresence(Presence presence) override;

 private:
  struct Peer {
    int rank = 0;
    std::shared_ptr<SimEndpoint> endpoint;
    std::unique_ptr<Ringer> ringer;  // null: it never sleeps
  };

  SimLink& Out(LinkId link) { return *outgoing_[link.index]; }

  SimLink::Times DrawTimes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(network_.mutex()) {
    return {.now_ns = network_.now_ns(), .delay_ns = network_.DrawDelayNs()};
  }

  bool AnyFull(std::span<const LinkId> links) {
    return std::ranges::any_of(links, [this](LinkId link) {
      return Out(link).Full(network_.now_ns());
    });
  }

  // Until all that was sent has left, calls here move it.
  void Leave(LinkId link) {
    const size_t messages = Out(link).Leave(network_.now_ns());
    if (messages == 0) return;
    Forget(messages);
    Wake(link);
  }
  void Forget(size_t messages) {
    for (; messages > 0; --messages) remove_unsent();
  }

  void Wake(LinkId link) {
    const Peer& peer = peers_[link.index / lanes_];
    if (peer.ringer != nullptr && peer.endpoint->asleep) peer.ringer->Ring();
  }

  const SimOptions options_;
  SimNetwork& network_;
  std::shared_ptr<SimEndpoint> self_;
  Traits traits_;
  size_t lanes_ = 1;
  std::vector<Peer> peers_;
  std::vector<std::shared_ptr<SimLink>> outgoing_;  // by peer and lane
  std::vector<std::shared_ptr<SimLink>> incoming_;
  absl::Status status_;
};

absl::Status SimTransport::Connect(const ConnectOptions& options) {
  lanes_ = static_cast<size_t>(options.lanes);
  set_lanes(options.lanes);
  self_->rank = options.rank;
  for (const ConnectOptions::Peer& named : options.peers) {
    Peer peer = {.rank = named.rank, .endpoint = network_.Find(named.address)};
    if (peer.endpoint == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("sim: connecting to rank ", named.rank, ": \"",
                       named.address, "\" isn't in this network"));
    }
    if (!peer.endpoint->doorbell.empty()) {
      ASSIGN_OR_RETURN(peer.ringer, Ringer::Open(peer.endpoint->doorbell));
    }
    const uint64_t mine = self_->id;
    const uint64_t theirs = peer.endpoint->id;
    for (int lane = 0; lane < options.lanes; ++lane) {
      outgoing_.push_back(
          network_.LinkOf({.from = mine, .to = theirs, .lane = lane},
                          {options.rank, named.rank}, options_.form));
      incoming_.push_back(
          network_.LinkOf({.from = theirs, .to = mine, .lane = lane},
                          {named.rank, options.rank}, options_.form));
    }
    peers_.push_back(std::move(peer));
  }
  return absl::OkStatus();
}

bool SimTransport::Send(std::span<const LinkId> links,
                        const Outgoing& message) {
  {
    MutexLock lock(network_.mutex());
    if (AnyFull(links)) return false;
    const std::byte* built = Out(links[0]).Slice();
    for (const LinkId id : links) {
      SimLink& link = Out(id);
      if (message.region == nullptr && link.Slice() != built)
        std::copy_n(built, message.bytes, link.Slice());
      link.Send(message, DrawTimes());
      if (traits_.delivers) add_unsent();
      Leave(id);
    }
  }
  for (const LinkId id : links) Wake(id);
  return true;
}

absl::Status SimTransport::Progress() {
  network_.Pass(network_.tick_ns());
  for (const Peer& peer : peers_) {
    if (!status_.ok()) break;
    if (!network_.KnowsDeath(self_->rank, peer.rank)) continue;
    status_ = WithOrigin(
        absl::UnavailableError(absl::StrCat("sim: rank ", peer.rank, " died")),
        peer.rank);
  }
  MutexLock lock(network_.mutex());
  for (uint32_t link = 0; unsent() > 0 && link < outgoing_.size(); ++link)
    Leave({link});
  // Nobody rings when time has passed: who sleeps must look at the clock.
  if (options_.doorbell != nullptr) {
    const auto busy = [this](const std::shared_ptr<SimLink>& link) {
      return link->Busy(network_.now_ns());
    };
    if (std::ranges::any_of(outgoing_, busy) ||
        std::ranges::any_of(incoming_, busy))
      set_arrived();
  }
  return status_;
}

void SimTransport::SetPresence(Presence presence) {
  self_->asleep = presence == Presence::kAsleep;
  if (presence != Presence::kLeft) return;
  MutexLock lock(network_.mutex());
  for (const auto& link : outgoing_) Forget(link->Abandon(network_.now_ns()));
}

}  // namespace

std::unique_ptr<Transport> MakeSimTransport(const SimOptions& options) {
  return std::make_unique<SimTransport>(options);
}

}  // namespace trnccl
