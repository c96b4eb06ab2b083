// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Threads that complete the futures Python asked for. What a user chains to a
// future may wait for other calls, and for the interpreter; the thread that
// brings all calls on must do neither. There are none while no such future
// completes, and mostly one.
//
// Callbacks run one at a time in the order given, so that what they start comes
// in one order on all ranks. But what a callback starts completes beside it, as
// it may wait for that; and one that's stuck holds up the next for a moment
// only.
//
// Thread rule: thread-safe.
//
//   const int level = CallbackLevel();    // when the future is asked for
//   RunApart({.run = [future] { future->markCompleted(); }, .level = level});
#pragma once

#include <functional>

namespace trnccl::torch_binding {

struct Callback {
  std::function<void()> run;
  int level = 0;
};

// 0, in a callback of level n that runs apart: n + 1.
int CallbackLevel();

// Runs it soon, in another thread; here if there can be no more threads.
void RunApart(Callback callback);

}  // namespace trnccl::torch_binding
