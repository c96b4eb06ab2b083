// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A small blocking call makes no system call while each rank has its core, and
// so takes no contended lock either. The kernel itself tells: it refuses this
// thread's system calls for a while, with a signal each (syscall user dispatch,
// Linux 5.11).
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

constexpr int kRanks = 2;
constexpr int kBatches = 100;
constexpr int kRounds = 50;
constexpr int kCallsPerBatch = 5;

// The kernel reads the first at each system call of the thread.
thread_local volatile char selector = SYSCALL_DISPATCH_FILTER_ALLOW;
thread_local volatile int refused = 0;

// The return from the handler is a system call, too: they are allowed again.
void OnRefused(int, siginfo_t*, void*) {
  selector = SYSCALL_DISPATCH_FILTER_ALLOW;
  refused = refused + 1;
}

// Of the calling thread. False where the kernel can't.
bool Watch() {
  struct sigaction action = {};
  action.sa_sigaction = OnRefused;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0,
               &selector) == 0;
}

// How many batches of calls, out of `batches`, made a system call.
template <typename Batch>
int BatchesThatEnter(int batches, Batch batch) {
  int entered = 0;
  for (int i = 0; i < batches; ++i) {
    refused = 0;
    selector = SYSCALL_DISPATCH_FILTER_BLOCK;
    batch();
    selector = SYSCALL_DISPATCH_FILTER_ALLOW;
    entered += refused > 0 ? 1 : 0;
  }
  return entered;
}

TEST(SystemCalls, AreSeen) {
  if (!Watch()) GTEST_SKIP() << "this kernel has no syscall user dispatch";
  EXPECT_EQ(BatchesThatEnter(3, [] { getppid(); }), 3);
  EXPECT_EQ(BatchesThatEnter(3, [] {}), 0);
}

TEST(SystemCalls, AreNotMadeBySmallCalls) {
  RunRanks(
      {.ranks = kRanks, .settings = {"TRNCCL_WAIT=spin"}},
      [](trncclComm_t comm, int rank) {
        if (!Watch()) GTEST_SKIP();
        for (const EachCall& call : EveryCollective({kRanks, rank}, 8)) {
          if (call.name.ends_with("_v")) continue;
          for (int i = 0; i < 10; ++i)
            ASSERT_CALL_OK(call.issue(comm, nullptr));
          // A rank that loses its core makes the other wait long, and
          // look whether it's alive: that's a call, but not in each batch,
          // unless others keep the cores busy all the time.
          int32_t entered = kBatches;
          for (int i = 0; i < kRounds && entered == kBatches; ++i) {
            entered = BatchesThatEnter(kBatches, [&] {
              for (int j = 0; j < kCallsPerBatch; ++j)
                if (call.issue(comm, nullptr) != trncclSuccess) abort();
            });
            ASSERT_CALL_OK(trncclAllReduce(&entered, &entered, 1, trncclInt32,
                                           trncclMax, comm, nullptr));
          }
          EXPECT_LT(entered, kBatches) << call.name;
          EXPECT_TRUE(call.is_right()) << call.name;
        }
      });
}

}  // namespace
}  // namespace trnccl
