// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/planner.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/catalog.h"
#include "algorithms/spec.h"
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
  Grid grid;
  int rank = 0;
  for (const int ranks : ranks_by_node) {
    grid.nodes.emplace_back();
    for (int i = 0; i < ranks; ++i) grid.nodes.back().push_back(rank++);
  }
  return grid;
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

}  // namespace
}  // namespace trnccl
