// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/cost.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "algorithms/grids.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

constexpr LinkModel kModel = {
    .same_node = {.latency_s = 0.5e-6, .seconds_per_byte = 1e-10},
    .other_node = {.latency_s = 15e-6,
                   .message_s = 1e-6,
                   .seconds_per_byte = 1e-9},
    .step_s = 0.1e-6,
    .fold_seconds_per_byte = 1e-10,
    .copy_seconds_per_byte = 1e-10};

double CostOf(const Algorithm& row, const Shape& shape, const CallCut& cut) {
  return PlanCost(row, shape, kModel).Seconds(cut);
}

double CostOf(std::string_view name, int64_t block_count, const Shape& shape) {
  return CostOf(*FindAlgorithm(Collective::kAllReduce, name), shape,
                {.block_count = block_count,
                 .element_bytes = 4,
                 .segment_count = 1 << 18,
                 .segments_in_flight = 4});
}

TEST(Cost, TheRingWinsForLargeCallsAndFewRoundsForSmallOnes) {
  const Shape shape = {.ranks = 64};
  for (std::string_view name : {"one_step", "recursive_doubling", "chain"}) {
    EXPECT_LT(CostOf("ring", 64 << 20, shape), CostOf(name, 64 << 20, shape));
  }
  for (std::string_view name :
       {"one_step", "two_step", "double_tree", "recursive_doubling"}) {
    EXPECT_LT(CostOf(name, 2, shape), CostOf("ring", 2, shape)) << name;
  }
}

TEST(Cost, NodesMakeHierarchiesWorthwhile) {
  const Grid grid = PackedGrid(std::vector<int>(8, 8));
  const Shape shape = {.ranks = 64, .grid = &grid};
  for (int64_t count : {2, 1 << 20}) {
    EXPECT_LT(CostOf("hierarchical_halving", count, shape),
              CostOf("two_step", count, shape));
  }
}

TEST(Cost, NeverFallsWhenACallGrows) {
  for (const Algorithm& algorithm : Catalog()) {
    for (int ranks : {2, 7, 300}) {
      const Shape shape = {.ranks = ranks};
      if (!algorithm.legal(shape)) continue;
      const PlanCost priced(algorithm, shape, kModel);
      double before = 0;
      for (int64_t count = 0; count < 100'000'000; count = 3 * count + 1) {
        const double cost = priced.Seconds({.block_count = count,
                                            .element_bytes = 4,
                                            .segment_count = 5000,
                                            .segments_in_flight = 3});
        EXPECT_GE(cost, before) << Name(algorithm.collective) << " "
                                << algorithm.name << ", " << count;
        before = cost;
      }
    }
  }
}

TEST(Cost, IsTheSameOnAllRanks) {
  const CallCut cut = {.block_count = 1000, .segment_count = 100};
  const Grid few = PackedGrid(std::vector{3, 2});
  const Grid many = PackedGrid(std::vector<int>(50, 8));
  for (const Algorithm& algorithm : Catalog()) {
    for (const Grid* grid : {&few, &many}) {
      Shape shape = {.ranks = RanksOf(*grid)};
      if (!algorithm.legal(shape)) shape.grid = grid;
      const double cost = CostOf(algorithm, shape, cut);
      shape.rank = shape.ranks - 2;
      EXPECT_EQ(CostOf(algorithm, shape, cut), cost);
    }
  }
}

TEST(Cost, OneRankStandsForAllWhereAllDoTheSame) {
  // Just played, and just not: no jump between the two ways of counting.
  const double played = CostOf("ring", 1 << 20, {.ranks = 141});
  const double told = CostOf("ring", 1 << 20, {.ranks = 142});
  EXPECT_NEAR(told / played, 1, 0.15);
}

TEST(Cost, MoreSegmentsInFlightNeverCostMore) {
  const PlanCost priced(*FindAlgorithm(Collective::kAllReduce, "double_tree"),
                        {.ranks = 16}, kModel);
  CallCut cut = {.block_count = 1 << 20, .segment_count = 1 << 14};
  double before = priced.Seconds(cut);
  for (cut.segments_in_flight = 2; cut.segments_in_flight <= 8;
       ++cut.segments_in_flight) {
    const double cost = priced.Seconds(cut);
    EXPECT_LE(cost, before);
    before = cost;
  }
}

TEST(Cost, OversubscriptionCosts) {
  LinkModel crowded = kModel;
  crowded.ranks_per_core = 4;
  const Algorithm& ring = *FindAlgorithm(Collective::kAllReduce, "ring");
  const CallCut cut = {.block_count = 1000, .segment_count = 1000};
  EXPECT_GT(PlanCost(ring, {.ranks = 8}, crowded).Seconds(cut),
            CostOf(ring, {.ranks = 8}, cut));
}

// One segment of 4 million bytes: what isn't bytes hardly counts.
double LongCallSeconds(Collective collective, std::string_view name,
                       const Grid& grid) {
  return CostOf(*FindAlgorithm(collective, name),
                {.ranks = RanksOf(grid), .grid = &grid},
                {.block_count = 4'000'000, .segment_count = 4'000'000});
}

TEST(Cost, RanksOfANodeShareItsNetwork) {
  // Direct: each of so many ranks of a node sends its block to the others.
  const Grid two = PackedGrid(std::vector{1, 1});
  const Grid eight = PackedGrid(std::vector{4, 4});
  const double alone = LongCallSeconds(Collective::kAllGather, "direct", two);
  const double crowded =
      LongCallSeconds(Collective::kAllGather, "direct", eight);
  EXPECT_NEAR(crowded / alone, 16, 2);
  // Of a flat ring, one rank of each node sends across.
  const double ring = LongCallSeconds(Collective::kAllGather, "ring", eight);
  EXPECT_NEAR(ring / alone, 7, 2);
}

TEST(Cost, WhatComesInTakesTheNodesTimeWhoeverSendsIt) {
  const Grid grid = PackedGrid(std::vector<int>(8, 1));
  EXPECT_GT(LongCallSeconds(Collective::kReduce, "direct", grid),
            7 * 4'000'000 * kModel.other_node.seconds_per_byte);
}

TEST(Cost, ATreeOfManyNodesIsNotTakenForOneHop) {
  // 64 nodes, the last just not played.
  const Grid played = PackedGrid(std::vector<int>(64, 8));
  const Grid told = PackedGrid(std::vector<int>(64, 16));
  const auto cost_on = [](const Grid& grid) {
    return CostOf("hierarchical_tree", 2,
                  {.ranks = RanksOf(grid), .grid = &grid});
  };
  EXPECT_NEAR(cost_on(told) / cost_on(played), 1, 0.2);
}

// Above a few thousand ranks' steps, a rank tells for all; in the same way.
TEST(Cost, OneRanksNodeStandsForAllNodes) {
  const Grid played = PackedGrid(std::vector<int>(17, 8));
  const Grid told = PackedGrid(std::vector<int>(18, 8));
  for (std::string_view name : {"ring", "halving_doubling"}) {
    EXPECT_NEAR(LongCallSeconds(Collective::kAllReduce, name, told) /
                    LongCallSeconds(Collective::kAllReduce, name, played),
                1, 0.3)
        << name;
  }
}

}  // namespace
}  // namespace trnccl
