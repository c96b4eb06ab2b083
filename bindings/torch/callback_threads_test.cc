// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/torch/callback_threads.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::torch_binding {
namespace {

TEST(RunApart, RunsEachOnceInAnotherThread) {
  constexpr int kCallbacks = 1000;
  std::vector<std::atomic<int>> runs(kCallbacks);
  std::atomic<int> left = kCallbacks;
  std::promise<std::thread::id> last;
  for (std::atomic<int>& run : runs) {
    RunApart({.run = [&] {
      ++run;
      if (--left == 0) last.set_value(std::this_thread::get_id());
    }});
  }
  EXPECT_NE(last.get_future().get(), std::this_thread::get_id());
  for (const std::atomic<int>& run : runs) EXPECT_EQ(run.load(), 1);
}

TEST(RunApart, LetsOneWaitForThoseAfterIt) {
  constexpr int kDepth = 5;
  std::vector<std::promise<void>> done(kDepth + 1);
  for (int i = 0; i < kDepth; ++i) {
    RunApart({.run = [&done, i] {
      done[static_cast<size_t>(i) + 1].get_future().wait();
      done[static_cast<size_t>(i)].set_value();
    }});
  }
  RunApart({.run = [&done] { done[kDepth].set_value(); }});
  done[0].get_future().wait();
}

TEST(RunApart, RunsWhatACallbackStartsBesideIt) {
  std::promise<int> level;
  RunApart({.run = [&level] {
    std::promise<void> inner;
    RunApart(
        {.run = [&inner] { inner.set_value(); }, .level = CallbackLevel()});
    inner.get_future().wait();
    level.set_value(CallbackLevel());
  }});
  EXPECT_EQ(level.get_future().get(), 1);
  EXPECT_EQ(CallbackLevel(), 0);
}

TEST(RunApart, FreesWhatItHoldsBeforeTheNextIsAwaited) {
  // Its destructor may itself have something to run.
  struct Adds {
    std::promise<void>* done;
    ~Adds() {
      RunApart({.run = [done = done] { done->set_value(); }});
    }
  };
  std::promise<void> done;
  RunApart({.run = [held = std::make_shared<Adds>(&done)] {}});
  done.get_future().wait();
}

}  // namespace
}  // namespace trnccl::torch_binding
