// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Plays a scenario: steps its ranks in an order drawn from the seed, lets the
// fault strike, and judges what became of every call. Without a fatal fault
// each must give the oracle's bits on every rank; with one, each call of a rank
// that lives must end by its deadline, right or with an error, whose first
// cause is kept and names the rank that it began at.
//
// Thread rule: as SimWorld's.
//
//   SimOutcome outcome = Simulate(DrawScenario(seed));
//   EXPECT_EQ(outcome.wrong, "");
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/scenario.h"

namespace trnccl {

struct SimOutcome {
  std::string wrong;        // "" or what broke a promise
  bool struck = false;      // whether the fault came before all was done
  int64_t calls = 0;        // of all ranks, ended
  int64_t failed = 0;       // of these, with an error
  int64_t short_calls = 0;  // that ran straight through
  int64_t notice_ns = 0;    // from the fault to the last rank's last error
  std::string first_error;  // of a rank other than the fault's
  uint64_t trace = 0;       // a hash of all that happened, and when
};

SimOutcome Simulate(const Scenario& scenario);

}  // namespace trnccl
