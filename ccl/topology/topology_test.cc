// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/topology/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>

namespace trnccl {
namespace {

HostFacts On(const std::string& host_id, CpuSet cpus = {0, 1}) {
  return {.host_id = host_id,
          .machine = "machine of " + host_id,
          .hostname = "host of " + host_id,
          .pid = 1,
          .cpus = std::move(cpus)};
}

using Nodes = std::vector<std::vector<int>>;

TEST(Topology, PutsOneHostsRanksOnOneNode) {
  const std::vector<HostFacts> hosts(3, On("a"));
  for (int rank = 0; rank < 3; ++rank) {
    const Topology topology = MakeTopology(hosts, rank);
    EXPECT_EQ(topology.grid.nodes, (Nodes{{0, 1, 2}}));
    EXPECT_EQ(topology.node, 0);
    EXPECT_EQ(topology.local_rank, rank);
    EXPECT_EQ(topology.local_ranks(), (std::vector<int>{0, 1, 2}));
  }
}

TEST(Topology, TakesUnevenNodes) {
  const std::vector<HostFacts> hosts = {On("b"), On("b"), On("b"), On("a"),
                                        On("a")};
  const Topology topology = MakeTopology(hosts, 4);
  EXPECT_EQ(topology.grid.nodes, (Nodes{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(topology.node, 1);
  EXPECT_EQ(topology.local_rank, 1);
}

TEST(Topology, TakesInterleavedRanksAndOrdersNodesByTheirLowest) {
  const std::vector<HostFacts> hosts = {On("z"), On("a"), On("z"),
                                        On("m"), On("a"), On("z")};
  const Topology topology = MakeTopology(hosts, 5);
  EXPECT_EQ(topology.grid.nodes, (Nodes{{0, 2, 5}, {1, 4}, {3}}));
  EXPECT_EQ(topology.node, 0);
  EXPECT_EQ(topology.local_rank, 2);
}

TEST(Topology, GoesByTheHostIdAndNotTheHostname) {
  std::vector<HostFacts> hosts = {On("one"), On("one"), On("two")};
  hosts[0].hostname = "x";
  hosts[1].hostname = "y";
  hosts[2].hostname = "x";
  EXPECT_EQ(MakeTopology(hosts, 0).grid.nodes, (Nodes{{0, 1}, {2}}));
}

TEST(OwnCpu, NeedsOneForEach) {
  EXPECT_TRUE(EachHasOwnCpu({}));
  EXPECT_TRUE(EachHasOwnCpu({{0, 1}, {0, 1}}));
  EXPECT_FALSE(EachHasOwnCpu({{0, 1}, {0, 1}, {0, 1}}));
  EXPECT_FALSE(EachHasOwnCpu({{}}));
  // Enough in the union isn't enough.
  EXPECT_FALSE(EachHasOwnCpu({{0}, {0}, {0, 1, 2, 3}}));
  // The first come must make room: a greedy choice of the lowest fails.
  EXPECT_TRUE(EachHasOwnCpu({{0, 1}, {0}}));
  EXPECT_TRUE(EachHasOwnCpu({{0, 1, 3}, {0, 2}, {1}, {0}}));
  EXPECT_TRUE(EachHasOwnCpu({{0, 1}, {1, 2}, {2, 3}, {0}}));
  EXPECT_FALSE(EachHasOwnCpu({{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}));
}

// Hall's theorem, the slow way: no subset of ranks has fewer processors than
// ranks.
bool EnoughForEverySubset(const std::vector<CpuSet>& sets) {
  for (uint32_t subset = 1; subset < 1u << sets.size(); ++subset) {
    uint32_t cpus = 0;
    for (size_t i = 0; i < sets.size(); ++i) {
      if ((subset >> i & 1) == 0) continue;
      for (const int cpu : sets[i]) cpus |= 1u << cpu;
    }
    if (__builtin_popcount(cpus) < __builtin_popcount(subset)) return false;
  }
  return true;
}

TEST(OwnCpu, AgreesWithHallsTheoremInAnyOrder) {
  constexpr uint32_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int yes = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<CpuSet> sets(1 + random() % 7);
    for (CpuSet& cpus : sets) {
      for (int cpu = 0; cpu < 8; ++cpu) {
        if (random() % 4 == 0) cpus.push_back(cpu);
      }
    }
    const bool expected = EnoughForEverySubset(sets);
    yes += expected ? 1 : 0;
    EXPECT_EQ(EachHasOwnCpu(sets), expected) << CpuSetsText(sets);
    std::shuffle(sets.begin(), sets.end(), random);
    EXPECT_EQ(EachHasOwnCpu(sets), expected) << CpuSetsText(sets);
  }
  EXPECT_GT(yes, 200);
  EXPECT_LT(yes, 1800);
}

TEST(OwnCpu, IsOfTheRanksMachineAndAlikeThere) {
  const std::vector<HostFacts> hosts = {On("a", {0}), On("b", {0}),
                                        On("a", {0, 1}), On("b", {0}),
                                        On("b", {0, 1, 2})};
  for (int rank = 0; rank < 5; ++rank) {
    const Topology topology = MakeTopology(hosts, rank);
    EXPECT_EQ(topology.own_core, topology.node == 0) << rank;
  }
}

// Namespaces and containers are nodes that share their processors.
TEST(OwnCpu, IsNotHadByNodesOfOneMachine) {
  std::vector<HostFacts> hosts;
  for (int node = 0; node < 8; ++node) {
    hosts.push_back(On("node" + std::to_string(node)));
    hosts.back().machine = "one";
  }
  hosts.push_back(On("another"));
  for (int rank = 0; rank < 9; ++rank) {
    const Topology topology = MakeTopology(hosts, rank);
    EXPECT_EQ(topology.grid.nodes.size(), 9u);
    EXPECT_EQ(topology.own_core, rank == 8) << rank;
    EXPECT_EQ(RanksPerCore(topology), 4) << rank;
  }
}

TEST(OwnCpu, IsHadByNodesThatArePinnedApart) {
  std::vector<HostFacts> hosts = {On("a", {0}), On("b", {1})};
  hosts[0].machine = hosts[1].machine = "one";
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(MakeTopology(hosts, rank).own_core);
    EXPECT_EQ(RanksPerCore(MakeTopology(hosts, rank)), 1);
  }
}

// Ranks choose algorithms by it, each on its own.
TEST(RanksPerCore, IsAlikeOnAllRanksOfUnlikeMachines) {
  const std::vector<HostFacts> hosts = {On("a"), On("b"), On("b"),
                                        On("b"), On("b"), On("b")};
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_EQ(RanksPerCore(MakeTopology(hosts, rank)), 2.5) << rank;
}

TEST(OwnCpu, IsQuickForManyRanksWithTheSameProcessors) {
  CpuSet cpus;
  for (int cpu = 0; cpu < 512; ++cpu) cpus.push_back(cpu);
  std::vector<CpuSet> sets(512, cpus);
  EXPECT_TRUE(EachHasOwnCpu(sets));
  sets.push_back(cpus);
  EXPECT_FALSE(EachHasOwnCpu(sets));
}

TEST(TopologyText, ComesBackFromAFile) {
  const std::vector<HostFacts> hosts = {On("a", {0}), On("b\n\"", {0, 1, 5}),
                                        On("a", {1})};
  const std::string path = testing::TempDir() + "/topology.txt";
  std::ofstream(path) << TopologyText(hosts);
  const auto back = ReadTopologyFile(path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, hosts);
  std::remove(path.c_str());
  const auto missing = ReadTopologyFile(path);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find(path), absl::string_view::npos);
}

TEST(TopologyText, IsRefusedIfCutShortOrLengthened) {
  const std::string text = TopologyText({On("a"), On("b")});
  ASSERT_TRUE(ParseTopology(text).ok());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseTopology(text.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(ParseTopology(text + "\n").ok());
  EXPECT_FALSE(ParseTopology(text + HostFactsText(On("c"))).ok());
  EXPECT_FALSE(ParseTopology("trnccl-topology 2" + text.substr(17)).ok());
  EXPECT_FALSE(ParseTopology(TopologyText({})).ok());
}

TEST(TopologyJson, ShowsNodesAndRanks) {
  EXPECT_EQ(TopologyJson(MakeTopology({On("a\"\n", {0}), On("b", {0, 1})}, 0)),
            R"({"version": 1,
 "nodes": [
  {"ranks": [0], "own_core": true},
  {"ranks": [1], "own_core": true}],
 "ranks": [
  {"rank": 0, "host_id": "a\"\u000a", "machine": "machine of a\"\u000a",)"
            R"( "hostname": "host of a\"\u000a",)"
            R"( "pid": 1, "cpus": "0", "cores": "", "l3_groups": "",)"
            R"( "nics": "", "addresses": ""},
  {"rank": 1, "host_id": "b", "machine": "machine of b",)"
            R"( "hostname": "host of b",)"
            R"( "pid": 1, "cpus": "0-1", "cores": "", "l3_groups": "",)"
            R"( "nics": "", "addresses": ""}]}
)");
}

}  // namespace
}  // namespace trnccl
