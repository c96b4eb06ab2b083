// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Processes without address space left: for shared memory, or for threads
// (whose own limit wouldn't bind root).
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"
#include "tests/faults/processes.h"

namespace trnccl {
namespace {

// What's used and `bytes` more.
void LimitAddressSpace(size_t bytes) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  ASSERT_GT(pages, 0u);
  const rlim_t limit =
      pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit value = {limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &value), 0);
}

TEST(OutOfAddressSpace, ThreadsAreAnErrorOfWhatNeedsOne) {
  InChild([] {
    trncclUniqueId ids[2];
    for (trncclUniqueId& id : ids) ASSERT_CALL_OK(trncclGetUniqueId(&id));
    trncclComm_t comm = nullptr;
    ASSERT_CALL_OK(trncclCommInitRank(&comm, 1, ids[0], 0));
    // Less than a thread's stack.
    LimitAddressSpace(4 << 20);
    trncclRequest_t request = nullptr;
    const Outcome outcome =
        OutcomeOf([&] { return trncclBarrier(comm, &request); });
    EXPECT_EQ(outcome.result, trncclOutOfResources);
    EXPECT_TRUE(Says(outcome, {"rank 0", "thread", "ulimit -u"}));
    EXPECT_TRUE(Works(comm));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const Outcome init = OutcomeOf(
        [&] { return trncclCommInitRankConfig(&comm, 1, ids[1], 0, &config); });
    EXPECT_EQ(init.result, trncclOutOfResources);
    EXPECT_TRUE(Says(init, {"rank 0", "thread", "ulimit -u"}));
    // The id is still good.
    EXPECT_CALL_OK(trncclCommInitRank(&comm, 1, ids[1], 0));
    EXPECT_TRUE(Works(comm));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
}

TEST(OutOfAddressSpace, BuffersAreAnError) {
  InChild([] {
    LimitAddressSpace(32 << 20);
    void* buffer = &buffer;
    const Outcome outcome =
        OutcomeOf([&] { return trncclMemAlloc(&buffer, 256 << 20); });
    EXPECT_EQ(outcome.result, trncclOutOfResources);
    EXPECT_TRUE(Says(outcome, {"268435456 bytes", "ulimit -v"}));
    EXPECT_EQ(buffer, nullptr);
    EXPECT_CALL_OK(trncclMemAlloc(&buffer, 1 << 20));
    EXPECT_CALL_OK(trncclMemFree(buffer));
  });
}

}  // namespace
}  // namespace trnccl
