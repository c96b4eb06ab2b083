// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/spec.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

std::vector<int64_t> Blocks(const BlockRange& range) {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < range.count; ++i) {
    blocks.push_back(range.first + i * range.stride);
    EXPECT_EQ(range.PositionOf(blocks.back()), i);
  }
  return blocks;
}

TEST(Spec, EveryCollectiveHasItsRow) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_EQ(SpecOf(collective).collective, collective);
  }
}

TEST(Spec, EveryInputBlockOfANonReducingCollectiveHasOneOwner) {
  for (int i = 0; i < kCollectives; ++i) {
    const Spec& spec = SpecOf(static_cast<Collective>(i));
    if (spec.reduces || spec.collective == Collective::kBarrier) continue;
    for (int ranks : {1, 2, 5}) {
      std::vector<int> owners(static_cast<size_t>(spec.blocks(ranks)));
      for (int rank = 0; rank < ranks; ++rank) {
        for (int64_t block : Blocks(spec.input({ranks, rank, ranks - 1}))) {
          ++owners[static_cast<size_t>(block)];
        }
      }
      for (int count : owners) EXPECT_EQ(count, 1) << Name(spec.collective);
    }
  }
}

TEST(Spec, AllToAllBlocksArePairs) {
  const Spec& spec = SpecOf(Collective::kAllToAll);
  EXPECT_EQ(spec.blocks(3), 9);
  EXPECT_EQ(Blocks(spec.input({3, 1})), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(Blocks(spec.output({3, 1})), (std::vector<int64_t>{1, 4, 7}));
}

TEST(Spec, OnlyTheRootHoldsWhatIsRooted) {
  EXPECT_EQ(SpecOf(Collective::kBroadcast).input({4, 2, 2}).count, 1);
  EXPECT_EQ(SpecOf(Collective::kBroadcast).input({4, 1, 2}).count, 0);
  EXPECT_EQ(SpecOf(Collective::kReduce).output({4, 1, 2}).count, 0);
  EXPECT_EQ(SpecOf(Collective::kGather).output({4, 2, 2}).count, 4);
  EXPECT_EQ(SpecOf(Collective::kScatter).input({4, 0, 2}).count, 0);
}

TEST(Spec, ABarrierHasNoData) {
  const Spec& spec = SpecOf(Collective::kBarrier);
  EXPECT_EQ(spec.input({4, 1}).count, 0);
  EXPECT_EQ(spec.output({4, 1}).count, 0);
}

TEST(BlockRange, PositionOfForeignBlocksIsMinusOne) {
  const BlockRange range = {.first = 4, .count = 2, .stride = 3};
  EXPECT_EQ(range.PositionOf(7), 1);
  for (int64_t block : {0, 1, 3, 5, 10}) {
    EXPECT_EQ(range.PositionOf(block), -1) << block;
  }
  EXPECT_EQ(BlockRange{}.PositionOf(0), -1);
}

}  // namespace
}  // namespace trnccl
