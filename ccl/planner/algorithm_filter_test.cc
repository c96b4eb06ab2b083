// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/planner/algorithm_filter.h"

#include <string>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

bool Allows(const char* text, Collective collective, const char* name) {
  const auto filter = AlgorithmFilter::Parse(text);
  EXPECT_TRUE(filter.ok()) << filter.status();
  return filter->Allows(*FindAlgorithm(collective, name));
}

TEST(AlgorithmFilter, AllowsAllWhereNothingIsSaid) {
  EXPECT_TRUE(Allows("", Collective::kAllReduce, "ring"));
}

TEST(AlgorithmFilter, KeepsOnlyTheNamedOfThatCollective) {
  const char* text = "all_reduce:ring,two_step";
  EXPECT_TRUE(Allows(text, Collective::kAllReduce, "ring"));
  EXPECT_TRUE(Allows(text, Collective::kAllReduce, "two_step"));
  EXPECT_FALSE(Allows(text, Collective::kAllReduce, "chain"));
  EXPECT_TRUE(Allows(text, Collective::kAllGather, "bruck"));
}

TEST(AlgorithmFilter, ForbidsTheNamedAfterACaret) {
  const char* text = "all_gather:^bruck;all_reduce:^ring";
  EXPECT_FALSE(Allows(text, Collective::kAllGather, "bruck"));
  EXPECT_TRUE(Allows(text, Collective::kAllGather, "ring"));
  EXPECT_FALSE(Allows(text, Collective::kAllReduce, "ring"));
}

TEST(AlgorithmFilter, WithoutACollectiveConcernsThoseThatHaveTheName) {
  EXPECT_FALSE(Allows("ring", Collective::kAllReduce, "two_step"));
  EXPECT_FALSE(Allows("ring", Collective::kAllGather, "direct"));
  EXPECT_TRUE(Allows("ring", Collective::kBroadcast, "binomial"));
}

TEST(AlgorithmFilter, RefusesUnknownWordsAndNamesTheKnown) {
  const auto algorithm = AlgorithmFilter::Parse("all_reduce:rong");
  ASSERT_FALSE(algorithm.ok());
  EXPECT_NE(algorithm.status().message().find("two_step"),
            absl::string_view::npos);
  const auto collective = AlgorithmFilter::Parse("allreduce:ring");
  ASSERT_FALSE(collective.ok());
  EXPECT_NE(collective.status().message().find("all_reduce"),
            absl::string_view::npos);
}

TEST(AlgorithmFilter, RefusesToLeaveACollectiveWithNone) {
  const auto filter = AlgorithmFilter::Parse("barrier:^dissemination");
  ASSERT_FALSE(filter.ok());
  EXPECT_NE(filter.status().message().find("barrier"), absl::string_view::npos);
}

}  // namespace
}  // namespace trnccl
