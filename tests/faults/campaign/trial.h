// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// One fault, tried on a job of processes made for it, all of which end with the
// trial. It waits for nothing without a bound.
//
//   const Verdict verdict = Try(fault, {.nodes = Meet(folder)});
//   if (!verdict.failures.empty()) std::cout << verdict.failures.front();
//
// Thread rule: by a process with one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/campaign/fault.h"

namespace trnccl {

struct TrialOptions {
  std::vector<pid_t> nodes;  // a process of each; none: all ranks are here
  int64_t slack_ms = 3'000;  // that a busy machine adds to the time to notice
};

struct Verdict {
  std::vector<std::string> failures;  // what wasn't as promised, a rank each
  // Of the survivors that had an error: from the fault on, or from the deadline
  // where only that tells.
  std::vector<double> notice_ms;
};

// What that may be on a machine that isn't busy.
int64_t NoticeLimitMs(const Fault& fault);

Verdict Try(const Fault& fault, const TrialOptions& options);

}  // namespace trnccl
