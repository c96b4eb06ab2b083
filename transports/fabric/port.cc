// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/port.h"

#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/log.h"
#include "ccl/base/status_macros.h"
#include "transports/system_error.h"

namespace trnccl::fabric {
namespace {

// Buffers that wait for packets on each rail; those that have come but aren't
// released yet are replaced at once, so that nothing stops the endpoint.
constexpr size_t kPackets = 32;

constexpr size_t kStripeAlignment = 4096;

constexpr uint32_t kIndexBits = 16;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;

// How long a sleeper may not look: where queues have no descriptor, and where
// the provider resends lost packets only while it's called.
constexpr int64_t kBlindNapNs = 500'000;
constexpr int64_t kResendNapNs = 5'000'000;
// And where a post was refused.
constexpr int64_t kRetryNapNs = 1'000'000;

// How often this process has been forked off, counted by its ancestors.
std::atomic<uint32_t> forks = 0;

uint32_t Generation() {
  static const int watching = pthread_atfork(
      nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(watching);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

Port::Port(const FabricLibrary& library, Provider provider)
    : library_(library),
      generation_(Generation()),
      provider_(std::move(provider)) {}

absl::StatusOr<std::shared_ptr<Port>> Port::Open(const PortOptions& options) {
  ASSIGN_OR_RETURN(const FabricLibrary* library,
                   FabricLibrary::Load(options.library));
  ASSIGN_OR_RETURN(std::shared_ptr<Port> port, OpenWith(*library, options));
  const bool free = options.protocol == FabricProtocol::kAuto &&
                    !options.device_memory && port->provider_.writes;
  if (free && port->rails_.front()->EmulatesWrites()) {
    PortOptions tagged = options;
    tagged.protocol = FabricProtocol::kTagged;
    absl::StatusOr<std::shared_ptr<Port>> other = OpenWith(*library, tagged);
    if (other.ok()) {
      TRNCCL_LOG(LogLevel::kInfo, "[fabric]", "provider ", port->provider_.name,
                 " only emulates remote writes; tagged messages are better");
      port = *std::move(other);
    }
  }
  port->LogChoice();
  return port;
}

absl::StatusOr<std::shared_ptr<Port>> Port::OpenWith(
    const FabricLibrary& library, const PortOptions& options) {
  ASSIGN_OR_RETURN(Provider provider, ChooseProvider(library, options));
  auto port = std::shared_ptr<Port>(new Port(library, std::move(provider)));
  MutexLock lock(port->mutex_);
  RETURN_IF_ERROR(port->OpenRails());
  RETURN_IF_ERROR(port->MakeNapTimer());
  return port;
}

absl::StatusOr<std::shared_ptr<Port>> Port::OfProcess(
    const PortOptions& options) {
  struct Kept {
    PortOptions options;
    std::shared_ptr<Port> port;
  };
  static Mutex& mutex = *new Mutex;
  static auto& kept = *new std::vector<Kept>;
  MutexLock lock(mutex);
  for (Kept& known : kept) {
    if (known.options != options || known.port->IsInherited() ||
        !known.port->status_.ok())
      continue;
    return known.port;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Port> port, Open(options));
  kept.push_back({options, port});
  return port;
}

void Port::LogChoice() const {
  const auto name = [](std::string* out, const std::unique_ptr<Rail>& rail) {
    absl::StrAppend(out, rail->adapter());
  };
  TRNCCL_LOG(LogLevel::kInfo, "[fabric]", "provider ", provider_.name, " of ",
             library_.path, " on ", absl::StrJoin(rails_, ", ", name),
             "; long messages travel ",
             provider_.writes ? "by remote writes" : "tagged",
             ", short ones have up to ", provider_.eager_bytes, " bytes");
}

// The endpoints first: until they're closed, a provider may touch what was
// posted to them, even in closing them.
Port::~Port() {
  if (nap_fd_ >= 0) close(nap_fd_);
  if (IsInherited()) {
    Abandon();
    return;
  }
  for (const auto& rail : rails_) rail->CloseEndpoints();
  buffers_.reset();
}

bool Port::IsInherited() const {
  return generation_ != forks.load(std::memory_order_relaxed);
}

// Closing would end the parent's connections.
void Port::Abandon() {
  for (auto& rail : rails_) static_cast<void>(rail.release());
  rails_.clear();
  static_cast<void>(buffers_.release());
}

bool Port::usable() {
  if (status_.ok() && IsInherited()) [[unlikely]] {
    Break(absl::FailedPreconditionError(
        "this process was forked from the one that opened the endpoints, which "
        "goes on with them; a child has to make communicators of its own"));
  }
  return status_.ok();
}

uint64_t Port::Access() const {
  uint64_t access = FI_SEND | FI_RECV;
  if (provider_.writes) access |= FI_WRITE | FI_REMOTE_WRITE;
  if (provider_.reaches_devices) access |= FI_READ | FI_REMOTE_READ;
  return access;
}

absl::Status Port::OpenRails() {
  std::vector<std::string> addresses;
  for (const Info& info : provider_.rails) {
    ASSIGN_OR_RETURN(std::unique_ptr<Rail> rail,
                     Rail::Open(library_, provider_, *info));
    addresses.push_back(absl::BytesToHexString(rail->address()));
    if (!rail->calling_address().empty()) {
      absl::StrAppend(&addresses.back(), "/",
                      absl::BytesToHexString(rail->calling_address()));
    }
    rails_.push_back(std::move(rail));
  }
  for (const auto& rail : rails_) {
    const size_t most = rail->message_bytes() - sizeof(WireHeader);
    provider_.eager_bytes = std::min(provider_.eager_bytes, most);
    // Tagged payloads take their place in the same queue.
    const size_t packets = std::max<size_t>(
        std::min(kPackets, rail->receives() / (provider_.writes ? 1 : 2)), 1);
    Room room{.landings = rail->receives() - packets,
              .transmits = rail->transmits()};
    for (const End end : rail->ends()) room.LackingAt(end) = packets;
    rooms_.push_back(room);
  }
  address_ =
      absl::StrCat(provider_.name, " ", provider_.writes ? "w" : "t",
                   provider_.eager_bytes, " ", absl::StrJoin(addresses, " "));
  Buffers::Options options{.eager_bytes = provider_.eager_bytes,
                           .access = Access()};
  if (provider_.registers || provider_.writes) options.rails = rails_;
  buffers_ = std::make_unique<Buffers>(options);
  if (provider_.reaches_devices) {
    ASSIGN_OR_RETURN(scratch_, buffers_->Grow(kScratchBytes));
  }
  for (size_t rail = 0; rail < rails_.size(); ++rail)
    RETURN_IF_ERROR(PostReceives(rail));
  return absl::OkStatus();
}

absl::Status Port::MakeNapTimer() {
  const bool blind = std::ranges::any_of(
      rails_, [](const auto& rail) { return rail->wait_fd() < 0; });
  nap_ns_ = blind ? kBlindNapNs : provider_.resends ? kResendNapNs : 0;
  nap_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  return nap_fd_ >= 0 ? absl::OkStatus()
                      : SystemError(errno, "fabric: timerfd_create");
}

std::vector<int> Port::WakeFds() const {
  std::vector<int> fds;
  for (const auto& rail : rails_)
    if (rail->wait_fd() >= 0) fds.push_back(rail->wait_fd());
  fds.push_back(nap_fd_);
  return fds;
}

uint32_t Port::Attach(Client* client) {
  size_t index = 0;
  while (index < clients_.size() && clients_[index].client != nullptr) ++index;
  if (index == clients_.size()) clients_.emplace_back();
  Attached& attached = clients_[index];
  attached.client = client;
  ++attached.generation;
  return attached.generation << kIndexBits | static_cast<uint32_t>(index);
}

void Port::Detach(Client* client) {
  for (Attached& attached : clients_)
    if (attached.client == client) attached.client = nullptr;
}

Client* Port::Find(uint32_t endpoint) const {
  const uint32_t index = endpoint & kIndexMask;
  if (index >= clients_.size()) return nullptr;
  const Attached& attached = clients_[index];
  const bool current =
      (attached.generation & kIndexMask) == endpoint >> kIndexBits;
  return current ? attached.client : nullptr;
}

absl::StatusOr<PeerAddress> Port::Insert(const std::string& address) {
  RETURN_IF_ERROR(status_);
  const auto known = peers_.find(address);
  if (known != peers_.end()) return known->second;
  const std::vector<std::string> words = absl::StrSplit(address, ' ');
  const std::vector<std::string> own = absl::StrSplit(address_, ' ');
  if (words.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is no address of a fabric"));
  }
  if (words[0] != own[0] || words[1] != own[1]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it uses provider ", words[0], " (", words[1], "), this rank ", own[0],
        " (", own[1],
        "); set TRNCCL_FABRIC_PROVIDER and the other TRNCCL_FABRIC settings "
        "alike on all ranks"));
  }
  const PeerAddress peer{
      .count = std::min({rails_.size(), words.size() - 2, kMaxRails}),
      .id = static_cast<uint32_t>(outlets_.size())};
  // Which of both calls is all the same, as long as they agree.
  const Role role = address > address_   ? Role::kCalls
                    : address < address_ ? Role::kAnswers
                                         : Role::kTalksToItself;
  RETURN_IF_ERROR(AddOutlets(std::span(words).subspan(2, peer.count), role));
  peers_.emplace(address, peer);
  return peer;
}

absl::Status Port::AddOutlets(std::span<const std::string> words, Role role) {
  std::array<Outlet, kMaxRails> outlets;
  for (size_t rail = 0; rail < words.size(); ++rail) {
    const std::pair<std::string, std::string> endpoints =
        absl::StrSplit(words[rail], absl::MaxSplits('/', 1));
    ASSIGN_OR_RETURN(
        outlets[rail].taking,
        rails_[rail]->Insert(absl::HexStringToBytes(endpoints.first)));
    if (endpoints.second.empty()) continue;
    if (role == Role::kCalls) outlets[rail].end = End::kCalling;
    if (role != Role::kAnswers) continue;
    ASSIGN_OR_RETURN(
        outlets[rail].calling,
        rails_[rail]->Insert(absl::HexStringToBytes(endpoints.second)));
  }
  outlets_.push_back(outlets);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Registration>> Port::Register(
    const MemoryRange& memory) {
  RETURN_IF_ERROR(status_);
  std::vector<Registration> registrations;
  for (const std::unique_ptr<Rail>& rail : rails_) {
    ASSIGN_OR_RETURN(Registration registration,
                     rail->Register(memory, Access()));
    registrations.push_back(std::move(registration));
  }
  return registrations;
}

Port::Stripe Port::StripeOf(size_t bytes, size_t stripes, size_t index) {
  const size_t share = (bytes / stripes + kStripeAlignment - 1) /
                       kStripeAlignment * kStripeAlignment;
  const size_t offset = std::min(bytes, index * share);
  const size_t end =
      index + 1 == stripes ? bytes : std::min(bytes, offset + share);
  return {.offset = offset, .bytes = end - offset};
}

void Port::Break(const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  // Takes back everything that was posted. What memory is registered with stays
  // until that memory's owners are done.
  if (!IsInherited())
    for (const auto& rail : rails_) rail->CloseEndpoints();
  deferred_ = nullptr;
  deferred_end_ = &deferred_;
  deferred_landings_ = nullptr;
  for (const Attached& attached : clients_)
    if (attached.client != nullptr) attached.client->OnPortFailed(status_);
}

bool Port::PrepareSleep(const Client* self) {
  if (!usable()) return true;
  const bool moved = Poll(self);
  const bool refused = deferred_ != nullptr || deferred_landings_ != nullptr ||
                       std::ranges::any_of(rooms_, &Room::LacksReceives);
  int64_t nap_ns = nap_ns_;
  if (refused)
    nap_ns = nap_ns == 0 ? kRetryNapNs : std::min(nap_ns, kRetryNapNs);
  if (nap_ns > 0 || naps_) {
    naps_ = nap_ns > 0;
    const itimerspec nap = {.it_interval = {},
                            .it_value = {.tv_sec = 0, .tv_nsec = nap_ns}};
    // It can't fail with a descriptor and times that are valid.
    timerfd_settime(nap_fd_, 0, &nap, nullptr);
  }
  return !moved && std::ranges::all_of(rails_, [](const auto& rail) {
    return rail->MaySleep();
  });
}

}  // namespace trnccl::fabric
