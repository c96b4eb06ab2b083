// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/bootstrap/roster.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trnccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JoinHello Hello(int rank, int ranks, const char* agreement = "version=1\n") {
  return {.member = {.rank = rank, .ranks = ranks},
          .remaining_ms = 1000,
          .host = "node" + std::to_string(rank),
          .agreement = agreement,
          .addresses = {}};
}

std::string JudgementOn(const JoinHello& own, const JoinHello& other) {
  Roster roster(own);
  roster.Add(other);
  return std::string(roster.Judgement().message());
}

TEST(Roster, CompleteOnceAllRanksCame) {
  Roster roster(Hello(2, 3));
  EXPECT_FALSE(roster.complete());
  EXPECT_EQ(roster.Add(Hello(0, 3)), 1);
  EXPECT_EQ(roster.Add(Hello(1, 3)), 2);
  EXPECT_TRUE(roster.complete());
  EXPECT_TRUE(roster.Judgement().ok()) << roster.Judgement();
  EXPECT_EQ(roster.at(0).member.rank, 2);
}

TEST(Roster, MissingRanksAreListed) {
  Roster roster(Hello(1, 4));
  EXPECT_EQ(roster.MissingText(), "1 of 4 ranks came; missing: ranks 0, 2, 3");
  roster.Add(Hello(0, 4));
  roster.Add(Hello(3, 4));
  EXPECT_EQ(roster.MissingText(),
            "3 of 4 ranks came; missing: rank 2; origin: rank 2");
  EXPECT_THAT(Roster(Hello(0, 1000)).MissingText(),
              HasSubstr("31, 32 and 967 more"));
}

TEST(Roster, WhatDoesNotFitIsNamedWithBothSides) {
  EXPECT_THAT(JudgementOn(Hello(0, 4), Hello(1, 5)),
              AllOf(HasSubstr("rank 0 (on node0) has 4"),
                    HasSubstr("rank 1 (on node1) has 5")));
  EXPECT_THAT(JudgementOn(Hello(0, 2), Hello(0, 2)),
              HasSubstr("rank 0 came twice"));
  EXPECT_THAT(JudgementOn(Hello(0, 2), Hello(2, 2)),
              HasSubstr("rank 2 (on node2) is out of range"));
  EXPECT_THAT(JudgementOn(Hello(0, 2), Hello(-1, 2)), HasSubstr("rank -1"));
  EXPECT_THAT(JudgementOn(Hello(0, 2), Hello(1, 1 << 30)),
              HasSubstr("1 to 65536"));
  EXPECT_THAT(JudgementOn(Hello(0, 2, "version=1\nLANES=2\n"),
                          Hello(1, 2, "version=1\nLANES=4\n")),
              AllOf(HasSubstr("rank 0 (on node0) has LANES=2"),
                    HasSubstr("rank 1 (on node1) has LANES=4")));
  EXPECT_THAT(
      JudgementOn(Hello(0, 2, "version=1"), Hello(1, 2, "version=1\nLANES=4")),
      HasSubstr("has nothing"));
}

TEST(Roster, RootWithNonsenseOfItsOwnIsJudged) {
  EXPECT_FALSE(Roster(Hello(5, 2)).Judgement().ok());
  EXPECT_FALSE(Roster(Hello(0, 0)).Judgement().ok());
  EXPECT_FALSE(Roster(Hello(-1, -1)).Judgement().ok());
  EXPECT_FALSE(Roster(Hello(0, kMaxRanks + 1)).Judgement().ok());
}

TEST(Roster, WaitsForAsManyAsAnyoneExpectsSoThatAllHear) {
  Roster roster(Hello(0, 2));
  roster.Add(Hello(1, 3));
  EXPECT_FALSE(roster.complete());
  roster.Add(Hello(2, 3));
  EXPECT_TRUE(roster.complete());
}

}  // namespace
}  // namespace trnccl
