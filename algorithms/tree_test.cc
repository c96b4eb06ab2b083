// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/tree.h"

#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int FloorLog2(int n) { return n < 2 ? 0 : 1 + FloorLog2(n / 2); }

TEST(Tree, DoubleTreeSendsAtMostTwiceTheBlock) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "double_tree", {.ranks = n});
    EXPECT_EQ(proven.rounds, 2 * FloorLog2(n));
    EXPECT_LE(proven.most_chunks_sent, 4);  // of 2
    EXPECT_LE(proven.most_chunks_received, 4);
  });
}

TEST(Tree, NoRankHasChildrenInBothTrees) {
  for (int n = 1; n <= 64; ++n) {
    for (int rank = 0; rank < n; ++rank) {
      const Program program =
          tree::DoubleTreeAllReduce({.ranks = n, .rank = rank});
      const auto is_leaf = [&](int lane) {
        return program.lanes[lane].steps[0].operands.size() == 1;
      };
      EXPECT_TRUE(is_leaf(0) || is_leaf(1)) << n << " ranks, rank " << rank;
    }
  }
}

TEST(Tree, BinaryBroadcastSendsToTwoChildren) {
  ForEachSize([](int n) {
    for (const int root : {0, n / 2, n - 1}) {
      const Proven proven = ProveRow(Collective::kBroadcast, "binary",
                                     {.ranks = n, .root = root});
      EXPECT_EQ(proven.rounds, FloorLog2(n));
      EXPECT_EQ(proven.most_chunks_sent, n > 2 ? 2 : n - 1);
      EXPECT_EQ(proven.most_chunks_received, n > 1 ? 1 : 0);
    }
  });
}

TEST(Tree, BinaryReduceHearsTwoChildren) {
  ForEachSize([](int n) {
    for (const int root : {0, n / 2, n - 1}) {
      const Proven proven =
          ProveRow(Collective::kReduce, "binary", {.ranks = n, .root = root});
      EXPECT_EQ(proven.rounds, FloorLog2(n));
      EXPECT_EQ(proven.most_chunks_sent, n > 1 ? 1 : 0);
      EXPECT_EQ(proven.most_chunks_received, n > 2 ? 2 : n - 1);
    }
  });
}

}  // namespace
}  // namespace trnccl
