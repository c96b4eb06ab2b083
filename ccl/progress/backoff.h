// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// How a waiter idles: spin while its rank has a core of its own, else yield,
// then sleep. Says what to do next; doing it is the caller's.
//
// Thread rule: thread-compatible, one per wait.
//
//   Backoff backoff(policy);
//   while (!Advance()) {
//     if (backoff.Next() == Backoff::kSleep) SleepUntilRung();
//   }
#pragma once

#include <cstdint>

#include "ccl/base/clock.h"
#include "ccl/base/settings.h"

namespace trnccl {

// Whether every rank of the node has a core of its own.
enum class Cores : uint8_t { kOwn, kShared };

struct WaitPolicy {
  int64_t spin_ns = 0;
  int64_t yield_ns = 0;
  bool sleeps = true;

  static WaitPolicy For(const Settings& settings, Cores cores);
};

class Backoff {
 public:
  enum Action : uint8_t {
    kSpin,       // try again at once
    kSpinCheck,  // the same, and look at clocks and flags first
    kYield,      // sched_yield() was called; look at clocks and flags
    kSleep       // sleep until rung
  };

  explicit Backoff(const WaitPolicy& policy) : policy_(policy) {}

  // Something moved: start over.
  void Reset() { idle_ = 0; }

  Action Next() {
    // The first rounds are free of any clock: most waits end here.
    if (policy_.spin_ns > 0 && ++idle_ < kFreeRounds) return kSpin;
    return Slow();
  }

 private:
  static constexpr uint32_t kFreeRounds = 512;
  static constexpr uint32_t kRoundsPerCheck = 32;
  Action Slow();

  WaitPolicy policy_;
  uint32_t idle_ = 0;
  int64_t since_ns_ = 0;  // when the clock was first looked at since Reset()
};

}  // namespace trnccl
