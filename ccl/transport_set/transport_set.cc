// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/transport_set/transport_set.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ccl/base/status_macros.h"
#include "transports/fabric/fabric.h"
#include "transports/inproc/inproc.h"
#include "transports/shared_memory.h"
#include "transports/shm/shm.h"

namespace trnccl {
namespace {

constexpr size_t kLeastFabricSliceBytes = 4096;

using MadeTransport = absl::StatusOr<std::unique_ptr<Transport>>;

MadeTransport MakeShm(const TransportSet::Options& options) {
  return MakeShmTransport(
      {.arena_bytes = static_cast<size_t>(options.settings->arena_bytes),
       .by_reference = options.settings->shm_by_reference,
       .peer_memory = options.settings->shm_peer_memory,
       .doorbell = options.doorbell,
       .first_sequence = options.first_sequence});
}

MadeTransport MakeInproc(const TransportSet::Options& options) {
  return MakeInprocTransport({.doorbell = options.doorbell});
}

fabric::PortOptions PortOptionsOf(const TransportSet::Options& options) {
  const Settings& settings = *options.settings;
  return {.library = settings.fabric_library,
          .provider = settings.fabric_provider,
          .protocol = static_cast<FabricProtocol>(settings.fabric_travel),
          .adapters = options.network.adapters,
          .addresses = options.network.addresses,
          .pci = options.network.pci,
          .rails = static_cast<int>(settings.fabric_rails),
          .sharers = options.network.sharers,
          .eager_bytes = static_cast<size_t>(settings.fabric_eager_bytes)};
}

MadeTransport MakeFabric(const TransportSet::Options& options) {
  const auto slice_bytes =
      static_cast<size_t>(options.settings->fabric_slice_bytes);
  if (slice_bytes > 0 && slice_bytes < kLeastFabricSliceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("TRNCCL_FABRIC_SLICE_BYTES is ", slice_bytes,
                     ": take 4K or more, or 0 for what suits the provider"));
  }
  return MakeFabricTransport({.port = PortOptionsOf(options),
                              .slice_bytes = slice_bytes,
                              .doorbell = options.doorbell,
                              .first_sequence = options.first_sequence});
}

using Reach = TransportSet::Reach;

bool Reaches(Reach reach, const TransportSet::Peer& mine,
             const TransportSet::Peer& peer) {
  switch (reach) {
    case Reach::kProcess:
      return mine.process == peer.process;
    case Reach::kNode:
      return mine.host == peer.host;
    default:
      return true;
  }
}

struct Row {
  std::string_view name;
  MadeTransport (*make)(const TransportSet::Options& options);
  Reach reach;
};

// The first that reaches a peer carries its messages.
constexpr Row kRows[] = {
    {"shm", MakeShm, Reach::kNode},
    {"inproc", MakeInproc, Reach::kProcess},
    {"fabric", MakeFabric, Reach::kAnywhere},
};

// Without TRNCCL_TRANSPORT. All ranks know alike whether there are several
// nodes; where there's one, no network is touched.
std::vector<std::string> UsualNames(const TransportSet::Options& options) {
  std::vector<std::string> names;
  if (options.nodes < options.membership.ranks) names.emplace_back("shm");
  if (options.nodes > 1) names.emplace_back("fabric");
  return names;
}

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

// The addresses of a set's transports, one after the other.
constexpr char kSeparator = '\x1f';

// Regions are dropped lazily, so their number is bounded here.
constexpr size_t kMaxRegions = 256;

absl::Status OfRank(int rank, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("rank ", rank, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TransportSet>> TransportSet::Create(
    const Options& options) {
  auto set = std::unique_ptr<TransportSet>(new TransportSet(options));
  if (options.membership.ranks == 1) return set;
  std::vector<std::string> names = options.settings->transport;
  if (names.empty()) names = UsualNames(options);
  for (const std::string& name : names) {
    const Row* row = FindRow(name);
    if (row == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("TRNCCL_TRANSPORT: no transport is called \"", name,
                       "\"; there are shm, inproc and fabric"));
    }
    absl::StatusOr<std::unique_ptr<Transport>> made = row->make(options);
    if (!made.ok()) {
      const absl::Status named(
          made.status().code(),
          absl::StrCat(name, ": ", made.status().message()));
      return OfRank(options.membership.rank, named);
    }
    set->members_.push_back(
        {.transport = *std::move(made), .reach = row->reach});
  }
  return set;
}

std::unique_ptr<TransportSet> TransportSet::Of(
    const Options& options, std::vector<Brought> transports) {
  auto set = std::unique_ptr<TransportSet>(new TransportSet(options));
  for (Brought& brought : transports)
    set->members_.push_back(
        {.transport = std::move(brought.transport), .reach = brought.reach});
  return set;
}

std::string TransportSet::address() const {
  return absl::StrJoin(members_, std::string(1, kSeparator),
                       [](std::string* out, const Member& member) {
                         const Traits& traits = member.transport->traits();
                         absl::StrAppend(out, std::string(traits.name), "=",
                                         traits.address);
                       });
}

absl::Status TransportSet::Connect(const ConnectRequest& request) {
  const int me = membership_.rank;
  routes_.assign(request.peers.size(), Route());
  std::vector<ConnectOptions> wanted(members_.size());
  for (int peer = 0; peer < membership_.ranks; ++peer) {
    if (peer == me) continue;
    RETURN_IF_ERROR(Assign(request, peer, &wanted));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    if (wanted[i].peers.empty()) continue;
    Transport& transport = *members_[i].transport;
    wanted[i].rank = me;
    wanted[i].lanes = lanes_;
    wanted[i].deadline = request.deadline;
    wanted[i].abort = request.abort;
    const absl::Status connected = transport.Connect(wanted[i]);
    if (!connected.ok()) return OfRank(me, connected);
    RETURN_IF_ERROR(Adopt(&members_[i], wanted[i].peers.size()));
  }
  // The others can't be called: they haven't connected.
  std::erase_if(members_, [this](const Member& member) {
    return std::ranges::none_of(routes_, [&member](const Route& route) {
      return route.transport == member.transport.get();
    });
  });
  return absl::OkStatus();
}

absl::Status TransportSet::Adopt(Member* member, size_t peers) {
  const Traits& traits = member->transport->traits();
  slice_bytes_ = slice_bytes_ == 0 ? traits.slice_bytes
                                   : std::min(slice_bytes_, traits.slice_bytes);
  wake_fds_.insert(wake_fds_.end(), traits.wake_fds.begin(),
                   traits.wake_fds.end());
  absl::StrAppend(&name_, name_.empty() ? "" : "+", std::string(traits.name));
  if (traits.any_memory) {
    ASSIGN_OR_RETURN(member->everything,
                     member->transport->Register(nullptr, SIZE_MAX));
  }
  if (traits.name != "shm") return absl::OkStatus();
  AddMemory(member);
  const Membership& all = membership_;
  if (traits.by_reference && static_cast<int>(peers) == all.ranks - 1)
    engine_ = MakeShmEngine(all, *member->transport);
  return absl::OkStatus();
}

void TransportSet::AddMemory(Member* member) {
  member->memory = MakeShmPeerMemory(*member->transport);
  for (Route& route : routes_)
    if (route.transport == member->transport.get())
      route.memory = member->memory.get();
}

absl::Status TransportSet::Assign(const ConnectRequest& request, int peer,
                                  std::vector<ConnectOptions>* wanted) {
  const std::vector<std::string> addresses =
      absl::StrSplit(request.peers[peer].address, kSeparator);
  std::vector<std::string> tried;
  for (size_t i = 0; i < members_.size(); ++i) {
    const std::string_view name = members_[i].transport->traits().name;
    const std::string prefix = absl::StrCat(std::string(name), "=");
    tried.push_back(std::string(name));
    const auto found = std::find_if(
        addresses.begin(), addresses.end(),
        [&](const std::string& text) { return text.starts_with(prefix); });
    if (found == addresses.end() ||
        !Reaches(members_[i].reach, request.peers[membership_.rank],
                 request.peers[peer]))
      continue;
    routes_[peer] = {
        .transport = members_[i].transport.get(),
        .peer_index = static_cast<uint32_t>((*wanted)[i].peers.size())};
    (*wanted)[i].peers.push_back(
        {.rank = peer, .address = found->substr(prefix.size())});
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "rank ", membership_.rank, " on ", request.peers[membership_.rank].host,
      " can't reach rank ", peer, " on ", request.peers[peer].host, " by ",
      absl::StrJoin(tried, ", "),
      "; shm works inside one machine, inproc inside one process, fabric "
      "everywhere. Ranks of one machine have the same host id, which "
      "TRNCCL_HOST_ID sets"));
}

absl::Status TransportSet::Progress() {
  for (const Member& member : members_)
    RETURN_IF_ERROR(member.transport->Progress());
  return absl::OkStatus();
}

bool TransportSet::AllSent() const {
  return std::ranges::all_of(members_, [](const Member& member) {
    return member.transport->unsent() == 0;
  });
}

bool TransportSet::NeedsCalls() const {
  return std::ranges::any_of(members_, [](const Member& member) {
    return member.transport->traits().needs_calls;
  });
}

bool TransportSet::TakeArrived() {
  bool arrived = false;
  for (const Member& member : members_)
    arrived |= member.transport->TakeArrived();
  return arrived;
}

void TransportSet::SetPresence(Presence presence) {
  for (const Member& member : members_) member.transport->SetPresence(presence);
}

BufferRegions TransportSet::FindRegions(const std::byte* pointer,
                                        size_t bytes) {
  BufferRegions regions;
  if (bytes == 0 || pointer == nullptr) return regions;
  for (Member& member : members_)
    if (const Region* region = FindRegion(&member, pointer, bytes))
      regions.Add(member.transport.get(), region);
  return regions;
}

const Region* TransportSet::FindRegion(Member* member, const std::byte* pointer,
                                       size_t bytes) {
  const Traits& traits = member->transport->traits();
  if (!traits.by_reference) return nullptr;
  if (member->everything != nullptr) return member->everything.get();
  if (const Region* shared = FindShared(member, pointer, bytes)) return shared;
  if (!traits.delivers) return nullptr;
  absl::StatusOr<std::unique_ptr<Region>> region =
      member->transport->Register(pointer, bytes);
  if (!region.ok()) return nullptr;
  member->of_call.push_back(*std::move(region));
  return member->of_call.back().get();
}

const Region* TransportSet::FindShared(Member* member, const std::byte* pointer,
                                       size_t bytes) {
  const std::optional<SharedPiece> piece = trnccl::FindShared(pointer, bytes);
  if (!piece.has_value()) return nullptr;
  const std::byte* base = pointer - piece->offset;
  for (const Registered& known : member->regions)
    if (known.inode == piece->memory.inode && known.region->base() == base)
      return known.region.get();
  std::erase_if(member->regions, [](const Registered& known) {
    const auto now =
        trnccl::FindShared(known.region->base(), known.region->bytes());
    return !now.has_value() || now->memory.inode != known.inode;
  });
  if (member->regions.size() >= kMaxRegions) return nullptr;
  absl::StatusOr<std::unique_ptr<Region>> region =
      member->transport->Register(base, piece->memory.bytes);
  if (!region.ok()) return nullptr;
  member->regions.push_back({piece->memory.inode, *std::move(region)});
  return member->regions.back().region.get();
}

void TransportSet::EndCall() {
  for (Member& member : members_) member.of_call.clear();
}

}  // namespace trnccl
