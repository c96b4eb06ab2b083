// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/backoff.h"

#include <sched.h>

namespace trnccl {

WaitPolicy WaitPolicy::For(const Settings& settings, Cores cores) {
  WaitPolicy policy{.spin_ns = settings.spin_us * 1000,
                    .yield_ns = settings.yield_us * 1000};
  switch (settings.wait) {
    case WaitMode::kAuto:
      if (cores == Cores::kShared) policy.spin_ns = 0;
      break;
    case WaitMode::kSpin:
      policy.spin_ns = INT64_MAX;
      break;
    case WaitMode::kYield:
      policy.spin_ns = 0;
      policy.sleeps = false;
      break;
    case WaitMode::kSleep:
      policy.spin_ns = 0;
      policy.yield_ns = 0;
      break;
  }
  return policy;
}

Backoff::Action Backoff::Slow() {
  if (policy_.spin_ns > 0 && idle_ % kRoundsPerCheck != 0) return kSpin;
  if (idle_ == 0 || idle_ == kFreeRounds) since_ns_ = NowNs();
  idle_ = idle_ == UINT32_MAX ? kFreeRounds + 1 : idle_ + 1;
  const int64_t waited_ns = NowNs() - since_ns_;
  if (waited_ns < policy_.spin_ns) return kSpinCheck;
  const bool yields =
      !policy_.sleeps || waited_ns - policy_.spin_ns < policy_.yield_ns;
  if (!yields) return kSleep;
  sched_yield();
  return kYield;
}

}  // namespace trnccl
