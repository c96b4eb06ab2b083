// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/topology.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ccl/base/check.h"
#include "ccl/base/json.h"
#include "ccl/base/status_macros.h"

namespace trnccl {
namespace {

constexpr absl::string_view kFirstLine = "trnccl-topology 1\n";

Grid MakeGrid(const std::vector<HostFacts>& hosts) {
  Grid grid;
  std::map<std::string_view, size_t> node_of;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [node, added] =
        node_of.try_emplace(hosts[rank].host_id, grid.nodes.size());
    if (added) grid.nodes.emplace_back();
    grid.nodes[node->second].push_back(static_cast<int>(rank));
  }
  return grid;
}

// The processors of each rank, by machine.
std::map<std::string_view, std::vector<CpuSet>> CpusByMachine(
    const std::vector<HostFacts>& hosts) {
  std::map<std::string_view, std::vector<CpuSet>> machines;
  for (const HostFacts& facts : hosts)
    machines[facts.machine].push_back(facts.cpus);
  return machines;
}

double RanksPerCoreOf(const std::vector<CpuSet>& ranks) {
  if (EachHasOwnCpu(ranks)) return 1;
  std::set<int> cpus;
  for (const CpuSet& own : ranks) cpus.insert(own.begin(), own.end());
  const auto cores = static_cast<double>(std::max<size_t>(1, cpus.size()));
  return std::max(2.0, static_cast<double>(ranks.size()) / cores);
}

// A maximum matching by augmenting paths: a set that finds its processors taken
// makes one of their holders move to another.
class CpuMatching {
 public:
  explicit CpuMatching(const std::vector<CpuSet>& sets)
      : sets_(sets), holder_(kMaxCpus, kFree) {}

  bool Place(size_t set) {
    tried_.assign(kMaxCpus, false);
    return Find(set);
  }

 private:
  static constexpr size_t kFree = SIZE_MAX;

  bool Find(size_t set) {
    for (const int cpu : sets_[set]) {
      size_t& holder = holder_[static_cast<size_t>(cpu)];
      if (holder != kFree) continue;
      holder = set;
      return true;
    }
    for (const int cpu : sets_[set]) {
      const size_t index = static_cast<size_t>(cpu);
      if (tried_[index]) continue;
      tried_[index] = true;
      if (!Find(holder_[index])) continue;
      holder_[index] = set;
      return true;
    }
    return false;
  }

  const std::vector<CpuSet>& sets_;
  std::vector<size_t> holder_;  // by processor
  std::vector<bool> tried_;
};

// Takes `lines` lines off the front of the text.
std::string_view TakeLines(std::string_view& text, int lines) {
  size_t end = 0;
  for (; lines > 0 && end < text.size(); --lines) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

}  // namespace

Topology MakeTopology(std::vector<HostFacts> hosts, int rank) {
  TRNCCL_CHECK(rank >= 0 && static_cast<size_t>(rank) < hosts.size());
  Topology topology = {.hosts = std::move(hosts)};
  topology.grid = MakeGrid(topology.hosts);
  for (size_t node = 0; node < topology.grid.nodes.size(); ++node) {
    const std::vector<int>& ranks = topology.grid.nodes[node];
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) continue;
    topology.node = static_cast<int>(node);
    topology.local_rank = static_cast<int>(place - ranks.begin());
  }
  const std::string& machine =
      topology.hosts[static_cast<size_t>(rank)].machine;
  topology.own_core = EachHasOwnCpu(CpusByMachine(topology.hosts).at(machine));
  return topology;
}

double RanksPerCore(const Topology& topology) {
  double most = 1;
  for (const auto& [machine, ranks] : CpusByMachine(topology.hosts))
    most = std::max(most, RanksPerCoreOf(ranks));
  return most;
}

bool EachHasOwnCpu(const std::vector<CpuSet>& sets) {
  CpuMatching matching(sets);
  for (size_t set = 0; set < sets.size(); ++set) {
    if (!matching.Place(set)) return false;
  }
  return true;
}

std::string TopologyText(const std::vector<HostFacts>& hosts) {
  std::string text = absl::StrCat(kFirstLine, "ranks ", hosts.size(), "\n");
  for (const HostFacts& facts : hosts) text += HostFactsText(facts);
  return text;
}

absl::StatusOr<std::vector<HostFacts>> ParseTopology(std::string_view text) {
  std::string_view rest = text;
  if (TakeLines(rest, 1) !=
      std::string_view(kFirstLine.data(), kFirstLine.size())) {
    return absl::InvalidArgumentError(
        "topology: the first line isn't \"trnccl-topology 1\"; dump it with "
        "this version");
  }
  const std::string_view ranks_line = TakeLines(rest, 1);
  std::vector<HostFacts> hosts;
  while (!rest.empty()) {
    absl::StatusOr<HostFacts> facts =
        ParseHostFacts(TakeLines(rest, kHostFactsLines));
    if (!facts.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "topology: rank ", hosts.size(), ": ", facts.status().message()));
    }
    hosts.push_back(*std::move(facts));
  }
  if (hosts.empty() ||
      ranks_line != absl::StrCat("ranks ", hosts.size(), "\n")) {
    return absl::InvalidArgumentError(
        absl::StrCat("topology: the second line isn't \"ranks ", hosts.size(),
                     "\", and so many ranks follow; is the text cut short?"));
  }
  return hosts;
}

absl::StatusOr<std::vector<HostFacts>> ReadTopologyFile(
    const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("can't read ", path, ": ", std::strerror(errno)));
  }
  absl::StatusOr<std::vector<HostFacts>> hosts = ParseTopology(text);
  if (!hosts.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", hosts.status().message()));
  }
  return hosts;
}

std::string TopologyJson(const Topology& topology) {
  const auto machines = CpusByMachine(topology.hosts);
  std::vector<std::string> nodes;
  for (const std::vector<int>& ranks : topology.grid.nodes) {
    const HostFacts& first = topology.hosts[static_cast<size_t>(ranks.front())];
    const bool own_core = EachHasOwnCpu(machines.at(first.machine));
    nodes.push_back(
        absl::StrCat("{\"ranks\": [", absl::StrJoin(ranks, ", "),
                     "], \"own_core\": ", own_core ? "true" : "false", "}"));
  }
  std::vector<std::string> ranks;
  for (const HostFacts& facts : topology.hosts) {
    ranks.push_back(absl::StrCat(
        "{\"rank\": ", ranks.size(), ", \"host_id\": ", JsonText(facts.host_id),
        ", \"machine\": ", JsonText(facts.machine), ", \"hostname\": ",
        JsonText(facts.hostname), ", \"pid\": ", facts.pid, ", \"cpus\": \"",
        CpuSetText(facts.cpus), "\", \"cores\": \"", CpuSetsText(facts.cores),
        "\", \"l3_groups\": \"", CpuSetsText(facts.l3_groups),
        "\", \"nics\": ", JsonText(NicsText(facts.nics)), ", \"addresses\": ",
        JsonText(absl::StrJoin(facts.addresses, ",")), "}"));
  }
  return absl::StrCat("{\"version\": 1,\n \"nodes\": [\n  ",
                      absl::StrJoin(nodes, ",\n  "), "],\n \"ranks\": [\n  ",
                      absl::StrJoin(ranks, ",\n  "), "]}\n");
}

std::string NameOfRank(const Topology& topology, int rank) {
  const HostFacts& host = topology.hosts[static_cast<size_t>(rank)];
  return absl::StrCat("rank ", rank, " (host ", host.hostname, ", pid ",
                      host.pid, ")");
}

}  // namespace trnccl
