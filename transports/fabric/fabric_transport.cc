// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/fabric_transport.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl::fabric {
namespace {

// How long what's on its way may hold up a rank that leaves.
constexpr int64_t kLeaveMs = 100;

// Pieces of the caller's memory that may be registered at once.
constexpr size_t kMaxRegistrations = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<FabricTransport>> FabricTransport::Create(
    const FabricOptions& options) {
  std::shared_ptr<Port> port = options.own_port;
  if (port == nullptr) {
    ASSIGN_OR_RETURN(port, Port::OfProcess(options.port));
  }
  Parts parts{.port = std::move(port)};
  if (options.doorbell != nullptr) {
    ASSIGN_OR_RETURN(parts.ringer, Ringer::Open(options.doorbell->address()));
  }
  if (getrandom(&parts.cookie, sizeof(parts.cookie), 0) !=
      static_cast<ssize_t>(sizeof(parts.cookie))) {
    return SystemError(errno, "getrandom");
  }
  return absl::WrapUnique(new FabricTransport(options, std::move(parts)));
}

FabricTransport::FabricTransport(const FabricOptions& options, Parts parts)
    : options_(options),
      port_(std::move(parts.port)),
      ringer_(std::move(parts.ringer)),
      cookie_(parts.cookie),
      endpoint_([this] {
        MutexLock lock(port_->mutex());
        return port_->Attach(this);
      }()) {
  const Provider& provider = port_->provider();
  traits_.name = "fabric";
  traits_.slice_bytes =
      options.slice_bytes > 0 ? options.slice_bytes : provider.slice_bytes;
  traits_.address = absl::StrCat(endpoint_, ":", cookie_, ":",
                                 traits_.slice_bytes, " ", port_->address());
  traits_.inline_bytes = std::min(kSmallBytes, provider.eager_bytes);
  traits_.by_reference = true;
  traits_.delivers = true;
  traits_.needs_calls = provider.resends;
  traits_.any_memory = !provider.registers && !provider.writes;
  traits_.wake_fds = port_->WakeFds();
  if (!traits_.any_memory) {
    cache_ = std::make_shared<RegistrationCache>(
        [port = port_.get()](const MemoryRange& memory) {
          return port->Register(memory);
        },
        kMaxRegistrations);
  }
}

FabricTransport::~FabricTransport() {
  MutexLock lock(port_->mutex());
  Left();
  // What was sent gets on its way, if it can.
  const Deadline deadline = Deadline::After(kLeaveMs);
  while (unsent() + courtesies_ > 0 && status_.ok() && port_->usable() &&
         !deadline.expired())
    port_->Poll(this);
  port_->Detach(this);
  for (Receive* packet : early_) port_->Recycle(packet);
  for (const std::unique_ptr<LinkState>& link : links_) {
    if (link == nullptr) continue;
    for (const InSlot& slot : link->in.slots)
      if (slot.state == InSlot::State::kPacket) port_->Recycle(slot.packet);
    for (const OutSlot& slot : link->out.slots)
      if (slot.payload != nullptr) port_->buffers().Drop(slot.payload);
    if (link->in.landing != nullptr && link->in.landing->open == 0)
      port_->buffers().Free(link->in.landing);
  }
  if (reserved_small_ != nullptr) port_->buffers().Free(reserved_small_);
  if (reserved_ != nullptr) port_->buffers().Drop(reserved_);
}

absl::Status FabricTransport::Connect(const ConnectOptions& options) {
  MutexLock lock(port_->mutex());
  rank_ = options.rank;
  lanes_ = static_cast<uint32_t>(options.lanes);
  set_lanes(options.lanes);
  for (const ConnectOptions::Peer& named : options.peers) {
    const absl::Status status = AddPeer(named);
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat("fabric: connecting to rank ", named.rank, ": ",
                       absl::string_view(status.message())));
    }
  }
  links_.resize(peers_.size() * lanes_);
  connected_ = true;
  for (Receive* packet : std::exchange(early_, {})) Dispatch(packet);
  return status_;
}

absl::Status FabricTransport::AddPeer(const ConnectOptions::Peer& named) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(named.address, absl::MaxSplits(' ', 1));
  Peer peer{.rank = named.rank};
  const std::vector<std::string> numbers = absl::StrSplit(parts.first, ':');
  size_t slice_bytes = 0;
  if (numbers.size() != 3 || !absl::SimpleAtoi(numbers[0], &peer.endpoint) ||
      !absl::SimpleAtoi(numbers[1], &peer.cookie) ||
      !absl::SimpleAtoi(numbers[2], &slice_bytes) || slice_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", named.address, "\" is no address of a fabric"));
  }
  // Nodes may differ in what they advise. All take the least.
  traits_.slice_bytes = std::min(traits_.slice_bytes, slice_bytes);
  ASSIGN_OR_RETURN(peer.address, port_->Insert(parts.second));
  const auto rank = static_cast<size_t>(named.rank);
  if (index_of_rank_.size() <= rank) index_of_rank_.resize(rank + 1, -1);
  index_of_rank_[rank] = static_cast<int>(peers_.size());
  peers_.push_back(peer);
  return absl::OkStatus();
}

LinkState& FabricTransport::At(LinkId link) {
  std::unique_ptr<LinkState>& at = links_[link.index];
  if (at == nullptr) [[unlikely]] {
    at = std::make_unique<LinkState>();
    at->out.next = options_.first_sequence;
    at->out.released = at->out.delivered = options_.first_sequence;
    at->out.lingering = options_.first_sequence;
    at->in.head = at->in.told = options_.first_sequence;
  }
  return *at;
}

size_t FabricTransport::RailOf(LinkId link) const {
  return link.index % PeerOf(link).address.count;
}

absl::StatusOr<std::unique_ptr<Region>> FabricTransport::RegisterMemory(
    const MemoryRange& memory) {
  if (memory.kind != MemoryRange::Kind::kHost &&
      !port_->provider().reaches_devices) {
    return absl::UnimplementedError(absl::StrCat(
        "fabric: provider ", port_->provider().name,
        " wasn't opened for devices' memory, or doesn't reach it"));
  }
  MutexLock lock(port_->mutex());
  return FabricRegion::Make(port_, cache_, memory);
}

absl::Status FabricTransport::Progress() {
  MutexLock lock(port_->mutex());
  port_->Poll(this);
  return status_;
}

void FabricTransport::SetPresence(Presence presence) {
  MutexLock lock(port_->mutex());
  asleep_ = presence == Presence::kAsleep;
  if (presence == Presence::kLeaving) StartLeaving();
  if (presence == Presence::kLeft) Left();
  if (!asleep_) return;
  // The queues' descriptors tell of what comes from now on.
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    if (port_->PrepareSleep(this)) return;
  }
  Ring();
}

// A kernel that gets words for a socket whose process has ended drops what it
// had still to send over it. So whoever leaves waits until peers have taken it;
// and tells what it has taken itself, since they may leave too.
void FabricTransport::StartLeaving() {
  // Not again while the last words haven't left.
  if (std::exchange(leaving_, true) && courtesies_ > 0) return;
  if (left_ || !connected_ || !port_->provider().streams) return;
  for (uint32_t i = 0; i < links_.size() && status_.ok(); ++i) {
    if (links_[i] == nullptr) continue;
    OutLink& out = links_[i]->out;
    const bool lingers = static_cast<int32_t>(out.lingering - out.released) > 0;
    const bool waits = lingers && out.is_taken;
    if (waits && !std::exchange(out.awaits_release, true)) add_unsent();
    // Again to who hasn't answered: it may be gone, which a try shows.
    if (waits || !std::exchange(out.said_leaving, true))
      SayReleased({i}, WireKind::kLeaving);
  }
}

void FabricTransport::OnLeaving(LinkId link) {
  LinkState& at = At(link);
  TakesNoMore(at.out);
  at.in.tells_each = true;
  SayReleased(link, WireKind::kCredit);
}

void FabricTransport::TakesNoMore(OutLink& out) {
  out.is_taken = false;
  EndWait(out);
}

void FabricTransport::EndWait(OutLink& out) {
  if (std::exchange(out.awaits_release, false)) remove_unsent();
}

// Nobody touches the caller's memory after this: what nobody has taken yet is
// dropped, what an adapter holds is waited for, what peers may write to is
// closed to them. And if that isn't enough, the endpoints are.
void FabricTransport::Left() {
  if (std::exchange(left_, true)) return;
  for (const std::unique_ptr<LinkState>& link : links_)
    if (link != nullptr) EndWait(link->out);
  DropUnsent();
  std::vector<const FabricRegion*> written;
  for (const std::unique_ptr<LinkState>& link : links_) {
    if (link == nullptr || link->in.landing == nullptr || link->in.landed)
      continue;
    if (link->in.region != nullptr && port_->provider().writes)
      written.push_back(link->in.region);
    Withdraw(link->in);
  }
  const Deadline deadline = Deadline::After(kLeaveMs);
  while (open_landings_ + open_references_ > 0 && port_->usable()) {
    port_->Poll(this);
    if (!deadline.expired()) continue;
    port_->Break(absl::UnavailableError(absl::StrCat(
        "a peer of rank ", rank_,
        " stopped amid a message from or into memory that isn't the library's "
        "any more, so this process's endpoints were closed")));
  }
  for (const FabricRegion* region : written) region->Revoke();
}

void FabricTransport::DropUnsent() {
  port_->DropReferences(endpoint_);
  for (const std::unique_ptr<LinkState>& link : links_) {
    if (link == nullptr) continue;
    for (OutSlot& slot : link->out.slots) {
      if (slot.state != OutSlot::State::kAwaitsReady || slot.region == nullptr)
        continue;
      slot.state = OutSlot::State::kFree;
      remove_unsent();
    }
  }
}

void FabricTransport::Ring() {
  if (ringer_ != nullptr) ringer_->Ring();
}

void FabricTransport::WakeOwner() {
  set_arrived();
  if (asleep_ && port_->poller() != this) Ring();
}

void FabricTransport::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  WakeOwner();
}

absl::Status FabricTransport::About(LinkId link,
                                    const absl::Status& status) const {
  return absl::Status(
      status.code(),
      absl::StrCat("fabric: rank ", rank_, " with rank ", PeerOf(link).rank,
                   ": ", absl::string_view(status.message())));
}

void FabricTransport::OnPortFailed(const absl::Status& status) {
  open_landings_ = open_references_ = 0;
  Fail(absl::Status(status.code(),
                    absl::StrCat("fabric: rank ", rank_, ": ",
                                 absl::string_view(status.message()))));
}

}  // namespace trnccl::fabric
