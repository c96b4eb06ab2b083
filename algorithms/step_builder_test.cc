// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/step_builder.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(StepBuilder, CountsRanksOnACircle) {
  const Shape shape{.ranks = 5, .rank = 1, .root = 3};
  EXPECT_EQ(RankAt(shape, 5), 0);
  EXPECT_EQ(RankAt(shape, -1), 4);
  EXPECT_EQ(RankAt(shape, -11), 4);
  EXPECT_EQ(FromRoot(shape), 3);
}

TEST(StepBuilder, RoundsLogarithmsDownAndUp) {
  const std::vector<int> down = {0, 1, 1, 2, 2, 2, 2, 3, 3};
  const std::vector<int> up = {0, 1, 2, 2, 3, 3, 3, 3, 4};
  for (int n = 1; n <= 9; ++n) {
    EXPECT_EQ(FloorLog2(n), down[n - 1]) << n;
    EXPECT_EQ(CeilLog2(n), up[n - 1]) << n;
  }
}

TEST(StepBuilder, CallsAFoldPartialBetweenOneAndAll) {
  EXPECT_FALSE((Held{.contributions = 1, .ranks = 3}.Partial()));
  EXPECT_TRUE((Held{.contributions = 2, .ranks = 3}.Partial()));
  EXPECT_FALSE((Held{.contributions = 3, .ranks = 3}.Partial()));
  EXPECT_TRUE((Held{.contributions = 1, .ranks = 1}.Complete()));
}

TEST(StepBuilder, SpansNameTheChunksInTheirOrder) {
  for (const std::vector<int64_t>& chunks :
       std::vector<std::vector<int64_t>>{{},
                                         {7},
                                         {7, 3},
                                         {0, 1, 2, 3},
                                         {9, 7, 5, 6, 2},
                                         {4, 0, 6, 2, 5, 1, 7, 3}}) {
    const Step step{.spans = Spans(chunks)};
    std::vector<int64_t> named;
    ForEachChunk(step, 10, [&](int64_t chunk) { named.push_back(chunk); });
    EXPECT_EQ(named, chunks);
  }
}

TEST(StepBuilder, SpansJoinWhatIsEvenlySpaced) {
  std::vector<int64_t> chunks(100);
  std::iota(chunks.begin(), chunks.end(), 5);
  ASSERT_EQ(Spans(chunks).size(), 1u);
  EXPECT_EQ(Spans(chunks)[0], (Span{.first = 5, .chunks = 100}));
}

}  // namespace
}  // namespace trnccl
