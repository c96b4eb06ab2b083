// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/planner.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/spec.h"
#include "algorithms/verifier.h"
#include "ccl/planner/model_file.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

// One rank's planner of a communicator whose ranks lie on these nodes.
struct OneRank {
  OneRank(int rank, const Grid& nodes, const std::string& algorithm)
      : grid(nodes) {
    int ranks = 0;
    for (const auto& node : grid.nodes) ranks += static_cast<int>(node.size());
    routes.resize(static_cast<size_t>(ranks));
    settings.algorithm = algorithm;
    planner = *Planner::Create({.membership = {.rank = rank, .ranks = ranks},
                                .grid = &grid,
                                .routes = &routes,
                                .settings = &settings,
                                .model = DefaultModel(),
                                .slice_bytes = 64 << 10,
                                .lanes = 4});
  }

  Grid grid;
  Routes routes;
  Settings settings;
  std::unique_ptr<Planner> planner;
};

Grid GridOf(const std::vector<int>& ranks_by_node) {
  return PackedGrid(ranks_by_node);
}

std::string PlanText(const Plan& plan) {
  return absl::StrCat(std::string(plan.program->algorithm->name), ", ",
                      plan.sizes.segments, " segments of ",
                      plan.sizes.segment_count, ", ", plan.sizes.slots,
                      " at once, engine ", static_cast<int>(plan.engine));
}

void ExpectAlike(const Grid& grid, const std::string& algorithm,
                 const CollectiveCall& call) {
  std::string first;
  int ranks = 0;
  for (const auto& node : grid.nodes) ranks += static_cast<int>(node.size());
  for (int rank = 0; rank < ranks; ++rank) {
    OneRank one(rank, grid, algorithm);
    const auto plan = one.planner->PlanFor(call);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::string text = PlanText(**plan);
    if (rank == 0) first = text;
    ASSERT_EQ(text, first) << "rank " << rank << " and rank 0, "
                           << Name(call.collective) << ", count "
                           << call.output_counts.even_count << ", root "
                           << call.root << ", " << ranks << " ranks on "
                           << grid.nodes.size() << " nodes";
  }
}

// Ranks that cut a call otherwise would wait for each other's messages, or take
// them for what they aren't.
TEST(Planner, PlansAlikeOnAllRanks) {
  const std::vector<std::vector<int>> grids = {
      {2}, {3}, {4}, {5}, {8}, {2, 2}, {3, 1}, {1, 2, 3}, {4, 4}};
  for (const auto& ranks_by_node : grids) {
    const Grid grid = GridOf(ranks_by_node);
    for (const Algorithm& row : Catalog()) {
      int ranks = 0;
      for (const auto& node : grid.nodes)
        ranks += static_cast<int>(node.size());
      if (!row.legal({.ranks = ranks, .grid = &grid})) continue;
      const std::string only = absl::StrCat(std::string(Name(row.collective)),
                                            ":", std::string(row.name));
      for (const int64_t count : {1, 100'000, 5'000'001}) {
        const BlockCounts counts = BlockCounts::Even(count);
        for (const int root : {0, ranks - 1}) {
          ExpectAlike(grid, only,
                      {.collective = row.collective,
                       .root = root,
                       .input_counts = counts,
                       .output_counts = counts});
        }
      }
    }
  }
}

TEST(Planner, LeavesTheEngineToWhoListsNoAlgorithms) {
  const BlockCounts counts = BlockCounts::Even(10'000'000);
  const CollectiveCall call = {.collective = Collective::kAllReduce,
                               .input_counts = counts,
                               .output_counts = counts};
  for (const auto& [algorithm, engine] :
       std::vector<std::pair<std::string, EngineUse>>{
           {"", EngineUse::kAlways},
           {"all_reduce:^ring", EngineUse::kAlways},
           {"all_gather:ring", EngineUse::kAlways},
           {"all_reduce:ring", EngineUse::kNever}}) {
    OneRank one(0, GridOf({2}), algorithm);
    const auto plan = one.planner->PlanFor(call);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->engine, engine) << algorithm;
  }
}

TEST(Planner, AsksForTheEngineWhereThatCostsLittle) {
  OneRank one(0, GridOf({2}), "");
  const auto use = [&](int64_t count) {
    const BlockCounts counts = BlockCounts::Even(count);
    const auto plan =
        one.planner->PlanFor({.collective = Collective::kAllGather,
                              .input_counts = counts,
                              .output_counts = counts});
    return (*plan)->engine;
  };
  EXPECT_EQ(use(2), EngineUse::kNever);
  EXPECT_EQ(use(2'000), EngineUse::kMapped);
  EXPECT_EQ(use(2'000'000), EngineUse::kAlways);
}

const Plan& PlanOn(OneRank& one, Collective collective, int64_t count) {
  const BlockCounts counts = BlockCounts::Even(count);
  const auto plan = one.planner->PlanFor({.collective = collective,
                                          .input_counts = counts,
                                          .output_counts = counts});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return **plan;
}

Schedule ScheduleOf(const Plan& plan, const Grid& grid) {
  return BuildSchedule(*plan.program->algorithm,
                       {.ranks = RanksOf(grid), .grid = &grid});
}

// What the busiest node sends to others, in blocks.
double MostSentByANode(const Plan& plan, const Grid& grid) {
  std::vector<size_t> node_of(static_cast<size_t>(RanksOf(grid)));
  for (size_t node = 0; node < grid.nodes.size(); ++node)
    for (const int rank : grid.nodes[node])
      node_of[static_cast<size_t>(rank)] = node;
  std::vector<double> sent(grid.nodes.size());
  const Schedule schedule = ScheduleOf(plan, grid);
  for (size_t rank = 0; rank < schedule.programs.size(); ++rank)
    for (const Lane& lane : schedule.programs[rank].lanes)
      for (const Step& step : lane.steps)
        for (const int peer : step.send_to)
          if (node_of[static_cast<size_t>(peer)] != node_of[rank])
            sent[node_of[rank]] += static_cast<double>(ChunkCount(step));
  return *std::ranges::max_element(sent) /
         static_cast<double>(schedule.programs[0].chunks_per_block);
}

// A flat ring would take 7 rounds, and direct algorithms 7 messages.
TEST(Planner, TakesLogarithmicRoundsForShortCallsOfManyNodes) {
  const Grid grid = GridOf(std::vector<int>(8, 1));
  OneRank one(0, grid, "");
  for (const auto& [collective, count, most] :
       std::vector<std::tuple<Collective, int64_t, int64_t>>{
           {Collective::kAllGather, 128, 3},
           {Collective::kAllGather, 1024, 3},
           {Collective::kReduceScatter, 128, 3},
           {Collective::kReduceScatter, 1024, 3},
           {Collective::kAllReduce, 1024, 6}}) {
    const Plan& plan = PlanOn(one, collective, count);
    const auto proven =
        Verify(ScheduleOf(plan, grid), {.collective = collective, .ranks = 8});
    ASSERT_TRUE(proven.ok()) << proven.status();
    EXPECT_EQ(plan.sizes.segments, 1);
    EXPECT_LE(proven->most_messages_sent, most)
        << Name(collective) << " by " << plan.program->algorithm->name;
  }
}

TEST(Planner, CrossesAsFewBytesAsItCanInLongCalls) {
  for (const auto& ranks_by_node :
       std::vector<std::vector<int>>{{2, 2},
                                     {3, 2},
                                     {1, 3},
                                     {4, 4},
                                     {2, 2, 2},
                                     {2, 2, 2, 2},
                                     {4, 1, 3},
                                     {8, 8, 8, 8},
                                     std::vector<int>(8, 8),
                                     std::vector<int>(16, 1)}) {
    const Grid grid = GridOf(ranks_by_node);
    OneRank one(0, grid, "");
    const auto nodes = static_cast<double>(grid.nodes.size());
    for (const int64_t count : {1 << 20, 4 << 20, 64 << 20}) {
      const Plan& plan = PlanOn(one, Collective::kAllReduce, count);
      EXPECT_LE(MostSentByANode(plan, grid), 1.05 * 2 * (nodes - 1) / nodes)
          << plan.program->algorithm->name << " for " << count << " on "
          << Describe(grid);
    }
  }
}

TEST(Planner, SpeaksByNodesWhereSeveralHaveSeveralRanks) {
  const Grid grid = GridOf({2, 2});
  OneRank one(0, grid, "");
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather,
        Collective::kReduceScatter, Collective::kBroadcast}) {
    const Plan& plan = PlanOn(one, collective, 16 << 10);
    EXPECT_TRUE(plan.program->algorithm->name.starts_with("hierarchical"))
        << Name(collective) << " by " << plan.program->algorithm->name;
  }
  EXPECT_TRUE(PlanOn(one, Collective::kAllReduce, 256 << 10)
                  .program->algorithm->name.starts_with("hierarchical"));
}

TEST(Planner, AsksForNoEngineAcrossNodes) {
  OneRank one(0, GridOf({2, 2}), "");
  for (const int64_t count : {1, 1000, 10'000'000})
    EXPECT_EQ(PlanOn(one, Collective::kAllReduce, count).engine,
              EngineUse::kNever);
}

}  // namespace
}  // namespace trnccl
