// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Timing: repetitions of many calls, made by all ranks at once, so that two
// things can be measured in turn and compared pair by pair. It doesn't know
// what it times.
//
// Thread rule: an object belongs to one rank, that is one thread; all ranks
// make the same calls.
//
//   Stopwatch ours(team, timing, {call, refill, rewrite});
//   Stopwatch theirs(team, timing, {mpi_call, refill, rewrite});
//   RETURN_IF_ERROR(ours.WarmUp());
//   ...
//   RETURN_IF_ERROR(ours.Repeat());
//   RETURN_IF_ERROR(theirs.Repeat());
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "bindings/mpi/team.h"

namespace trnccl::perf {

// What a repetition lasts at least if the number of iterations is free.
inline constexpr double kRepetitionSeconds = 0.010;
inline constexpr int kRepetitions = 9;

struct Timing {
  int64_t iterations = 0;  // of a repetition; 0: as many as last long enough
  int64_t warmup_iterations = 1;
  bool each_alone = false;  // read the clock around each iteration
  bool meet = false;        // a barrier before each iteration, outside the time
  bool cpu_time = false;    // the process's CPU time, not elapsed time
};

struct Timed {
  std::function<absl::Status()> call;  // one iteration
  std::function<void()> refill;        // before each repetition
  std::function<void(int64_t)>
      before_iteration;  // may be empty; needs each_alone
};

// One repetition.
struct Repetition {
  std::vector<double> seconds;  // of an iteration, by rank
  std::vector<double> each;     // this rank's iterations, if each_alone

  double slowest() const;
};

class Stopwatch {
 public:
  Stopwatch(Team& team, const Timing& timing, Timed timed);

  // Warms up, and finds the number of iterations.
  absl::Status WarmUp();

  absl::Status Repeat();

  const std::vector<Repetition>& repetitions() const { return repetitions_; }
  int64_t iterations() const { return iterations_; }

 private:
  struct Taken {
    double elapsed = 0;   // decides on the number of iterations
    double reported = 0;  // elapsed or CPU time
  };

  absl::StatusOr<Repetition> LongEnough();
  absl::StatusOr<Taken> Run(int64_t iterations, std::vector<double>& each);
  absl::StatusOr<Taken> RunOne(int64_t iteration);
  double Clock() const;

  Team& team_;
  const Timing timing_;
  const Timed timed_;
  int64_t iterations_;
  std::vector<Repetition> repetitions_;
};

// Of at least one value; of the two in the middle, their mean.
double Median(std::vector<double> values);

}  // namespace trnccl::perf
