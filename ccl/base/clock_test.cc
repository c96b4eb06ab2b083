// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/clock.h"

#include <climits>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Deadline, ExpiresWhenItsTimeHasCome) {
  EXPECT_TRUE(Deadline::After(0).expired());
  EXPECT_EQ(Deadline::After(0).remaining_ms(), 0);
  const Deadline soon = Deadline::After(2);
  while (!soon.expired()) {
  }
  EXPECT_EQ(soon.remaining_ms(), 0);
}

TEST(Deadline, BelowZeroHasExpired) {
  EXPECT_TRUE(Deadline::After(-1).expired());
  EXPECT_TRUE(Deadline::After(INT64_MIN).expired());
}

TEST(Deadline, NeverAndBeyondTheClockDontExpire) {
  for (const Deadline deadline :
       {Deadline::Never(), Deadline::After(INT64_MAX)}) {
    EXPECT_FALSE(deadline.expired());
    EXPECT_EQ(deadline.remaining_ms(), INT_MAX);
  }
}

TEST(Deadline, RemainingIsRoundedUpAndWithinTheDelay) {
  const Deadline deadline = Deadline::After(100'000);
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(deadline.remaining_ms(), 0);
  EXPECT_LE(deadline.remaining_ms(), 100'000);
}

TEST(Deadline, EarlierPicksTheEarlier) {
  const Deadline past = Deadline::After(0);
  EXPECT_TRUE(Deadline::Earlier(past, Deadline::Never()).expired());
  EXPECT_TRUE(Deadline::Earlier(Deadline::Never(), past).expired());
}

TEST(Ticks, BecomeNanosecondsBetweenTheAnchors) {
  const TickAnchor first = TickAnchor::Now();
  const int64_t before_ns = NowNs();
  const uint64_t ticks = ReadTicks();
  const int64_t after_ns = NowNs();
  const TickAnchor last = TickAnchor::Now();
  EXPECT_LE(first.ns, before_ns);
  const int64_t ns = TicksToNs(ticks, first, last);
  EXPECT_GE(ns, first.ns);
  EXPECT_LE(ns, last.ns);
  EXPECT_LE(after_ns, last.ns);
}

TEST(Ticks, FollowAStraightLineClampedToTheAnchors) {
  const TickAnchor first{1000, 50'000};
  const TickAnchor last{3000, 51'000};
  EXPECT_EQ(TicksToNs(2000, first, last), 50'500);
  EXPECT_EQ(TicksToNs(1, first, last), 50'000);
  EXPECT_EQ(TicksToNs(9000, first, last), 51'000);
  EXPECT_EQ(TicksToNs(1000, first, first), 50'000);
}

}  // namespace
}  // namespace trnccl
