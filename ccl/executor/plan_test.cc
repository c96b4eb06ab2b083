// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/executor/plan.h"

#include <algorithm>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/grids.h"
#include "algorithms/schedule.h"
#include "algorithms/spec.h"
#include "ccl/route.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

// A row that counts its programs.
const Algorithm* counted = nullptr;
int builds = 0;

CompiledProgram CompileCounted(const Algorithm& row, const Shape& shape) {
  counted = &row;
  builds = 0;
  Algorithm counting = row;
  counting.build = [](const Shape& of_rank) {
    ++builds;
    return counted->build(of_rank);
  };
  return Compile(counting, shape, Routes(static_cast<size_t>(shape.ranks)));
}

int64_t LongestOfAll(const Algorithm& row, Shape shape) {
  int64_t most = 1;
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank)
    most = std::max(most, MostChunksPerMessage(row.build(shape)));
  return most;
}

// Every rank must cut messages alike, also where only few ranks were looked at.
TEST(Compile, FindsTheLongestMessageOfAllRanks) {
  for (const Grid& grid : GridsToProve()) {
    Shape shape{.ranks = RanksOf(grid), .grid = &grid};
    const Routes routes(static_cast<size_t>(shape.ranks));
    for (const Algorithm& row : Catalog()) {
      if (!row.legal(shape)) continue;
      const int64_t longest = LongestOfAll(row, shape);
      for (const int rank : {0, shape.ranks / 2, shape.ranks - 1}) {
        shape.rank = rank;
        ASSERT_EQ(Compile(row, shape, routes).most_chunks_per_message, longest)
            << Name(row.collective) << " by " << row.name << ", rank " << rank
            << " of " << Describe(grid);
      }
    }
  }
}

TEST(Compile, BuildsOneProgramUnlessRanksDiffer) {
  const Grid grid = PackedGrid(std::vector<int>(16, 4));
  const Shape shape{.ranks = 64, .rank = 5, .grid = &grid};
  for (const Algorithm& row : Catalog()) {
    if (!row.legal(shape)) continue;
    CompileCounted(row, shape);
    const bool differ =
        SpecOf(row.collective).rooted || row.name.starts_with("hierarchical");
    EXPECT_EQ(builds, differ ? 64 : 1)
        << Name(row.collective) << " by " << row.name;
  }
}

}  // namespace
}  // namespace trnccl
