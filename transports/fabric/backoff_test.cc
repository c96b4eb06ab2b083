// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "transports/fabric/backoff.h"

#include "gtest/gtest.h"

namespace trnccl::fabric {
namespace {

constexpr int64_t kMs = 1'000'000;

// How often a peer that refuses is tried until then, by someone who looks every
// microsecond.
int Tries(Backoff& backoff, int64_t from_ns, int64_t to_ns) {
  int tries = 0;
  for (int64_t now_ns = from_ns; now_ns < to_ns; now_ns += 1'000) {
    if (!backoff.Allows(now_ns)) continue;
    ++tries;
    backoff.Refused(now_ns);
  }
  return tries;
}

TEST(Backoff, APeerThatIsGoneIsTriedEverLessOften) {
  Backoff backoff;
  EXPECT_LE(Tries(backoff, 0, 1'000 * kMs), 150);
  EXPECT_LE(Tries(backoff, 1'000 * kMs, 2'000 * kMs), 21);
}

TEST(Backoff, DelaysAPeerByAnEighthOfWhatItTakes) {
  for (const int64_t ready_ns : {10 * kMs / 1000, kMs, 100 * kMs}) {
    Backoff backoff;
    Tries(backoff, 0, ready_ns);
    EXPECT_TRUE(backoff.Allows(ready_ns + ready_ns / 8)) << ready_ns;
  }
}

TEST(Backoff, StartsAnewOnceSomethingWasTaken) {
  Backoff backoff;
  Tries(backoff, 0, 1'000 * kMs);
  backoff.Taken();
  EXPECT_TRUE(backoff.Allows(0));
  backoff.Refused(2'000 * kMs);
  EXPECT_TRUE(backoff.Allows(2'000 * kMs + 1));
}

}  // namespace
}  // namespace trnccl::fabric
