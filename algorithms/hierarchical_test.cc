// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/hierarchical.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/prove_row.h"
#include "algorithms/verifier.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

Grid EvenGrid(int nodes, int ranks_per_node) {
  return PackedGrid(
      std::vector<int>(static_cast<size_t>(nodes), ranks_per_node));
}

std::vector<const Algorithm*> HierarchicalRows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : Catalog()) {
    if (row.name.starts_with("hierarchical")) rows.push_back(&row);
  }
  return rows;
}

size_t NodeOf(const Grid& grid, int rank) {
  for (size_t node = 0; node < grid.nodes.size(); ++node) {
    if (std::ranges::count(grid.nodes[node], rank) > 0) return node;
  }
  return grid.nodes.size();
}

struct Traffic {
  int64_t chunks = 0;
  int64_t messages = 0;
};

// What crosses between nodes.
class Crossing {
 public:
  Crossing(const Grid& grid, const Schedule& schedule)
      : sent_by_rank_(static_cast<size_t>(RanksOf(grid))),
        sent_by_node_(grid.nodes.size()),
        received_by_node_(grid.nodes.size()) {
    for (int rank = 0; rank < RanksOf(grid); ++rank) {
      const Program& program = schedule.programs[static_cast<size_t>(rank)];
      for (const Lane& lane : program.lanes) {
        for (const Step& step : lane.steps) Count(grid, rank, step);
      }
    }
  }

  int64_t MostChunksOfARank() const { return Most(sent_by_rank_).chunks; }
  int64_t MostMessagesOfARank() const { return Most(sent_by_rank_).messages; }
  const std::vector<Traffic>& sent_by_node() const { return sent_by_node_; }
  const std::vector<Traffic>& received_by_node() const {
    return received_by_node_;
  }

 private:
  void Count(const Grid& grid, int rank, const Step& step) {
    const size_t from = NodeOf(grid, rank);
    for (const int peer : step.send_to) {
      const size_t to = NodeOf(grid, peer);
      if (from == to) continue;
      for (Traffic* traffic : {&sent_by_rank_[static_cast<size_t>(rank)],
                               &sent_by_node_[from], &received_by_node_[to]}) {
        traffic->chunks += ChunkCount(step);
        ++traffic->messages;
      }
    }
  }

  static Traffic Most(const std::vector<Traffic>& all) {
    Traffic most;
    for (const Traffic& traffic : all) {
      most.chunks = std::max(most.chunks, traffic.chunks);
      most.messages = std::max(most.messages, traffic.messages);
    }
    return most;
  }

  std::vector<Traffic> sent_by_rank_;
  std::vector<Traffic> sent_by_node_;
  std::vector<Traffic> received_by_node_;
};

// Chunks are those that the row's program cuts a block into.
struct Figures {
  int64_t rounds = 0;
  int64_t across = 0;  // chunks that a rank sends to other nodes, at most
};

using RowName = std::pair<Collective, std::string>;

std::map<RowName, Figures> FiguresFor(int64_t nodes, int64_t per_node) {
  using enum Collective;
  const auto n = static_cast<unsigned>(nodes);
  const int64_t up = std::bit_width(n - 1);
  const int64_t down = std::bit_width(n) - 1;
  const bool power = std::has_single_bit(n);
  // Batches in the node: of a chunk on two lanes, or of half the chunks.
  const int64_t ones = (nodes + 1) / 2;
  const int64_t halves = nodes % 2 == 0 ? 2 : 3;
  return {
      {{kAllReduce, "hierarchical_ring"},
       {2 * ones + 2 * (nodes - 1), 2 * (nodes - 1)}},
      {{kAllReduce, "hierarchical_halving"},
       {2 * halves + 2 * up, 2 * (nodes - 1)}},
      {{kAllReduce, "hierarchical_pat"},
       {2 * halves + 2 * up, 2 * (nodes - 1)}},
      // Two trees, half of the column each; of up to three nodes none is in the
      // middle of one.
      {{kAllReduce, "hierarchical_tree"},
       {2 + 2 * down, nodes > 3 ? 4 : nodes}},
      // Of three nodes, who hears last from the pair isn't the last to hear.
      {{kAllReduce, "hierarchical_doubling"},
       {2 + down +
            (power        ? 0
             : nodes == 3 ? 1
                          : 2),
        down + (power ? 0 : 1)}},
      {{kReduceScatter, "hierarchical_direct"}, {nodes + 1, nodes - 1}},
      {{kReduceScatter, "hierarchical_ring"}, {ones + nodes - 1, nodes - 1}},
      {{kReduceScatter, "hierarchical_pat"}, {halves + up, nodes - 1}},
      {{kAllGather, "hierarchical_direct"}, {nodes + 1, nodes - 1}},
      {{kAllGather, "hierarchical_ring"}, {ones + nodes - 1, nodes - 1}},
      {{kAllGather, "hierarchical_pat"}, {halves + up, nodes - 1}},
      {{kBroadcast, "hierarchical_binomial"}, {1 + down, up}},
      {{kBroadcast, "hierarchical_chain"}, {nodes, 1}},
      {{kBroadcast, "hierarchical_scatter_gather"},
       {1 + down + up, 2 * (nodes - 1)}},
      {{kReduce, "hierarchical_binomial"}, {1 + down, 1}},
      {{kReduce, "hierarchical_chain"}, {nodes, 1}},
      {{kReduce, "hierarchical_scatter_gather"}, {2 + up, nodes}},
      {{kAllToAll, "hierarchical"}, {nodes, (nodes - 1) * per_node}},
  };
}

TEST(Hierarchical, TakesTheRoundsAndChunksThatItStates) {
  for (int nodes : {2, 3, 4, 7, 8}) {
    for (int per_node : {2, 4, 8}) {
      const Grid grid = EvenGrid(nodes, per_node);
      const auto figures = FiguresFor(nodes, per_node);
      for (const Algorithm* row : HierarchicalRows()) {
        SCOPED_TRACE(testing::Message()
                     << Name(row->collective) << " " << row->name << ", "
                     << nodes << "x" << per_node);
        const Figures expected =
            figures.at({row->collective, std::string(row->name)});
        const Shape shape = {.ranks = RanksOf(grid), .grid = &grid};
        const Proven proven = ProveRow(row->collective, row->name, shape);
        EXPECT_EQ(proven.rounds, expected.rounds);
        EXPECT_EQ(
            Crossing(grid, BuildSchedule(*row, shape)).MostChunksOfARank(),
            expected.across);
      }
    }
  }
}

// Each node's contribution to the others' parts, and its part to them.
TEST(Hierarchical, AllReduceCrossesAsFewBytesAsItCanOnAnyGrid) {
  for (const Grid& grid : GridsToProve()) {
    const Shape shape = {.ranks = RanksOf(grid), .grid = &grid};
    const auto nodes = static_cast<int64_t>(grid.nodes.size());
    for (const char* name :
         {"hierarchical_ring", "hierarchical_halving", "hierarchical_pat"}) {
      const Algorithm& row = *FindAlgorithm(Collective::kAllReduce, name);
      if (!row.legal(shape)) continue;
      SCOPED_TRACE(testing::Message() << name << ": " << Describe(grid));
      const Schedule schedule = BuildSchedule(row, shape);
      const int64_t block = schedule.programs.front().chunks_per_block;
      const Crossing crossing(grid, schedule);
      for (size_t node = 0; node < grid.nodes.size(); ++node) {
        // 2 (N - 1) / N of the block.
        EXPECT_EQ(crossing.sent_by_node()[node].chunks * nodes,
                  2 * (nodes - 1) * block);
        EXPECT_EQ(crossing.received_by_node()[node].chunks * nodes,
                  2 * (nodes - 1) * block);
      }
    }
  }
}

TEST(Hierarchical, GatheringAndScatteringCrossEachBlockOnceForANode) {
  for (const Grid& grid : GridsToProve()) {
    const Shape shape = {.ranks = RanksOf(grid), .grid = &grid};
    const auto nodes = static_cast<int64_t>(grid.nodes.size());
    for (const Algorithm* row : HierarchicalRows()) {
      const bool gathers = row->collective == Collective::kAllGather;
      const bool scatters = row->collective == Collective::kReduceScatter;
      if ((!gathers && !scatters) || !row->legal(shape)) continue;
      SCOPED_TRACE(testing::Message() << Name(row->collective) << " "
                                      << row->name << ": " << Describe(grid));
      const Crossing crossing(grid, BuildSchedule(*row, shape));
      int64_t in_all = 0;
      for (size_t node = 0; node < grid.nodes.size(); ++node) {
        const auto others =
            shape.ranks - static_cast<int64_t>(grid.nodes[node].size());
        EXPECT_EQ((gathers ? crossing.received_by_node()
                           : crossing.sent_by_node())[node]
                      .chunks,
                  others);
        in_all += crossing.sent_by_node()[node].chunks;
      }
      EXPECT_EQ(in_all, (nodes - 1) * shape.ranks);
    }
  }
}

TEST(Hierarchical, AllToAllCrossesOneMessageForEachNodeAndDestination) {
  const Algorithm& row = *FindAlgorithm(Collective::kAllToAll, "hierarchical");
  for (const Grid& grid : GridsToProve()) {
    const Shape shape = {.ranks = RanksOf(grid), .grid = &grid};
    if (!row.legal(shape)) continue;
    SCOPED_TRACE(Describe(grid));
    const Crossing crossing(grid, BuildSchedule(row, shape));
    for (size_t node = 0; node < grid.nodes.size(); ++node) {
      const auto own = static_cast<int64_t>(grid.nodes[node].size());
      const int64_t others = shape.ranks - own;
      EXPECT_EQ(crossing.sent_by_node()[node].messages, others);
      EXPECT_EQ(crossing.sent_by_node()[node].chunks, others * own);
    }
  }
  const Grid grid = EvenGrid(4, 8);
  EXPECT_EQ(Crossing(grid, BuildSchedule(row, {.ranks = 32, .grid = &grid}))
                .MostMessagesOfARank(),
            3);
}

TEST(Hierarchical, IsLegalOnlyWhereSeveralNodesHaveRanksToShareTheWork) {
  const Grid one = EvenGrid(1, 4);
  const Grid flat = EvenGrid(4, 1);
  const Grid two = EvenGrid(2, 2);
  for (const Algorithm* row : HierarchicalRows()) {
    EXPECT_FALSE(row->legal({.ranks = 4}));
    EXPECT_FALSE(row->legal({.ranks = 4, .grid = &one}));
    EXPECT_TRUE(row->legal({.ranks = 4, .grid = &two}));
    // No flat row scatters first.
    EXPECT_EQ(row->legal({.ranks = 4, .grid = &flat}),
              row->name == "hierarchical_scatter_gather");
  }
}

TEST(Hierarchical, LargeGridsCostOneRanksWork) {
  const Grid grid = EvenGrid(128, 64);
  const Algorithm& row =
      *FindAlgorithm(Collective::kAllReduce, "hierarchical_halving");
  const Program program =
      row.build({.ranks = RanksOf(grid), .rank = 77, .grid = &grid});
  // 64 sends in the node each way, and halving among 128 nodes.
  EXPECT_LT(program.lanes[0].steps.size(), 300u);
}

}  // namespace
}  // namespace trnccl
