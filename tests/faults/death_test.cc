// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Processes that die, stop, or fork.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"
#include "tests/faults/processes.h"

namespace trnccl {
namespace {

constexpr int kRanks = 3;
constexpr int kVictim = 1;

using Call = std::function<trncclResult_t(trncclComm_t comm, int rank)>;

trncclResult_t AllReduceOf(trncclComm_t comm, size_t count) {
  std::vector<float> values(count, 1);
  return trncclAllReduce(values.data(), values.data(), count, trncclFloat32,
                         trncclSum, comm, nullptr);
}

// On memory that all have mapped, often, so that the end comes in the middle.
trncclResult_t ManyOnTheEngine(trncclComm_t comm) {
  constexpr size_t kCount = 1 << 20;
  void* buffer = nullptr;
  EXPECT_CALL_OK(trncclMemAlloc(&buffer, kCount * sizeof(float)));
  trncclResult_t result = trncclSuccess;
  while (result == trncclSuccess)
    result = trncclAllReduce(buffer, buffer, kCount, trncclFloat32, trncclSum,
                             comm, nullptr);
  return result;
}

// The same on memory that the ranks reach through the kernel.
trncclResult_t ManyOnTheHeap(trncclComm_t comm) {
  std::vector<float> values(1 << 20, 1);
  trncclResult_t result = trncclSuccess;
  while (result == trncclSuccess)
    result = trncclAllReduce(values.data(), values.data(), values.size(),
                             trncclFloat32, trncclMax, comm, nullptr);
  return result;
}

struct Scene {
  const char* name;
  Call call;         // of those who live on
  Call victim_call;  // null: it's in none
  const char* says;
};

const std::vector<Scene>& Scenes() {
  static const auto small = [](trncclComm_t comm, int) {
    return AllReduceOf(comm, 4);
  };
  static const auto endless = [](trncclComm_t comm, int) {
    return ManyOnTheEngine(comm);
  };
  static const auto endless_on_heap = [](trncclComm_t comm, int) {
    return ManyOnTheHeap(comm);
  };
  static const auto& all = *new std::vector<Scene>{
      {"InASmallCall", small, nullptr, "all_reduce #2"},
      {"InALargeCall",
       [](trncclComm_t comm, int) { return AllReduceOf(comm, 3 << 20); },
       nullptr, "all_reduce #2"},
      {"OnTheEngine", endless, endless, "all_reduce #"},
      {"InMemoryOfEachOther", endless_on_heap, endless_on_heap, "all_reduce #"},
      {"InAReceive",
       [](trncclComm_t comm, int) {
         float value = 0;
         return trncclRecv(&value, 1, trncclFloat32, kVictim, 0, nullptr, comm,
                           nullptr);
       },
       nullptr, "rank 1"},
      {"InASplit",
       [](trncclComm_t comm, int) {
         trncclComm_t child = nullptr;
         return trncclCommSplit(comm, 0, 0, &child, nullptr);
       },
       nullptr, "rank 1"},
  };
  return all;
}

class Killed : public testing::TestWithParam<Scene> {};

TEST_P(Killed, IsNamedToAllTheOthersAtOnce) {
  const Scene& scene = GetParam();
  Processes all(kRanks, [&](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    const Call& call = rank == kVictim ? scene.victim_call : scene.call;
    ranks.Reach(rank, 1);
    if (call == nullptr) {
      while (true) pause();
    }
    ranks.Report(rank, OutcomeOf([&] { return call(comm, rank); }));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
    ranks.Reach(rank, 2);
  });
  for (int rank = 0; rank < kRanks; ++rank) all.Await(rank, 1);
  ASSERT_EQ(kill(all.pid(kVictim), SIGKILL), 0);
  for (const int rank : {0, 2}) {
    const Outcome outcome = all.Result(rank);
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(
        Says(outcome, {absl::StrCat("rank ", rank), scene.says,
                       absl::StrCat("rank 1 (pid ", all.pid(kVictim), ") died"),
                       "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
    all.Await(rank, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Killed, testing::ValuesIn(Scenes()),
                         [](const auto& one) {
                           return std::string(one.param.name);
                         });

// No call is on: the state tells, and the next call fails at once.
TEST(Killed, IsFoundByWhoAsksForErrors) {
  Processes all(kRanks, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    ranks.Reach(rank, 1);
    if (rank == kVictim) _exit(3);
    ranks.Report(rank, OutcomeOf([&] {
                   trncclResult_t error = trncclSuccess;
                   while (error == trncclSuccess) {
                     EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
                   }
                   EXPECT_EQ(error, trncclRemoteError);
                   return trncclBarrier(comm, nullptr);
                 }));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
  for (const int rank : {0, 2}) {
    const Outcome outcome = all.Result(rank);
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1 (pid ", "died", "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  }
}

// Also when the communicator has failed: a second loss isn't its error.
TEST(RankState, TellsWhoLeftFromWhoIsLost) {
  Processes all(4, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    ranks.Reach(rank, 1);
    const auto becomes = [&](int other, trncclRankState_t wanted) {
      trncclRankState_t state = trncclRankPresent;
      while (state != wanted)
        EXPECT_CALL_OK(trncclCommGetRankState(comm, other, &state));
      char* text = nullptr;
      EXPECT_CALL_OK(trncclCommDescribeRank(comm, other, &text));
      const std::string told = text;
      trncclFreeText(text);
      return told;
    };
    if (rank == 0) {
      EXPECT_CALL_OK(trncclCommDestroy(comm));
    }
    if (rank == 1) {
      ranks.Await(3, 2);
      _exit(3);
    }
    if (rank == 2) {
      ranks.Await(3, 3);
      _exit(3);
    }
    if (rank == 3) {
      EXPECT_THAT(becomes(0, trncclRankLeft),
                  testing::HasSubstr("has destroyed its communicator"));
      trncclRankState_t state = trncclRankLost;
      EXPECT_CALL_OK(trncclCommGetRankState(comm, 1, &state));
      EXPECT_EQ(state, trncclRankPresent);
      ranks.Reach(3, 2);
      EXPECT_THAT(becomes(1, trncclRankLost), testing::HasSubstr("ended"));
      ranks.Reach(3, 3);
      EXPECT_THAT(becomes(2, trncclRankLost), testing::HasSubstr("ended"));
      ranks.Report(3, {.result = trncclSuccess});
    }
    ranks.Await(3, 3);
  });
  EXPECT_EQ(all.Result(3).result, trncclSuccess) << all.Result(3).text;
}

// Who left in order isn't a death, and who is still in a call goes on.
TEST(Killed, IsNotSaidOfWhoLeftInOrder) {
  Processes all(2, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    float value = 1;
    if (rank == 0) {
      EXPECT_CALL_OK(trncclSend(&value, 1, trncclFloat32, 1, 0, comm, nullptr));
      EXPECT_CALL_OK(trncclCommFinalize(comm));
      EXPECT_CALL_OK(trncclCommDestroy(comm));
      ranks.Reach(rank, 1);
      return;
    }
    ranks.Await(0, 1);
    ranks.Report(rank, OutcomeOf([&] {
                   trncclResult_t error = trncclSuccess;
                   EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
                   EXPECT_EQ(error, trncclSuccess);
                   return trncclRecv(&value, 1, trncclFloat32, 0, 0, nullptr,
                                     comm, nullptr);
                 }));
  });
  EXPECT_EQ(all.Result(1).result, trncclSuccess) << all.Result(1).text;
}

TEST(Stopped, IsNamedWhenTheDeadlineIsOver) {
  Processes all(kRanks, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    ranks.Reach(rank, 1);
    ranks.Await(kVictim, 2);
    EXPECT_CALL_OK(trncclCommSetTimeout(comm, rank == kVictim ? 60'000 : 300));
    ranks.Report(rank, OutcomeOf([&] { return AllReduceOf(comm, 4); }));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
  for (int rank = 0; rank < kRanks; ++rank) all.Await(rank, 1);
  all.Stop(kVictim);
  all.Reach(kVictim, 2);
  for (const int rank : {0, 2}) {
    const Outcome outcome = all.Result(rank);
    EXPECT_EQ(outcome.result, trncclTimeout);
    EXPECT_TRUE(Says(
        outcome,
        {absl::StrCat("rank ", rank), "all_reduce #2", "timeout is 300 ms",
         "TRNCCL_TIMEOUT_MS", "no answer from rank 1 (host ", "stopped",
         "origin: rank 1 (host ", "its last call: all_reduce #1 (float32"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  }
  // Woken, it makes the call that the others have given up.
  ASSERT_EQ(kill(all.pid(kVictim), SIGCONT), 0);
  const Outcome late = all.Result(kVictim);
  EXPECT_EQ(late.result, trncclTimeout);
  EXPECT_TRUE(Says(late, {"rank 1", "all_reduce #2", "origin: rank 1 "}));
  EXPECT_LT(late.took_ms, kSoonMs);
}

// It waits for nobody, whatever the wires hold for the one that's stopped.
TEST(Stopped, IsWaitedForByNoAbort) {
  for (const char* transport : {"shm", "fabric"}) {
    SCOPED_TRACE(transport);
    const std::string setting = absl::StrCat("TRNCCL_TRANSPORT=", transport);
    Processes all(kRanks, [&](Processes& ranks, int rank) {
      trncclComm_t comm = ranks.Init(rank, {setting});
      EXPECT_TRUE(Works(comm));
      ranks.Reach(rank, 1);
      ranks.Await(kVictim, 2);
      std::vector<float> values(1 << 20, 1);
      trncclRequest_t request = nullptr;
      EXPECT_CALL_OK(trncclAllReduce(values.data(), values.data(),
                                     values.size(), trncclFloat32, trncclSum,
                                     comm, &request));
      if (rank == 0)
        EXPECT_EQ(trncclRequestWait(request, 50), trncclInProgress);
      else
        ranks.Await(0, 2);
      ranks.Report(rank, OutcomeOf([&] { return trncclCommAbort(comm); }));
      ranks.Reach(rank, 2);
      EXPECT_CALL_OK(trncclRequestFree(request));
      EXPECT_CALL_OK(trncclCommDestroy(comm));
      ranks.Reach(rank, 3);
    });
    for (int rank = 0; rank < kRanks; ++rank) all.Await(rank, 1);
    all.Stop(kVictim);
    all.Reach(kVictim, 2);
    for (const int rank : {0, 2}) {
      const Outcome outcome = all.Result(rank);
      EXPECT_EQ(outcome.result, trncclSuccess);
      EXPECT_LT(outcome.took_ms, kSoonMs);
      std::cout << "rank " << rank << " aborted in " << outcome.took_ms
                << " ms\n";
      all.Await(rank, 3);
    }
  }
}

// Everything that a child may try on what its parent made is refused.
TEST(Forked, ChildrenLeaveTheParentsCommunicatorAlone) {
  Processes all(2, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    void* memory = nullptr;
    EXPECT_CALL_OK(trncclMemAlloc(&memory, 1000));
    std::memset(memory, 7, 1000);
    trncclRequest_t request = nullptr;
    std::array<float, 4> a = {};
    EXPECT_CALL_OK(trncclAllReduce(a.data(), a.data(), a.size(), trncclFloat32,
                                   trncclSum, comm, &request));
    EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
    const pid_t child = fork();
    if (child == 0) {
      int done = 0;
      trncclRedOp_t op = 0;
      trncclResult_t error = trncclSuccess;
      const std::vector<trncclResult_t> results = {
          trncclBarrier(comm, nullptr),
          trncclAllReduce(a.data(), a.data(), 4, trncclFloat32, 1000, comm,
                          nullptr),
          trncclSend(a.data(), 1, trncclFloat32, 0, 0, comm, nullptr),
          trncclCommSplit(comm, 0, 0, &comm, nullptr),
          trncclCommFinalize(comm),
          trncclCommAbort(comm),
          trncclCommGetAsyncError(comm, &error),
          trncclCommSetTimeout(comm, 5),
          trncclRedOpCreatePreMulSum(&op, a.data(), trncclFloat32, comm),
          trncclRequestTest(request, &done),
          trncclRequestWait(request, 5),
          trncclCommDestroy(comm)};
      EXPECT_CALL_OK(trncclMemFree(memory));
      const bool refused = std::all_of(
          results.begin(), results.end(),
          [](trncclResult_t one) { return one == trncclInvalidUsage; });
      const bool said =
          std::strstr(trncclGetLastError(nullptr), "fork") != nullptr;
      _exit(refused && said ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(static_cast<char*>(memory)[999], 7);
    EXPECT_CALL_OK(trncclRequestFree(request));
    EXPECT_TRUE(Works(comm));
    EXPECT_CALL_OK(trncclMemFree(memory));
    ranks.Report(rank, OutcomeOf([&] { return trncclCommDestroy(comm); }));
    ranks.Reach(rank, testing::Test::HasFailure() ? 1 : 2);
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(all.Result(rank).result, trncclSuccess);
    all.Await(rank, 2);
  }
}

}  // namespace
}  // namespace trnccl
