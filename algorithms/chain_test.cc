// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Chain, BroadcastAndReducePassTheBlockOnce) {
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kReduce}) {
    ForEachSize([collective](int n) {
      for (const int root : {0, n / 2, n - 1}) {
        const Proven proven =
            ProveRow(collective, "chain", {.ranks = n, .root = root});
        EXPECT_EQ(proven.rounds, n - 1);
        EXPECT_EQ(proven.most_chunks_sent, n > 1 ? 1 : 0);
        EXPECT_EQ(proven.most_chunks_received, n > 1 ? 1 : 0);
      }
    });
  }
}

TEST(Chain, RankOrderReduceTakesOneMoreRoundToARootThatIsNotTheLast) {
  ForEachSize([](int n) {
    for (const int root : {0, n / 2, n - 1}) {
      const Proven proven = ProveRow(Collective::kReduce, "rank_chain",
                                     {.ranks = n, .root = root});
      EXPECT_EQ(proven.rounds, root == n - 1 ? n - 1 : n);
      EXPECT_EQ(proven.most_chunks_sent, n > 1 ? 1 : 0);
    }
  });
}

TEST(Chain, RankOrderAllReduceGoesThereAndBack) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "chain", {.ranks = n});
    EXPECT_EQ(proven.rounds, 2 * (n - 1));
    EXPECT_EQ(proven.most_chunks_sent, n > 2 ? 2 : n - 1);
    EXPECT_EQ(proven.most_chunks_received, n > 2 ? 2 : n - 1);
  });
}

}  // namespace
}  // namespace trnccl
