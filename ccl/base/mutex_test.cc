// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/base/mutex.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl {
namespace {

TEST(Mutex, KeepsThreadsApart) {
  struct {
    Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
  } shared;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&shared] {
      for (int j = 0; j < 1000; ++j) {
        MutexLock lock(shared.mutex);
        ++shared.count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(shared.mutex);
  EXPECT_EQ(shared.count, 4000);
}

}  // namespace
}  // namespace trnccl
