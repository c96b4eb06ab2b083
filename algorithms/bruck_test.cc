// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <bit>

#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int CeilLog2(int n) { return n < 2 ? 0 : 1 + CeilLog2((n + 1) / 2); }

TEST(Bruck, AllGatherSendsAllBlocksButOneInLogarithmicRounds) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllGather, "bruck", {.ranks = n});
    EXPECT_EQ(proven.rounds, CeilLog2(n));
    EXPECT_EQ(proven.most_messages_sent, CeilLog2(n));
    EXPECT_EQ(proven.most_chunks_sent, n - 1);
    EXPECT_EQ(proven.most_chunks_received, n - 1);
  });
}

TEST(Bruck, AllToAllSendsABlockOncePerBitOfItsDistance) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllToAll, "bruck", {.ranks = n});
    int bits = 0;
    for (int to_go = 1; to_go < n; ++to_go) {
      bits += std::popcount(static_cast<unsigned>(to_go));
    }
    EXPECT_EQ(proven.rounds, CeilLog2(n));
    EXPECT_EQ(proven.most_messages_sent, CeilLog2(n));
    EXPECT_EQ(proven.most_chunks_sent, bits);
  });
}

}  // namespace
}  // namespace trnccl
