// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Ring, AllReduceSendsEachChunkTwiceButOneTwicePerRank) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "ring", {.ranks = n});
    EXPECT_EQ(proven.rounds, 2 * (n - 1));
    EXPECT_EQ(proven.most_chunks_sent, 2 * (n - 1));  // of n
    EXPECT_EQ(proven.most_chunks_received, 2 * (n - 1));
    EXPECT_EQ(proven.most_messages_sent, 2 * (n - 1));
  });
}

TEST(Ring, ReduceScatterAndAllGatherSendAllBlocksButOne) {
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather}) {
    ForEachSize([collective](int n) {
      const Proven proven = ProveRow(collective, "ring", {.ranks = n});
      EXPECT_EQ(proven.rounds, n - 1);
      EXPECT_EQ(proven.most_chunks_sent, n - 1);
      EXPECT_EQ(proven.most_chunks_received, n - 1);
    });
  }
}

}  // namespace
}  // namespace trnccl
