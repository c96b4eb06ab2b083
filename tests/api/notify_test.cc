// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// trncclRequestNotify: told once, whoever completes the call.
#include <atomic>
#include <thread>
#include <vector>

#include "ccl/trnccl.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

void Count(void* context) { ++*static_cast<std::atomic<int>*>(context); }

void Await(const std::atomic<int>& count, int wanted) {
  while (count.load() < wanted) std::this_thread::yield();
  EXPECT_EQ(count.load(), wanted);
}

TEST(Notify, TellsOnceWithoutAnybodyWaiting) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int) {
    for (int round = 0; round < 200; ++round) {
      int32_t value = 1;
      std::atomic<int> told = 0;
      trncclRequest_t request = nullptr;
      ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclInt32, trncclSum,
                                     comm, &request));
      ASSERT_CALL_OK(trncclRequestNotify(request, Count, &told));
      Await(told, 1);
      EXPECT_EQ(value, 2);
      int done = 0;
      ASSERT_CALL_OK(trncclRequestTest(request, &done));
      EXPECT_EQ(done, 1);
      // It's complete: told at once.
      std::atomic<int> again = 0;
      ASSERT_CALL_OK(trncclRequestNotify(request, Count, &again));
      EXPECT_EQ(again.load(), 1);
      EXPECT_EQ(told.load(), 1);
      ASSERT_CALL_OK(trncclRequestFree(request));
    }
  });
}

// What the next call needs, from inside of the notice of the one before.
struct Chain {
  trncclComm_t comm = nullptr;
  int left = 0;
  int32_t value = 1;
  trncclRequest_t request = nullptr;
  std::atomic<int> ended = 0;

  void Next() {
    ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclInt32, trncclMax,
                                   comm, &request));
    ASSERT_CALL_OK(trncclRequestNotify(request, Told, this));
  }
  static void Told(void* context) {
    auto* chain = static_cast<Chain*>(context);
    ASSERT_CALL_OK(trncclRequestFree(chain->request));
    if (--chain->left == 0) {
      chain->ended = 1;
    } else {
      chain->Next();
    }
  }
};

TEST(Notify, MayFreeItsRequestAndStartTheNextCall) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    Chain chain{.comm = comm, .left = 20, .value = rank + 1};
    chain.Next();
    Await(chain.ended, 1);
    EXPECT_EQ(chain.value, 3);
  });
}

// The other communicator has had no asynchronous call before.
TEST(Notify, MayStartTheFirstCallOfAnotherCommunicator) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    struct Start {
      Chain other;
      trncclRequest_t request = nullptr;
    } start;
    ASSERT_CALL_OK(trncclCommSplit(comm, 0, rank, &start.other.comm, nullptr));
    start.other.left = 1;
    start.other.value = rank + 1;
    ASSERT_CALL_OK(trncclBarrier(comm, &start.request));
    ASSERT_CALL_OK(trncclRequestNotify(
        start.request,
        [](void* context) { static_cast<Start*>(context)->other.Next(); },
        &start));
    Await(start.other.ended, 1);
    EXPECT_EQ(start.other.value, 2);
    ASSERT_CALL_OK(trncclRequestFree(start.request));
    ASSERT_CALL_OK(trncclCommDestroy(start.other.comm));
  });
}

// Who waits for one call tells of the others that end meanwhile.
TEST(Notify, TellsWhileAnotherCallIsWaitedFor) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    std::atomic<int> told = 0;
    int32_t value = 1;
    trncclRequest_t first = nullptr;
    trncclRequest_t second = nullptr;
    ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclInt32, trncclSum,
                                   comm, &first));
    ASSERT_CALL_OK(trncclRequestNotify(first, Count, &told));
    int32_t message = 7;
    if (rank == 0) {
      ASSERT_CALL_OK(
          trncclRecv(&message, 1, trncclInt32, 1, 0, nullptr, comm, &second));
      ASSERT_CALL_OK(trncclRequestWait(second, TRNCCL_WAIT_FOREVER));
      ASSERT_CALL_OK(trncclRequestFree(second));
    } else {
      Await(told, 1);
      ASSERT_CALL_OK(trncclSend(&message, 1, trncclInt32, 0, 0, comm, nullptr));
    }
    Await(told, 1);
    ASSERT_CALL_OK(trncclRequestFree(first));
  });
}

TEST(Notify, TellsOfFailures) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int) {
    std::atomic<int> told = 0;
    int32_t message = 0;
    trncclRequest_t request = nullptr;
    ASSERT_CALL_OK(trncclRecv(&message, 1, trncclInt32, TRNCCL_ANY_SOURCE, 0,
                              nullptr, comm, &request));
    ASSERT_CALL_OK(trncclRequestNotify(request, Count, &told));
    ASSERT_CALL_OK(trncclCommAbort(comm));
    Await(told, 1);
    int done = 0;
    // By this rank, or by the other one, which was sooner.
    EXPECT_NE(trncclRequestTest(request, &done), trncclSuccess);
    EXPECT_EQ(done, 1);
    ASSERT_CALL_OK(trncclRequestFree(request));
  });
}

TEST(Notify, RefusesNothing) {
  EXPECT_EQ(trncclRequestNotify(nullptr, Count, nullptr),
            trncclInvalidArgument);
}

}  // namespace
}  // namespace trnccl
