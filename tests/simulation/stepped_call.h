// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A call that blocks, played step by step: it runs on a thread of its own, but
// only while its owner waits in Step(), and stops wherever it yields. So one
// thread runs at a time, and in an order that the owner chooses. For that,
// sched_yield() is this package's own in any program that it's linked into; it
// does nothing outside of stepped calls.
//
// Thread rule: thread-compatible; all calls of one owner from one thread.
//
//   SteppedCall call([&] { status = communicator.RunAll(operations); });
//   while (!call.Step()) StepSomebodyElse();
#pragma once

#include <functional>
#include <semaphore>
#include <thread>
#include <utility>

namespace trnccl {

class SteppedCall {
 public:
  explicit SteppedCall(std::function<void()> call)
      : thread_([this, call = std::move(call)] { Run(call); }) {}
  // Goes on to its end.
  ~SteppedCall() {
    while (!Step()) {
    }
    thread_.join();
  }
  SteppedCall(const SteppedCall&) = delete;
  SteppedCall& operator=(const SteppedCall&) = delete;

  // To where it yields for the last of so many times, or to its end; true once
  // it has ended.
  bool Step(int yields = 1) {
    if (ended_) return true;
    yields_ = yields;
    go_.release();
    stopped_.acquire();
    return ended_;
  }
  bool ended() const { return ended_; }

 private:
  void Run(const std::function<void()>& call);

  std::binary_semaphore go_{0};
  std::binary_semaphore stopped_{0};
  int yields_ = 1;  // until it stops
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace trnccl
