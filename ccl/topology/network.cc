// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/network.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/status/statusor.h"
#include "ccl/topology/nic_choice.h"

namespace trnccl {
namespace {

using Addresses = std::vector<std::string>;

bool IsIpv6(const std::string& ip) { return ip.find(':') != ip.npos; }
bool IsIpv4(const std::string& ip) { return !IsIpv6(ip); }

void Append(const Addresses& more, Addresses* list) {
  for (const std::string& ip : more)
    if (std::ranges::find(*list, ip) == list->end()) list->push_back(ip);
}

// What the cards nearest to a rank are, and how many are as near and as fast.
struct Nearest {
  std::string pci;
  int cards = 0;

  bool operator==(const Nearest&) const = default;
};

Nearest NearestOf(const std::vector<NicChoice>& choices) {
  const NicChoice& best = choices.front();
  const auto alike = [&](const NicChoice& other) {
    return other.distance == best.distance && other.nic.mbps == best.nic.mbps;
  };
  return {best.nic.pci,
          static_cast<int>(std::ranges::count_if(choices, alike))};
}

}  // namespace

Addresses NetworkAddresses(const std::vector<HostFacts>& hosts, int rank) {
  std::map<std::string_view, Addresses> met;  // by node
  for (const HostFacts& facts : hosts)
    Append(facts.met_at, &met[facts.host_id]);
  const auto all_met = [&](auto of_family) {
    return std::ranges::all_of(met, [&](const auto& node) {
      return std::ranges::any_of(node.second, of_family);
    });
  };
  const auto all_have = [&](auto of_family) {
    return std::ranges::all_of(hosts, [&](const HostFacts& facts) {
      return std::ranges::any_of(facts.met_at, of_family) ||
             std::ranges::any_of(facts.addresses, of_family);
    });
  };
  const HostFacts& mine = hosts[static_cast<size_t>(rank)];
  Addresses own = mine.met_at;
  Append(met[mine.host_id], &own);
  Append(mine.addresses, &own);
  if (all_met(IsIpv4) || (!all_met(IsIpv6) && all_have(IsIpv4))) {
    std::erase_if(own, IsIpv6);
  } else if (all_met(IsIpv6) || all_have(IsIpv6)) {
    std::erase_if(own, IsIpv4);
  }
  return own;
}

std::vector<std::string> PciOrder(const Topology& topology,
                                  const Hardware& hardware) {
  const std::vector<int>& ranks = topology.local_ranks();
  const auto choices_of = [&](int rank, int turn) {
    const HostFacts& facts = topology.hosts[static_cast<size_t>(rank)];
    return RankNics(facts.nics, {.cpus = facts.cpus, .local_rank = turn},
                    hardware);
  };
  const int rank = ranks[static_cast<size_t>(topology.local_rank)];
  const auto mine = choices_of(rank, 0);
  if (!mine.ok()) return {};
  // Ranks with the same cards, and how many of them come before this one.
  const Nearest nearest = NearestOf(*mine);
  int sharers = 0;
  int before = 0;
  for (const int other : ranks) {
    const auto theirs = choices_of(other, 0);
    if (!theirs.ok() || NearestOf(*theirs) != nearest) continue;
    ++sharers;
    if (other < rank) ++before;
  }
  const int each = std::max(1, nearest.cards / sharers);
  std::vector<std::string> order;
  const auto turned = choices_of(rank, before * each);
  if (!turned.ok()) return {};
  for (const NicChoice& choice : *turned) order.push_back(choice.nic.pci);
  return order;
}

}  // namespace trnccl
