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

double CostOf(std::string_view name, int64_t block_count, const Shape& shape) {
  return CostSeconds({.algorithm = FindAlgorithm(Collective::kAllReduce, name),
                      .shape = shape,
                      .block_count = block_count,
                      .element_bytes = 4,
                      .segment_count = 1 << 18,
                      .segments_in_flight = 4},
                     kModel);
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
      double before = 0;
      for (int64_t count = 0; count < 100'000'000; count = 3 * count + 1) {
        const double cost = CostSeconds({.algorithm = &algorithm,
                                         .shape = shape,
                                         .block_count = count,
                                         .element_bytes = 4,
                                         .segment_count = 5000,
                                         .segments_in_flight = 3},
                                        kModel);
        EXPECT_GE(cost, before) << Name(algorithm.collective) << " "
                                << algorithm.name << ", " << count;
        before = cost;
      }
    }
  }
}

TEST(Cost, IsTheSameOnAllRanks) {
  for (const Algorithm& algorithm : Catalog()) {
    for (int ranks : {5, 400}) {
      PlanShape plan = {.algorithm = &algorithm,
                        .shape = {.ranks = ranks},
                        .block_count = 1000,
                        .segment_count = 100};
      if (!algorithm.legal(plan.shape)) continue;
      const double cost = CostSeconds(plan, kModel);
      plan.shape.rank = ranks - 2;
      EXPECT_EQ(CostSeconds(plan, kModel), cost);
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
  PlanShape plan = {
      .algorithm = FindAlgorithm(Collective::kAllReduce, "double_tree"),
      .shape = {.ranks = 16},
      .block_count = 1 << 20,
      .segment_count = 1 << 14};
  double before = CostSeconds(plan, kModel);
  for (plan.segments_in_flight = 2; plan.segments_in_flight <= 8;
       ++plan.segments_in_flight) {
    const double cost = CostSeconds(plan, kModel);
    EXPECT_LE(cost, before);
    before = cost;
  }
}

TEST(Cost, OversubscriptionCosts) {
  LinkModel crowded = kModel;
  crowded.ranks_per_core = 4;
  const PlanShape plan = {
      .algorithm = FindAlgorithm(Collective::kAllReduce, "ring"),
      .shape = {.ranks = 8},
      .block_count = 1000,
      .segment_count = 1000};
  EXPECT_GT(CostSeconds(plan, crowded), CostSeconds(plan, kModel));
}

}  // namespace
}  // namespace trnccl
