// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Seeded jobs over a simulated network, with and without faults:
//
//   simulation_test --seed=N            one, with what came of it
//   simulation_test --seed=N --runs=M   as many, from that seed on
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "ccl/base/log.h"

namespace trnccl {
namespace {

constexpr int kMostFailures = 10;

uint64_t first_seed = 1;
int64_t runs = 300;

struct Tally {
  int64_t runs = 0;
  int64_t struck = 0;
  int64_t calls = 0;
  int64_t failed = 0;
  int64_t broken = 0;  // promises
  int64_t short_calls = 0;
  int64_t notice_ns = 0;  // the longest, and whose it is
  uint64_t notice_seed = 0;

  void Add(uint64_t seed, const SimOutcome& outcome) {
    ++runs;
    struck += outcome.struck ? 1 : 0;
    calls += outcome.calls;
    failed += outcome.failed;
    broken += outcome.wrong.empty() ? 0 : 1;
    short_calls += outcome.short_calls;
    if (outcome.notice_ns <= notice_ns) return;
    notice_ns = outcome.notice_ns;
    notice_seed = seed;
  }
};

void Print(std::string_view name, const Tally& tally) {
  std::printf("%-9.*s %8ld %8ld %9ld %9ld %9ld %7ld %10.3f %8lu\n",
              static_cast<int>(name.size()), name.data(), tally.runs,
              tally.struck, tally.calls, tally.short_calls, tally.failed,
              tally.broken, static_cast<double>(tally.notice_ns) / 1e6,
              tally.notice_seed);
}

TEST(Simulation, EveryCallEndsRightOrWithItsCause) {
  std::array<Tally, kFaultKinds> tallies;
  int64_t broken = 0;
  for (int64_t run = 0; run < runs && broken < kMostFailures; ++run) {
    const Scenario scenario =
        DrawScenario(first_seed + static_cast<uint64_t>(run));
    const SimOutcome outcome = Simulate(scenario);
    EXPECT_EQ(outcome.wrong, "") << "--seed=" << scenario.seed;
    tallies[static_cast<size_t>(scenario.fault.kind)].Add(scenario.seed,
                                                          outcome);
    broken += outcome.wrong.empty() ? 0 : 1;
    if (runs == 1)
      std::cout << Describe(scenario) << "\n" << outcome.first_error << "\n";
  }
  std::puts(
      "fault         runs   struck     calls     short    failed  broken  "
      "notice ms  of seed");
  for (int kind = 0; kind < kFaultKinds; ++kind)
    Print(Name(static_cast<FaultKind>(kind)),
          tallies[static_cast<size_t>(kind)]);
}

TEST(Simulation, ASeedBringsTheSameRunBack) {
  for (uint64_t seed = first_seed; seed < first_seed + 30; ++seed) {
    const SimOutcome first = Simulate(DrawScenario(seed));
    const SimOutcome second = Simulate(DrawScenario(seed));
    EXPECT_EQ(first.trace, second.trace) << "--seed=" << seed;
    EXPECT_EQ(first.first_error, second.first_error);
  }
}

TEST(Simulation, SeesThatNothingMoves) {
  Scenario scenario = DrawScenario(first_seed);
  constexpr int64_t kHourNs = 3600'000'000'000;
  scenario.fault = {.kind = FaultKind::kPause, .pause_ns = kHourNs};
  scenario.settings.timeout_ms = 2 * kHourNs / 1'000'000;
  const SimOutcome outcome = Simulate(scenario);
  EXPECT_TRUE(absl::StrContains(outcome.wrong, "nothing moves any more"))
      << outcome.wrong << "\n--seed=" << scenario.seed;
}

bool TakeFlag(std::string_view argument, std::string_view name,
              uint64_t* value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  return absl::SimpleAtoi(absl::string_view(argument.data(), argument.size()),
                          value);
}

}  // namespace
}  // namespace trnccl

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  uint64_t counted = 0;
  for (int i = 1; i < argc; ++i) {
    if (trnccl::TakeFlag(argv[i], "--seed=", &trnccl::first_seed)) {
      if (counted == 0) trnccl::runs = 1;
    } else if (trnccl::TakeFlag(argv[i], "--runs=", &counted)) {
      trnccl::runs = static_cast<int64_t>(counted);
    } else {
      std::cerr << "unknown: " << argv[i] << "\n";
      return 2;
    }
  }
  // What fails is said by the test, not by every rank of every run.
  if (trnccl::runs > 1) {
    const absl::Status quiet =
        trnccl::ConfigureLog(trnccl::LogLevel::kError, "/dev/null");
    if (!quiet.ok()) return 2;
  }
  return RUN_ALL_TESTS();
}
