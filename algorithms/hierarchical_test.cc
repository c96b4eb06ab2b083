// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/hierarchical.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/verifier.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr Collective kComposed[] = {
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
    Collective::kBroadcast, Collective::kReduce};

Grid EvenGrid(int nodes, int ranks_per_node) {
  return PackedGrid(
      std::vector<int>(static_cast<size_t>(nodes), ranks_per_node));
}

Schedule BuildOn(const Grid& grid, Collective collective) {
  return BuildSchedule(*FindAlgorithm(collective, "hierarchical"),
                       {.ranks = RanksOf(grid), .grid = &grid});
}

int64_t NodeOf(const Grid& grid, int rank) {
  for (size_t node = 0; node < grid.nodes.size(); ++node) {
    for (int member : grid.nodes[node]) {
      if (member == rank) return static_cast<int64_t>(node);
    }
  }
  return -1;
}

// The most chunks that any rank sends to other nodes.
int64_t MostSentAcross(const Grid& grid, const Schedule& schedule) {
  int64_t most = 0;
  for (int rank = 0; rank < RanksOf(grid); ++rank) {
    int64_t sent = 0;
    const Program& program = schedule.programs[static_cast<size_t>(rank)];
    for (const Step& step : program.lanes[0].steps) {
      for (int peer : step.send_to) {
        if (NodeOf(grid, peer) != NodeOf(grid, rank)) sent += ChunkCount(step);
      }
    }
    most = std::max(most, sent);
  }
  return most;
}

TEST(Hierarchical, TakesTheRoundsAndChunksThatItStates) {
  for (int nodes : {2, 3, 4, 7, 8}) {
    for (int per_node : {1, 2, 4, 8}) {
      const Grid grid = EvenGrid(nodes, per_node);
      const int n = nodes * per_node;
      const int64_t up = std::bit_width(static_cast<unsigned>(nodes - 1));
      const int64_t down = std::bit_width(static_cast<unsigned>(nodes)) - 1;
      const int64_t in_node = per_node > 1 ? 1 : 0;
      struct Figures {
        int64_t rounds, sent, across;
      };
      const Figures expected[] = {
          {2 * in_node + 2 * up, 2 * (n - 1), 2 * (nodes - 1)},
          {in_node + 1, n - 1, nodes - 1},
          {in_node + up, n - 1, nodes - 1},
          {in_node + down, up + per_node - 1, up},
          {in_node + down, 1, 1}};
      for (size_t i = 0; i < std::size(kComposed); ++i) {
        SCOPED_TRACE(testing::Message()
                     << Name(kComposed[i]) << ", " << nodes << "x" << per_node);
        const Schedule schedule = BuildOn(grid, kComposed[i]);
        const auto proven =
            Verify(schedule, {.collective = kComposed[i], .ranks = n});
        ASSERT_TRUE(proven.ok()) << proven.status();
        EXPECT_EQ(proven->rounds, expected[i].rounds);
        EXPECT_EQ(proven->most_chunks_sent, expected[i].sent);
        EXPECT_EQ(MostSentAcross(grid, schedule), expected[i].across);
      }
    }
  }
}

TEST(Hierarchical, IsLegalOnlyWhereSeveralNodesAreKnown) {
  const Grid one = EvenGrid(1, 4);
  const Grid two = EvenGrid(2, 2);
  for (Collective collective : kComposed) {
    const Algorithm& row = *FindAlgorithm(collective, "hierarchical");
    EXPECT_FALSE(row.legal({.ranks = 4}));
    EXPECT_FALSE(row.legal({.ranks = 4, .grid = &one}));
    EXPECT_TRUE(row.legal({.ranks = 4, .grid = &two}));
  }
}

TEST(Hierarchical, LargeGridsCostOneRanksWork) {
  const Grid grid = EvenGrid(128, 64);
  const Algorithm& row = *FindAlgorithm(Collective::kAllReduce, "hierarchical");
  const Program program =
      row.build({.ranks = RanksOf(grid), .rank = 77, .grid = &grid});
  // 64 sends in the node each way, and PAT among 128 nodes.
  EXPECT_LT(program.lanes[0].steps.size(), 300u);
}

}  // namespace
}  // namespace trnccl
