// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/communicator/reunion.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trnccl {
namespace {

// Threads of one process are ranks, too: each has a secret of its own.
Secret PlaceSecret(const Secret& secret, int rank) {
  return DeriveSecret(secret, absl::StrCat("place of rank ", rank));
}

std::optional<SocketAddress> Parsed(const std::string& ip) {
  const bool ipv6 = ip.find(':') != ip.npos;
  return SocketAddress::Parse(ipv6 ? absl::StrCat("[", ip, "]:0")
                                   : absl::StrCat(ip, ":0"));
}

// Best first.
std::vector<std::string> Candidates(const Topology& topology, int rank) {
  if (topology.grid.nodes.size() == 1) return {"127.0.0.1", "::1"};
  const HostFacts& facts = topology.hosts[static_cast<size_t>(rank)];
  std::vector<std::string> candidates = facts.met_at;
  std::copy(facts.addresses.begin(), facts.addresses.end(),
            std::back_inserter(candidates));
  return candidates;
}

}  // namespace

std::unique_ptr<Reunion> Reunion::Open(const Secret& secret, Membership me,
                                       const Topology& topology) {
  auto reunion = std::unique_ptr<Reunion>(new Reunion(secret));
  if (me.ranks == 1) return reunion;
  for (const std::string& ip : Candidates(topology, me.rank)) {
    const std::optional<SocketAddress> address = Parsed(ip);
    if (!address.has_value()) continue;
    auto place = MeetingPlace::Open(PlaceSecret(secret, me.rank), *address);
    if (!place.ok()) continue;
    reunion->place_ = *std::move(place);
    break;
  }
  return reunion;
}

std::string Reunion::address() const {
  return place_ == nullptr ? "" : place_->id().addresses.front().ToString();
}

absl::StatusOr<UniqueId> Reunion::PlaceOf(int rank) const {
  const auto index = static_cast<size_t>(rank);
  const std::optional<SocketAddress> address =
      index < addresses_.size() ? SocketAddress::Parse(addresses_[index])
                                : std::nullopt;
  if (!address.has_value()) {
    return absl::UnavailableError(
        absl::StrCat("rank ", rank,
                     " could open no port to meet at when the communicator "
                     "was made"));
  }
  return UniqueId{.secret = PlaceSecret(secret_, rank),
                  .addresses = {*address}};
}

}  // namespace trnccl
