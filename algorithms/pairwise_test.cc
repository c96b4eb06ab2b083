// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/pairwise.h"

#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Pairwise, AllToAllSwapsOneBlockWithEachPeer) {
  ForEachSize([](int n) {
    const Proven proven =
        ProveRow(Collective::kAllToAll, "pairwise", {.ranks = n});
    EXPECT_EQ(proven.rounds, n == 1 ? 0 : n - 1 + n % 2);
    EXPECT_EQ(proven.most_chunks_sent, n - 1);
    EXPECT_EQ(proven.most_chunks_received, n - 1);
    EXPECT_EQ(proven.most_messages_sent, n - 1);
  });
}

// The position of `peer` among the ranks that the rank sends to.
int TurnOf(int peer, const Shape& shape) {
  const Program program = pairwise::AllToAll(shape);
  int turn = 0;
  for (const Step& step : program.lanes[0].steps) {
    if (step.send_to.empty()) continue;
    if (step.send_to[0] == peer) return turn;
    ++turn;
  }
  return -1;
}

TEST(Pairwise, EvenlyManyRanksMeetInTheSameTurnOnBothSides) {
  for (int n = 2; n <= 16; n += 2) {
    for (int rank = 0; rank < n; ++rank) {
      for (int peer = 0; peer < rank; ++peer) {
        EXPECT_EQ(TurnOf(peer, {.ranks = n, .rank = rank}),
                  TurnOf(rank, {.ranks = n, .rank = peer}))
            << n << " ranks, " << rank << " and " << peer;
      }
    }
  }
}

}  // namespace
}  // namespace trnccl
