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
#include "transports/inproc/inproc.h"
#include "transports/shared_memory.h"
#include "transports/shm/shm.h"

namespace trnccl {
namespace {

using MadeTransport = absl::StatusOr<std::unique_ptr<Transport>>;

MadeTransport MakeShm(const TransportSet::Options& options) {
  return MakeShmTransport(
      {.arena_bytes = static_cast<size_t>(options.settings->arena_bytes),
       .by_reference = options.settings->shm_by_reference,
       .peer_memory = options.settings->shm_peer_memory,
       .doorbell = options.doorbell});
}

MadeTransport MakeInproc(const TransportSet::Options& options) {
  return MakeInprocTransport({.doorbell = options.doorbell});
}

bool SameNode(const TransportSet::Peer& mine, const TransportSet::Peer& peer) {
  return mine.host == peer.host;
}

bool SameProcess(const TransportSet::Peer& mine,
                 const TransportSet::Peer& peer) {
  return mine.process == peer.process;
}

struct Row {
  std::string_view name;
  MadeTransport (*make)(const TransportSet::Options& options);
  bool (*reaches)(const TransportSet::Peer& mine,
                  const TransportSet::Peer& peer);
};

// The first that reaches a peer carries its messages.
constexpr Row kRows[] = {
    {"shm", MakeShm, SameNode},
    {"inproc", MakeInproc, SameProcess},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

// The addresses of a set's transports, one after the other.
constexpr char kSeparator = '\x1f';

// Regions are dropped lazily, so their number is bounded here.
constexpr size_t kMaxRegions = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<TransportSet>> TransportSet::Create(
    const Options& options) {
  auto set = std::unique_ptr<TransportSet>(new TransportSet(options));
  if (options.membership.ranks == 1) return set;
  std::vector<std::string> names = options.settings->transport;
  if (names.empty()) names.push_back("shm");
  for (const std::string& name : names) {
    const Row* row = FindRow(name);
    if (row == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("TRNCCL_TRANSPORT: no transport is called \"", name,
                       "\"; there are shm and inproc"));
    }
    absl::StatusOr<std::unique_ptr<Transport>> made = row->make(options);
    if (!made.ok()) {
      return absl::Status(made.status().code(),
                          absl::StrCat("rank ", options.membership.rank, ": ",
                                       name, ": ", made.status().message()));
    }
    set->members_.push_back({.transport = *std::move(made)});
  }
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
    RETURN_IF_ERROR(transport.Connect(wanted[i]));
    const Traits& traits = transport.traits();
    slice_bytes_ = slice_bytes_ == 0
                       ? traits.slice_bytes
                       : std::min(slice_bytes_, traits.slice_bytes);
    wake_fds_.insert(wake_fds_.end(), traits.wake_fds.begin(),
                     traits.wake_fds.end());
    absl::StrAppend(&name_, name_.empty() ? "" : "+", std::string(traits.name));
    const bool reaches_all =
        static_cast<int>(wanted[i].peers.size()) == membership_.ranks - 1;
    if (traits.name != "shm") continue;
    AddMemory(&members_[i]);
    if (traits.by_reference && reaches_all)
      engine_ =
          MakeShmEngine({.rank = me, .ranks = membership_.ranks}, transport);
  }
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
        !FindRow(name)->reaches(request.peers[membership_.rank],
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
      "; shm works inside one machine, inproc inside one process. Ranks of one "
      "machine have the same host id, which TRNCCL_HOST_ID sets"));
}

absl::Status TransportSet::Progress() {
  for (const Member& member : members_)
    RETURN_IF_ERROR(member.transport->Progress());
  return absl::OkStatus();
}

void TransportSet::SetSleep(Sleep sleep) {
  for (const Member& member : members_) member.transport->SetSleep(sleep);
}

const Region* TransportSet::FindRegion(const std::byte* pointer, size_t bytes) {
  if (members_.empty() || bytes == 0) return nullptr;
  Member& member = members_.front();
  if (!member.transport->traits().by_reference) return nullptr;
  const std::optional<SharedPiece> piece = FindShared(pointer, bytes);
  if (!piece.has_value()) return nullptr;
  const std::byte* base = pointer - piece->offset;
  for (const Registered& known : member.regions)
    if (known.inode == piece->memory.inode && known.region->base() == base)
      return known.region.get();
  std::erase_if(member.regions, [](const Registered& known) {
    const auto now = FindShared(known.region->base(), known.region->bytes());
    return !now.has_value() || now->memory.inode != known.inode;
  });
  if (member.regions.size() >= kMaxRegions) return nullptr;
  absl::StatusOr<std::unique_ptr<Region>> region =
      member.transport->Register(base, piece->memory.bytes);
  if (!region.ok()) return nullptr;
  member.regions.push_back({piece->memory.inode, *std::move(region)});
  return member.regions.back().region.get();
}

}  // namespace trnccl
