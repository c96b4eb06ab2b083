// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int FloorLog2(int n) { return n < 2 ? 0 : 1 + FloorLog2(n / 2); }

TEST(RecursiveDoubling, TakesAtMostTwoRoundsMoreThanThePowerOfTwoBelow) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllReduce, "recursive_doubling", {.ranks = n});
    const int rounds = FloorLog2(n);
    const bool paired = n != 1 << rounds;
    EXPECT_GE(proven.rounds, rounds + (paired ? 1 : 0));
    EXPECT_LE(proven.rounds, rounds + (paired ? 2 : 0));
    EXPECT_EQ(proven.most_chunks_sent, rounds + (paired ? 1 : 0));
    EXPECT_EQ(proven.most_chunks_received, rounds + (paired ? 1 : 0));
  });
}

}  // namespace
}  // namespace trnccl
