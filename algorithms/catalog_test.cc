// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "algorithms/catalog.h"

#include <set>
#include <string>
#include <utility>

#include "ccl/base/types.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Catalog, NamesEachRowOfACollectiveOnce) {
  std::set<std::pair<Collective, std::string>> seen;
  for (const Algorithm& algorithm : Catalog()) {
    EXPECT_TRUE(
        seen.emplace(algorithm.collective, std::string(algorithm.name)).second)
        << algorithm.name << " for " << Name(algorithm.collective);
    EXPECT_EQ(FindAlgorithm(algorithm.collective, algorithm.name), &algorithm);
  }
}

TEST(Catalog, ServesUnevenBlocksByProvedRowsOnly) {
  EXPECT_EQ(FindAlgorithm(Collective::kAllGatherV, "ring"),
            FindAlgorithm(Collective::kAllGather, "ring"));
  EXPECT_EQ(FindAlgorithm(Collective::kReduceScatterV, "pat"),
            FindAlgorithm(Collective::kReduceScatter, "pat"));
  EXPECT_EQ(FindAlgorithm(Collective::kAllToAllV, "pairwise"),
            FindAlgorithm(Collective::kAllToAll, "pairwise"));
  EXPECT_EQ(FindAlgorithm(Collective::kAllToAllV, "bruck"), nullptr);
}

TEST(Catalog, KnowsNoOtherNames) {
  EXPECT_EQ(FindAlgorithm(Collective::kAllReduce, "bruck"), nullptr);
  EXPECT_EQ(FindAlgorithm(Collective::kAllReduce, ""), nullptr);
}

TEST(Catalog, HasAStrictRowForEveryReduction) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce,
        Collective::kReduceScatter}) {
    bool strict = false;
    for (const Algorithm& algorithm : Catalog()) {
      strict |=
          algorithm.collective == collective && algorithm.proofs.left_fold;
    }
    EXPECT_TRUE(strict) << Name(collective);
  }
}

}  // namespace
}  // namespace trnccl
