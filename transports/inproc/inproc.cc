// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/inproc/inproc.h"

#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/check.h"
#include "ccl/base/mutex.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

// One way. It's full while `sent` is ahead of `released`.
struct OneWay {
  std::atomic<size_t> sent = 0;      // the sender's
  std::atomic<size_t> released = 0;  // the receiver's
  Incoming message;
  std::unique_ptr<std::byte[]> slice;
};

// What peers see of a rank; outlives it while they do.
struct Endpoint {
  std::atomic<int> lanes = 0;  // 0: not connected yet
  std::atomic<bool> asleep = false;
  std::string doorbell;
  size_t peers = 0;
  std::unique_ptr<OneWay[]> outgoing;  // by peer and lane
};

// The ranks of this process by address.
class Hub {
 public:
  // Never destroyed: threads may outlive static objects.
  static Hub& Get() {
    static Hub& hub = *new Hub;
    return hub;
  }

  std::string Add(const std::shared_ptr<Endpoint>& endpoint) {
    MutexLock lock(mutex_);
    const std::string address = absl::StrCat("inproc ", ++added_);
    endpoints_[address] = endpoint;
    return address;
  }

  std::shared_ptr<Endpoint> Find(const std::string& address) {
    MutexLock lock(mutex_);
    std::erase_if(endpoints_, [](const auto& e) { return e.second.expired(); });
    const auto found = endpoints_.find(address);
    return found == endpoints_.end() ? nullptr : found->second.lock();
  }

 private:
  Mutex mutex_;
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::weak_ptr<Endpoint>> endpoints_
      ABSL_GUARDED_BY(mutex_);
};

class InprocRegion final : public Region {
 public:
  InprocRegion(const std::byte* base, size_t bytes)
      : Region({.base = base, .bytes = bytes, .by_reference = true}) {}
};

class InprocTransport final : public Transport {
 public:
  explicit InprocTransport(const InprocOptions& options)
      : self_(std::make_shared<Endpoint>()) {
    if (options.doorbell != nullptr) {
      self_->doorbell = options.doorbell->address();
    }
    traits_.name = "inproc";
    traits_.address = Hub::Get().Add(self_);
    traits_.slice_bytes = options.slice_bytes;
    traits_.by_reference = true;
  }

  const Traits& traits() const override { return traits_; }
  absl::Status Connect(const ConnectOptions& options) override;

  absl::StatusOr<std::unique_ptr<Region>> RegisterMemory(
      const MemoryRange& memory) override {
    if (memory.kind != MemoryRange::Kind::kHost)
      return absl::UnimplementedError("inproc reaches no device's memory");
    return std::make_unique<InprocRegion>(memory.base, memory.bytes);
  }

  std::byte* Reserve(std::span<const LinkId> links, size_t bytes) override {
    TRNCCL_CHECK(bytes <= traits_.slice_bytes);
    if (AnyFull(links)) return nullptr;
    return Out(links[0]).slice.get();
  }

  bool Send(std::span<const LinkId> links, const Outgoing& message) override {
    if (AnyFull(links)) return false;
    const std::byte* built = Out(links[0]).slice.get();
    for (const LinkId id : links) {
      OneWay& link = Out(id);
      link.message = {.envelope = message.envelope, .bytes = message.bytes};
      if (message.region != nullptr) {
        link.message.data = message.region->base() + message.offset;
      } else {
        link.message.data = link.slice.get();
        if (id.index != links[0].index) {
          std::memcpy(link.slice.get(), built, message.bytes);
        }
      }
      link.sent.fetch_add(1);
      Wake(id);
    }
    return true;
  }

  size_t Pending(LinkId link) override {
    return Out(link).sent.load() - Out(link).released.load();
  }

  const Incoming* Peek(LinkId link, const Expected*) override {
    const OneWay& in = *incoming_[link.index];
    return in.sent.load() == in.released.load() ? nullptr : &in.message;
  }

  void Release(LinkId link) override {
    TRNCCL_CHECK(Peek(link, nullptr) != nullptr);
    incoming_[link.index]->released.fetch_add(1);
    Wake(link);
  }

  absl::Status Progress() override { return absl::OkStatus(); }

  void SetPresence(Presence presence) override {
    self_->asleep = presence == Presence::kAsleep;
  }

 private:
  struct Peer {
    std::shared_ptr<Endpoint> endpoint;
    std::unique_ptr<Ringer> ringer;  // null: it never sleeps
  };

  OneWay& Out(LinkId link) { return self_->outgoing[link.index]; }

  bool AnyFull(std::span<const LinkId> links) {
    for (const LinkId link : links) {
      if (Pending(link) > 0) return true;
    }
    return false;
  }

  void Wake(LinkId link) {
    const Peer& peer = peers_[link.index / lanes_];
    if (peer.ringer != nullptr && peer.endpoint->asleep) peer.ringer->Ring();
  }

  Traits traits_;
  std::shared_ptr<Endpoint> self_;
  size_t lanes_ = 1;
  std::vector<Peer> peers_;
  std::vector<OneWay*> incoming_;
};

// Until the peer is in its Connect() too.
absl::Status Await(const ConnectOptions& options, const Endpoint& peer) {
  while (peer.lanes.load() == 0) {
    if (options.abort != nullptr && options.abort->load()) {
      return absl::AbortedError("aborted while waiting for it");
    }
    if (options.deadline.expired()) {
      return absl::DeadlineExceededError("it didn't connect in time");
    }
    const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000};
    nanosleep(&pause, nullptr);
  }
  if (peer.lanes.load() == options.lanes &&
      peer.peers == options.peers.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("its number of ranks or lanes differs");
}

absl::Status About(int rank, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("inproc: connecting to rank ", rank, ": ",
                                   absl::string_view(status.message())));
}

absl::Status InprocTransport::Connect(const ConnectOptions& options) {
  lanes_ = static_cast<size_t>(options.lanes);
  set_lanes(options.lanes);
  const size_t links = options.peers.size() * lanes_;
  self_->peers = options.peers.size();
  self_->outgoing = std::make_unique<OneWay[]>(links);
  for (size_t i = 0; i < links; ++i) {
    self_->outgoing[i].slice =
        std::make_unique<std::byte[]>(traits_.slice_bytes);
  }
  self_->lanes = options.lanes;
  size_t below = 0;  // ranks below this one
  for (const ConnectOptions::Peer& peer : options.peers) {
    below += peer.rank < options.rank ? 1 : 0;
  }
  for (const ConnectOptions::Peer& named : options.peers) {
    Peer peer = {.endpoint = Hub::Get().Find(named.address)};
    if (peer.endpoint == nullptr) {
      return About(named.rank, absl::UnavailableError(absl::StrCat(
                                   "\"", named.address,
                                   "\" isn't a rank of this process")));
    }
    absl::Status status = Await(options, *peer.endpoint);
    if (!status.ok()) return About(named.rank, status);
    if (!peer.endpoint->doorbell.empty()) {
      ASSIGN_OR_RETURN(peer.ringer, Ringer::Open(peer.endpoint->doorbell));
    }
    const size_t mine = named.rank < options.rank ? below - 1 : below;
    for (size_t lane = 0; lane < lanes_; ++lane) {
      incoming_.push_back(&peer.endpoint->outgoing[mine * lanes_ + lane]);
    }
    peers_.push_back(std::move(peer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(
    const InprocOptions& options) {
  return std::make_unique<InprocTransport>(options);
}

}  // namespace trnccl
