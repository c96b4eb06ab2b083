// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Direct, AllReduceOneStepSendsTheBlockToEachPeerInOneRound) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "one_step", {.ranks = n});
    EXPECT_EQ(proven.rounds, n > 1 ? 1 : 0);
    EXPECT_EQ(proven.most_chunks_sent, n - 1);
    EXPECT_EQ(proven.most_chunks_received, n - 1);
  });
}

TEST(Direct, AllReduceTwoStepSendsEachChunkTwiceInTwoRounds) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "two_step", {.ranks = n});
    EXPECT_EQ(proven.rounds, n > 1 ? 2 : 0);
    EXPECT_EQ(proven.most_chunks_sent, 2 * (n - 1));  // of n
    EXPECT_EQ(proven.most_chunks_received, 2 * (n - 1));
  });
}

TEST(Direct, ExchangesSendEachBlockOnceInOneRound) {
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather,
        Collective::kAllToAll}) {
    ForEachSize([collective](int n) {
      const Proven proven = ProveRow(collective, "direct", {.ranks = n});
      EXPECT_EQ(proven.rounds, n > 1 ? 1 : 0);
      EXPECT_EQ(proven.most_chunks_sent, n - 1);
      EXPECT_EQ(proven.most_chunks_received, n - 1);
    });
  }
}

TEST(Direct, RootedCallsMoveEachBlockOnceInOneRound) {
  for (const Collective collective :
       {Collective::kReduce, Collective::kBroadcast, Collective::kGather,
        Collective::kScatter}) {
    const bool to_root =
        collective == Collective::kReduce || collective == Collective::kGather;
    ForEachSize([&](int n) {
      for (const int root : {0, n / 2, n - 1}) {
        const Proven proven =
            ProveRow(collective, "direct", {.ranks = n, .root = root});
        EXPECT_EQ(proven.rounds, n > 1 ? 1 : 0);
        const int one = n > 1 ? 1 : 0;
        EXPECT_EQ(proven.most_chunks_sent, to_root ? one : n - 1);
        EXPECT_EQ(proven.most_chunks_received, to_root ? n - 1 : one);
      }
    });
  }
}

}  // namespace
}  // namespace trnccl
