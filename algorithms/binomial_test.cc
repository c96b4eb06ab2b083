// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <functional>

#include "algorithms/prove_row.h"
#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

int FloorLog2(int n) { return n < 2 ? 0 : 1 + FloorLog2(n / 2); }
int CeilLog2(int n) { return n < 2 ? 0 : 1 + FloorLog2(n - 1); }

void ForEachRoot(const std::function<void(const Shape&)>& test) {
  ForEachSize([&](int n) {
    for (const int root : {0, n / 2, n - 1}) {
      test({.ranks = n, .root = root});
    }
  });
}

TEST(Binomial, BroadcastReachesAllInLogarithmicRounds) {
  ForEachRoot([](const Shape& shape) {
    const Proven proven = ProveRow(Collective::kBroadcast, "binomial", shape);
    EXPECT_EQ(proven.rounds, FloorLog2(shape.ranks));
    EXPECT_EQ(proven.most_chunks_sent, CeilLog2(shape.ranks));
    EXPECT_EQ(proven.most_chunks_received, shape.ranks > 1 ? 1 : 0);
  });
}

TEST(Binomial, ReduceSendsOneBlockARank) {
  ForEachRoot([](const Shape& shape) {
    const Proven proven = ProveRow(Collective::kReduce, "binomial", shape);
    EXPECT_EQ(proven.rounds, FloorLog2(shape.ranks));
    EXPECT_EQ(proven.most_chunks_sent, shape.ranks > 1 ? 1 : 0);
    EXPECT_EQ(proven.most_chunks_received, CeilLog2(shape.ranks));
  });
}

TEST(Binomial, GatherSendsASubtreeInOneMessage) {
  ForEachRoot([](const Shape& shape) {
    const Proven proven = ProveRow(Collective::kGather, "binomial", shape);
    EXPECT_EQ(proven.rounds, FloorLog2(shape.ranks));
    EXPECT_LE(proven.most_chunks_sent, shape.ranks / 2);
    EXPECT_EQ(proven.most_chunks_received, shape.ranks - 1);
    EXPECT_EQ(proven.most_messages_sent, shape.ranks > 1 ? 1 : 0);
  });
}

TEST(Binomial, ScatterSendsASubtreeInOneMessage) {
  ForEachRoot([](const Shape& shape) {
    const Proven proven = ProveRow(Collective::kScatter, "binomial", shape);
    EXPECT_EQ(proven.rounds, FloorLog2(shape.ranks));
    EXPECT_EQ(proven.most_chunks_sent, shape.ranks - 1);
    EXPECT_LE(proven.most_chunks_received, shape.ranks / 2);
    EXPECT_EQ(proven.most_messages_sent, CeilLog2(shape.ranks));
  });
}

}  // namespace
}  // namespace trnccl
