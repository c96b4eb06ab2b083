// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "tests/simulation/stepped_call.h"

#include <sched.h>

namespace {

// Of the stepped call that runs on this thread: lets its owner go on, and
// returns with the next step.
thread_local std::function<void()>* stop = nullptr;

}  // namespace

extern "C" int sched_yield() noexcept {
  // Waiting itself yields.
  std::function<void()>* const now = std::exchange(stop, nullptr);
  if (now != nullptr) {
    (*now)();
    stop = now;
  }
  return 0;
}

namespace trnccl {

void SteppedCall::Run(const std::function<void()>& call) {
  std::function<void()> mine = [this] {
    if (--yields_ > 0) return;
    stopped_.release();
    go_.acquire();
  };
  go_.acquire();
  stop = &mine;
  call();
  stop = nullptr;
  ended_ = true;
  stopped_.release();
}

}  // namespace trnccl
