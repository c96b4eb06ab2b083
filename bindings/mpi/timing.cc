// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/timing.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/status_macros.h"

namespace trnccl::perf {
namespace {

// Aimed at, so that a repetition which is a little faster than the one before
// still lasts long enough.
constexpr double kAimSeconds = 1.3 * kRepetitionSeconds;
constexpr double kFastestGrowth = 10;  // the first calls are slower than others

double Elapsed() { return static_cast<double>(NowNs()) * 1e-9; }

}  // namespace

double Repetition::slowest() const { return std::ranges::max(seconds); }

Stopwatch::Stopwatch(Team& team, const Timing& timing, Timed timed)
    : team_(team),
      timing_(timing),
      timed_(std::move(timed)),
      iterations_(std::max<int64_t>(timing.iterations, 1)) {}

absl::Status Stopwatch::WarmUp() {
  timed_.refill();
  std::vector<double> each;
  RETURN_IF_ERROR(Run(timing_.warmup_iterations, each).status());
  if (timing_.iterations != 0) return absl::OkStatus();
  return LongEnough().status();
}

absl::Status Stopwatch::Repeat() {
  ASSIGN_OR_RETURN(Repetition repetition, LongEnough());
  repetitions_.push_back(std::move(repetition));
  return absl::OkStatus();
}

// A repetition that turns out too short is made again, longer. All ranks decide
// alike: by the slowest.
absl::StatusOr<Repetition> Stopwatch::LongEnough() {
  for (;;) {
    Repetition repetition;
    timed_.refill();
    RETURN_IF_ERROR(team_.Barrier());
    ASSIGN_OR_RETURN(const Taken mine, Run(iterations_, repetition.each));
    ASSIGN_OR_RETURN(const std::vector<Taken> all, team_.Gather(mine));
    const double longest = std::ranges::max(all, {}, &Taken::elapsed).elapsed;
    if (timing_.iterations != 0 || longest >= kRepetitionSeconds) {
      for (const Taken& taken : all)
        repetition.seconds.push_back(taken.reported /
                                     static_cast<double>(iterations_));
      return repetition;
    }
    const double growth =
        std::min(kAimSeconds / std::max(longest, 1e-9), kFastestGrowth);
    iterations_ = static_cast<int64_t>(
        std::ceil(static_cast<double>(iterations_) * growth));
  }
}

absl::StatusOr<Stopwatch::Taken> Stopwatch::Run(int64_t iterations,
                                                std::vector<double>& each) {
  Taken total;
  if (timing_.each_alone) {
    each.reserve(static_cast<size_t>(iterations));
    for (int64_t i = 0; i < iterations; ++i) {
      ASSIGN_OR_RETURN(const Taken one, RunOne(i));
      each.push_back(one.reported);
      total.elapsed += one.elapsed;
      total.reported += one.reported;
    }
    return total;
  }
  const double clock = Clock();
  const double start = Elapsed();
  for (int64_t i = 0; i < iterations; ++i) RETURN_IF_ERROR(timed_.call());
  total.elapsed = Elapsed() - start;
  total.reported = timing_.cpu_time ? Clock() - clock : total.elapsed;
  return total;
}

absl::StatusOr<Stopwatch::Taken> Stopwatch::RunOne(int64_t iteration) {
  if (timed_.before_iteration) timed_.before_iteration(iteration);
  if (timing_.meet) RETURN_IF_ERROR(team_.Barrier());
  const double clock = Clock();
  const double start = Elapsed();
  RETURN_IF_ERROR(timed_.call());
  const double elapsed = Elapsed() - start;
  return Taken{elapsed, timing_.cpu_time ? Clock() - clock : elapsed};
}

double Stopwatch::Clock() const {
  if (!timing_.cpu_time) return 0;
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

}  // namespace trnccl::perf
