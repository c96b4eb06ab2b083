// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Who shares a machine with whom: what follows from all ranks' facts, and the
// forms in which it's shown and kept. Not here: what links cost.
//
// Thread rule: plain values and pure functions.
//
//   Topology topology = MakeTopology(facts_by_rank, rank);
//   if (topology.own_core) ...  // a waiting rank may spin
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/spec.h"
#include "ccl/topology/host_facts.h"

namespace trnccl {

struct Topology {
  std::vector<HostFacts> hosts;  // by rank
  Grid grid;                     // nodes ordered by their lowest rank

  // Of the rank that it was made for.
  int node = 0;  // in the grid
  int local_rank = 0;
  // Every rank of the machine, which may hold several nodes, can run at the
  // same time as all others, each on a processor of its own; alike on all of
  // them. What else runs there isn't known. Two hardware threads of a core
  // count as two: a rank that spins on one doesn't keep a rank from running on
  // the other.
  bool own_core = false;

  const std::vector<int>& local_ranks() const {
    return grid.nodes[static_cast<size_t>(node)];
  }
};

// `rank` is one of the hosts'.
Topology MakeTopology(std::vector<HostFacts> hosts, int rank);

// Above 1, the ranks of some machine take turns on its processors, and so many
// are waited for by all: it's alike on all ranks, as costs must be.
double RanksPerCore(const Topology& topology);

// Whether each gets a processor of its own set that no other gets.
bool EachHasOwnCpu(const std::vector<CpuSet>& sets);

// All ranks' facts, as lines that ParseTopology() takes back.
std::string TopologyText(const std::vector<HostFacts>& hosts);
absl::StatusOr<std::vector<HostFacts>> ParseTopology(std::string_view text);
absl::StatusOr<std::vector<HostFacts>> ReadTopologyFile(
    const std::string& path);

// The facts and what follows from them, for other programs.
std::string TopologyJson(const Topology& topology);

// How errors name a rank: "rank 3 (host a, pid 77)".
std::string NameOfRank(const Topology& topology, int rank);

}  // namespace trnccl
