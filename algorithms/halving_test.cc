// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int CeilLog2(int n) { return n < 2 ? 0 : 1 + CeilLog2((n + 1) / 2); }

TEST(Halving, SendsAllBlocksButOneInLogarithmicRoundsForAnyN) {
  ForEachSize([](int n) {
    for (const Proven& proven :
         {ProveRow(Collective::kReduceScatter, "halving", {.ranks = n}),
          ProveRow(Collective::kAllGather, "doubling", {.ranks = n})}) {
      EXPECT_EQ(proven.rounds, CeilLog2(n));
      EXPECT_EQ(proven.most_messages_sent, CeilLog2(n));
      EXPECT_EQ(proven.most_chunks_sent, n - 1);
      EXPECT_EQ(proven.most_chunks_received, n - 1);
    }
  });
}

TEST(Halving, AllReduceSendsEachChunkTwiceInLogarithmicRounds) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "halving_doubling", {.ranks = n});
    EXPECT_EQ(proven.rounds, 2 * CeilLog2(n));
    EXPECT_EQ(proven.most_messages_sent, 2 * CeilLog2(n));
    EXPECT_EQ(proven.most_chunks_sent, 2 * (n - 1));  // of n
  });
}

}  // namespace
}  // namespace trnccl
