// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/timing.h"

#include <cstring>

#include "ccl/base/clock.h"
#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

// One rank alone.
class LoneTeam : public Team {
 public:
  LoneTeam() : Team(0, 1) {}
  absl::Status Barrier() override {
    ++barriers;
    return absl::OkStatus();
  }
  absl::Status GatherBytes(const void* mine, size_t bytes, void* all) override {
    std::memcpy(all, mine, bytes);
    return absl::OkStatus();
  }
  int barriers = 0;
};

TEST(Stopwatch, RepeatsForLongEnough) {
  LoneTeam team;
  int64_t calls = 0;
  Stopwatch stopwatch(team, Timing(),
                      {[&] {
                         ++calls;
                         return absl::OkStatus();
                       },
                       [] {}, nullptr});
  ASSERT_TRUE(stopwatch.WarmUp().ok());
  for (int i = 0; i < 3; ++i) {
    calls = 0;
    const int64_t start_ns = NowNs();
    ASSERT_TRUE(stopwatch.Repeat().ok());
    EXPECT_GE(static_cast<double>(NowNs() - start_ns) * 1e-9,
              kRepetitionSeconds);
    EXPECT_GE(calls, stopwatch.iterations());
  }
  EXPECT_EQ(stopwatch.repetitions().size(), 3U);
}

TEST(Stopwatch, MakesAsManyIterationsAsAskedFor) {
  LoneTeam team;
  Timing timing;
  timing.iterations = 5;
  timing.warmup_iterations = 2;
  int calls = 0;
  int refills = 0;
  Stopwatch stopwatch(team, timing,
                      {[&] {
                         ++calls;
                         return absl::OkStatus();
                       },
                       [&] { ++refills; }, nullptr});
  ASSERT_TRUE(stopwatch.WarmUp().ok());
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(stopwatch.Repeat().ok());
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(refills, 2);
}

TEST(Stopwatch, LeavesWhatComesBeforeAnIterationOutOfItsTime) {
  LoneTeam team;
  Timing timing;
  timing.iterations = 4;
  timing.warmup_iterations = 0;
  timing.each_alone = true;
  timing.meet = true;
  int64_t rewritten_ns = 0;
  std::vector<int64_t> order;
  Stopwatch stopwatch(team, timing,
                      {[&] {
                         order.push_back(-1);
                         return absl::OkStatus();
                       },
                       [] {},
                       [&](int64_t i) {
                         order.push_back(i);
                         const int64_t start_ns = NowNs();
                         while (NowNs() - start_ns < 20'000'000) {
                         }
                         rewritten_ns += NowNs() - start_ns;
                       }});
  const int64_t start_ns = NowNs();
  ASSERT_TRUE(stopwatch.Repeat().ok());
  const int64_t all_ns = NowNs() - start_ns;
  EXPECT_EQ(order, (std::vector<int64_t>{0, -1, 1, -1, 2, -1, 3, -1}));
  EXPECT_EQ(team.barriers, 5);
  EXPECT_EQ(stopwatch.repetitions()[0].each.size(), 4U);
  EXPECT_LE(4e9 * stopwatch.repetitions()[0].seconds[0],
            static_cast<double>(all_ns - rewritten_ns));
}

TEST(Stopwatch, PassesAFailureOn) {
  LoneTeam team;
  Stopwatch stopwatch(
      team, Timing(),
      {[] { return absl::UnavailableError("gone"); }, [] {}, nullptr});
  EXPECT_EQ(stopwatch.WarmUp().message(), "gone");
  EXPECT_EQ(stopwatch.Repeat().message(), "gone");
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({9, 1, 4, 5}), 4.5);
}

}  // namespace
}  // namespace trnccl::perf
