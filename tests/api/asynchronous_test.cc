// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Calls with a request: they complete by themselves, in any number, whoever
// waits for them or not.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

TEST(Asynchronous, EveryCallCompletesByItself) {
  for (const int ranks : {1, 2, 3, 4}) {
    RunRanks({.ranks = ranks}, [ranks](trncclComm_t comm, int rank) {
      for (const size_t count : {0, 1, 1000, 100'000}) {
        for (const EachCall& call : EveryCollective({ranks, rank}, count)) {
          trncclRequest_t request = nullptr;
          ASSERT_CALL_OK(call.issue(comm, &request)) << call.name;
          ASSERT_CALL_OK(ResultByItself(request)) << call.name;
          ASSERT_TRUE(call.is_right()) << call.name << " of " << count;
        }
      }
    });
  }
}

TEST(Asynchronous, EveryAlgorithmIsRightInPlaceForAnyNumberOfRanks) {
  for (const char* algorithm :
       {"ring", "one_step", "two_step", "recursive_doubling",
        "halving_doubling", "double_tree"}) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      RunRanks({.ranks = ranks,
                .settings = {std::string("TRNCCL_ALGORITHM=all_reduce:") +
                             algorithm}},
               [&](trncclComm_t comm, int rank) {
                 constexpr size_t kCount = 997;
                 std::vector<uint32_t> values(kCount);
                 for (size_t i = 0; i < kCount; ++i)
                   values[i] = ValueOf(rank, i);
                 trncclRequest_t request = nullptr;
                 ASSERT_CALL_OK(trncclAllReduce(values.data(), values.data(),
                                                kCount, trncclUint32, trncclSum,
                                                comm, &request))
                     << algorithm;
                 ASSERT_CALL_OK(ResultByItself(request));
                 for (size_t i = 0; i < kCount; ++i) {
                   uint32_t sum = 0;
                   for (int r = 0; r < ranks; ++r) sum += ValueOf(r, i);
                   ASSERT_EQ(values[i], sum) << algorithm << " " << ranks;
                 }
               });
    }
  }
}

TEST(Asynchronous, PatienceThatEndsFirstChangesNothing) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    if (rank == 1) {
      int64_t go = 0;
      ASSERT_CALL_OK(
          trncclRecv(&go, 1, trncclInt64, 0, 0, nullptr, comm, nullptr));
      ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
      return;
    }
    trncclRequest_t request = nullptr;
    ASSERT_CALL_OK(trncclBarrier(comm, &request));
    EXPECT_EQ(trncclRequestWait(request, 0), trncclInProgress);
    EXPECT_EQ(trncclRequestWait(request, 20), trncclInProgress);
    int done = 1;
    EXPECT_CALL_OK(trncclRequestTest(request, &done));
    EXPECT_EQ(done, 0);
    const int64_t go = 1;
    ASSERT_CALL_OK(trncclSend(&go, 1, trncclInt64, 1, 0, comm, nullptr));
    EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
    EXPECT_CALL_OK(trncclRequestWait(request, 0));
    EXPECT_CALL_OK(trncclRequestFree(request));
  });
}

TEST(Asynchronous, AThousandCallsMayBeOutstanding) {
  constexpr int kCalls = 1000;
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    std::vector<uint32_t> values(kCalls);
    std::vector<trncclRequest_t> requests(kCalls);
    for (int i = 0; i < kCalls; ++i) {
      values[i] = ValueOf(rank, i);
      ASSERT_CALL_OK(trncclAllReduce(&values[i], &values[i], 1, trncclUint32,
                                     trncclSum, comm, &requests[i]));
    }
    // The last first: they complete in their own order all the same.
    for (int i = kCalls - 1; i >= 0; --i) {
      ASSERT_CALL_OK(trncclRequestWait(requests[i], TRNCCL_WAIT_FOREVER));
      ASSERT_CALL_OK(trncclRequestFree(requests[i]));
      ASSERT_EQ(values[i], ValueOf(0, i) + ValueOf(1, i) + ValueOf(2, i));
    }
  });
}

// Three communicators, collectives and messages on each; every rank goes
// through the communicators in an order of its own.
TEST(Asynchronous, CommunicatorsAreIndependentInAnyOrder) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 20;
  RunRanks({.ranks = kRanks}, [](trncclComm_t world, int rank) {
    std::vector<trncclComm_t> comms = {world, nullptr, nullptr};
    ASSERT_CALL_OK(trncclCommSplit(world, 0, rank, &comms[1], nullptr));
    ASSERT_CALL_OK(trncclCommSplit(world, 0, rank, &comms[2], nullptr));
    std::rotate(comms.begin(), comms.begin() + rank, comms.end());
    const int next = (rank + 1) % kRanks;
    const int previous = (rank + kRanks - 1) % kRanks;
    std::vector<uint32_t> sent(kRounds * 3, 0);
    std::vector<uint32_t> received(kRounds * 3, 0);
    std::vector<trncclRequest_t> requests;
    std::vector<EachCall> calls;
    for (int at = 0; at < 3 * kRounds; ++at) {
      trncclComm_t comm = comms[at / kRounds];
      sent[at] = ValueOf(rank, at % kRounds);
      requests.resize(requests.size() + 2);
      ASSERT_CALL_OK(trncclRecv(&received[at], 1, trncclUint32, previous,
                                at % kRounds, nullptr, comm,
                                &requests[requests.size() - 2]));
      ASSERT_CALL_OK(trncclSend(&sent[at], 1, trncclUint32, next, at % kRounds,
                                comm, &requests.back()));
      for (EachCall& call : EveryCollective({kRanks, rank}, 50)) {
        ASSERT_CALL_OK(call.issue(comm, &requests.emplace_back()));
        calls.push_back(std::move(call));
      }
    }
    for (trncclRequest_t request : requests)
      ASSERT_CALL_OK(ResultByItself(request));
    for (const EachCall& call : calls) ASSERT_TRUE(call.is_right());
    for (int at = 0; at < 3 * kRounds; ++at)
      ASSERT_EQ(received[at], ValueOf(previous, at % kRounds));
    for (trncclComm_t comm : comms) {
      if (comm == world) continue;
      ASSERT_CALL_OK(trncclCommDestroy(comm));
    }
  });
}

TEST(Asynchronous, FreedRequestsGoOnUntilFinalize) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    std::vector<EachCall> calls = EveryCollective({3, rank}, 20'000);
    for (const EachCall& call : calls) {
      trncclRequest_t request = nullptr;
      ASSERT_CALL_OK(call.issue(comm, &request));
      ASSERT_CALL_OK(trncclRequestFree(request));
    }
    ASSERT_CALL_OK(trncclCommFinalize(comm));
    for (const EachCall& call : calls) EXPECT_TRUE(call.is_right());
  });
}

TEST(Asynchronous, BlockingCallsRunWhileAnotherThreadWaits) {
  for (const char* wait : {"auto", "sleep", "yield"}) {
    RunRanks(
        {.ranks = 2, .settings = {std::string("TRNCCL_WAIT=") + wait}},
        [](trncclComm_t comm, int rank) {
          int64_t late = 0;
          trncclRequest_t request = nullptr;
          ASSERT_CALL_OK(trncclRecv(&late, 1, trncclInt64, 1 - rank, 9, nullptr,
                                    comm, &request));
          std::thread waiter([request] {
            EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
          });
          uint32_t value = 0;
          for (int i = 0; i < 500; ++i) {
            value = ValueOf(rank, i);
            ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclUint32,
                                           trncclSum, comm, nullptr));
            ASSERT_EQ(value, ValueOf(0, i) + ValueOf(1, i));
          }
          const int64_t sent = 5;
          EXPECT_CALL_OK(
              trncclSend(&sent, 1, trncclInt64, 1 - rank, 9, comm, nullptr));
          waiter.join();
          EXPECT_EQ(late, 5);
          EXPECT_CALL_OK(trncclRequestFree(request));
        });
  }
}

int64_t VoluntarySwitches() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A wait for a late rank sleeps: it costs next to no processor time.
TEST(Asynchronous, WaitingForALateRankSleeps) {
  RunRanks(
      {.ranks = 2, .settings = {"TRNCCL_WAIT=sleep"}},
      [](trncclComm_t comm, int rank) {
        int64_t go = 0;
        if (rank == 1) {
          ASSERT_CALL_OK(
              trncclRecv(&go, 1, trncclInt64, 0, 0, nullptr, comm, nullptr));
          ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
          return;
        }
        trncclRequest_t request = nullptr;
        ASSERT_CALL_OK(trncclBarrier(comm, &request));
        const double cpu_s = CpuSeconds();
        const int64_t switches = VoluntarySwitches();
        EXPECT_EQ(trncclRequestWait(request, 1000), trncclInProgress);
        EXPECT_LT(CpuSeconds() - cpu_s, 0.2);
        EXPECT_LT(VoluntarySwitches() - switches, 200);
        ASSERT_CALL_OK(trncclSend(&go, 1, trncclInt64, 1, 0, comm, nullptr));
        ASSERT_CALL_OK(ResultByItself(request));
      });
}

// Rings are never lost: each wait sleeps at once, so that one lost ring would
// cost a tenth of a second.
TEST(Asynchronous, NoWakeIsLostInThousandsOfSmallCalls) {
  constexpr int kCalls = 3000;
  const auto began = std::chrono::steady_clock::now();
  for (const int ranks : {2, 3}) {
    RunRanks({.ranks = ranks, .settings = {"TRNCCL_WAIT=sleep"}},
             [ranks](trncclComm_t comm, int rank) {
               const int next = (rank + 1) % ranks;
               const int previous = (rank + ranks - 1) % ranks;
               for (int i = 0; i < kCalls / ranks; ++i) {
                 uint32_t value = ValueOf(rank, i);
                 ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclUint32,
                                                trncclSum, comm, nullptr));
                 ASSERT_CALL_OK(trncclSend(&value, 1, trncclUint32, next, i,
                                           comm, nullptr));
                 uint32_t theirs = 0;
                 ASSERT_CALL_OK(trncclRecv(&theirs, 1, trncclUint32, previous,
                                           i, nullptr, comm, nullptr));
                 ASSERT_EQ(theirs, value);
               }
             });
  }
  // Far more than they take, far less than one tick a call would.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

}  // namespace
}  // namespace trnccl
