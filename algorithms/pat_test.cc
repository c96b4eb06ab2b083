// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/pat.h"

#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int CeilLog2(int n) { return n < 2 ? 0 : 1 + CeilLog2((n + 1) / 2); }

TEST(Pat, SendsAllBlocksButOneInLogarithmicRoundsForAnyN) {
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather}) {
    ForEachSize([collective](int n) {
      const Proven proven = ProveRow(collective, "pat", {.ranks = n});
      EXPECT_EQ(proven.rounds, CeilLog2(n));
      EXPECT_EQ(proven.most_messages_sent, CeilLog2(n));
      EXPECT_EQ(proven.most_chunks_sent, n - 1);
      EXPECT_EQ(proven.most_chunks_received, n - 1);
    });
  }
}

TEST(Pat, ReduceScatterNeedsNoMoreSlotsThanItsLargestMessage) {
  for (int n = 1; n <= 64; ++n) {
    const Program program = pat::ReduceScatter({.ranks = n});
    EXPECT_LE(program.scratch_slots, (n + 1) / 2);
    EXPECT_EQ(MostChunksPerMessage(program), n / 2);
  }
}

TEST(Pat, FarPartnersExchangeLess) {
  const Program gather = pat::AllGather({.ranks = 16});
  int64_t distance = 8;
  int64_t blocks = 1;
  for (const Step& step : gather.lanes[0].steps) {
    if (step.send_to.empty()) continue;
    EXPECT_EQ(step.send_to[0], distance);
    EXPECT_EQ(ChunkCount(step), blocks);
    distance /= 2;
    blocks *= 2;
  }
  EXPECT_EQ(distance, 0);
}

}  // namespace
}  // namespace trnccl
