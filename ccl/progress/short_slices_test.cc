// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "ccl/progress/short_slices.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace trnccl {
namespace {

id_t Self() { return static_cast<id_t>(syscall(SYS_gettid)); }

TEST(ShortSlices, ChangeNeitherPolicyNorNiceness) {
  std::thread([] {
    const int niceness = std::min(getpriority(PRIO_PROCESS, Self()) + 1, 19);
    ASSERT_EQ(setpriority(PRIO_PROCESS, Self(), niceness), 0);
    UseShortSlices();
    EXPECT_EQ(getpriority(PRIO_PROCESS, Self()), niceness);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

}  // namespace
}  // namespace trnccl
