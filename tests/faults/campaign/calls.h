// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What the ranks do again and again in a phase until the fault ends it, each
// time with results that are looked at.
//
//   const Attempt attempt = MakeAttempts(fault, rank)(comm);
//   if (attempt.result == trncclSuccess && !attempt.is_right) ...
//
// Thread rule: use each by one thread.
#pragma once

#include <functional>
#include <string>

#include "ccl/trnccl.h"
#include "tests/faults/campaign/fault.h"

namespace trnccl {

struct Attempt {
  trncclResult_t result = trncclSuccess;
  std::string text;      // of the error
  bool is_right = true;  // whatever succeeded has given what it must
};

using Attempts = std::function<Attempt(trncclComm_t comm)>;

// Of the fault's phase; of "init" and "destroy": all sorts.
Attempts MakeAttempts(const Fault& fault, int rank);

}  // namespace trnccl
