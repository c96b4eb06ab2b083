// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Dissemination, EveryRankHearsOfAllInLogarithmicRounds) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kBarrier, "dissemination", {.ranks = n});
    int rounds = 0;
    while ((1 << rounds) < n) ++rounds;
    EXPECT_EQ(proven.rounds, rounds);
    EXPECT_EQ(proven.most_messages_sent, rounds);
    EXPECT_EQ(proven.most_chunks_sent, 0);
  });
}

}  // namespace
}  // namespace trnccl
