// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks that don't come: when a communicator is made, and to a call.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

trncclConfig_t ConfigOf(const std::vector<const char*>& settings) {
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.settings = settings.data();
  config.settings_count = static_cast<int>(settings.size());
  return config;
}

TEST(Init, NamesTheRanksThatDidntCome) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  const std::vector<const char*> settings = {"TRNCCL_BOOTSTRAP_TIMEOUT_MS=300"};
  const trncclConfig_t config = ConfigOf(settings);
  trncclComm_t comm = nullptr;
  const Outcome outcome = OutcomeOf(
      [&] { return trncclCommInitRankConfig(&comm, 4, id, 2, &config); });
  EXPECT_EQ(outcome.result, trncclTimeout);
  EXPECT_EQ(comm, nullptr);
  EXPECT_TRUE(Says(outcome, {"rank 2 of 4", "0, 1, 3"}));
  EXPECT_LT(outcome.took_ms, kSoonMs);
}

TEST(Init, NamesTheMissingRankToAllWhoCame) {
  RunThreads(4, [](trncclUniqueId id, int rank) {
    if (rank == 1) return;
    const std::vector<const char*> settings = {
        "TRNCCL_BOOTSTRAP_TIMEOUT_MS=1s"};
    const trncclConfig_t config = ConfigOf(settings);
    trncclComm_t comm = nullptr;
    const Outcome outcome = OutcomeOf(
        [&] { return trncclCommInitRankConfig(&comm, 4, id, rank, &config); });
    EXPECT_EQ(outcome.result, trncclTimeout);
    EXPECT_TRUE(Says(outcome, {absl::StrCat("rank ", rank, " of 4"), "1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(Init, RefusesImpossibleRanks) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  for (const auto& [ranks, rank] : std::vector<std::array<int, 2>>{
           {0, 0}, {-1, 0}, {2, 2}, {2, -1}, {1 << 30, 3}}) {
    trncclComm_t comm = nullptr;
    const Outcome outcome = OutcomeOf([&, n = ranks, r = rank] {
      return trncclCommInitRank(&comm, n, id, r);
    });
    EXPECT_EQ(outcome.result, trncclInvalidArgument);
    EXPECT_TRUE(Says(outcome, {absl::StrCat("rank ", rank)}));
    EXPECT_EQ(comm, nullptr);
  }
}

using Call = std::function<trncclResult_t(trncclComm_t comm, int rank)>;

trncclResult_t AllReduceOf(trncclComm_t comm, size_t count) {
  std::vector<float> values(count, 1);
  return trncclAllReduce(values.data(), values.data(), count, trncclFloat32,
                         trncclSum, comm, nullptr);
}

// The last rank doesn't come; the others' errors name it, and it learns of that
// when it comes after all.
void ExpectNamed(const RankOptions& options, const Call& call,
                 const std::string& name) {
  std::atomic<int> failed = 0;
  RunRanks(options, [&](trncclComm_t comm, int rank) {
    const int late = options.ranks - 1;
    EXPECT_TRUE(Works(comm));
    EXPECT_CALL_OK(trncclCommSetTimeout(comm, 200));
    if (rank == late) {
      while (failed.load() < late) sched_yield();
    }
    const Outcome outcome = OutcomeOf([&] { return call(comm, rank); });
    ++failed;
    EXPECT_EQ(outcome.result, trncclTimeout);
    EXPECT_TRUE(Says(outcome, {name, "200 ms", "TRNCCL_TIMEOUT_MS"}));
    EXPECT_TRUE(Says(outcome, {absl::StrCat("origin: rank ", late, " (host")}));
    if (rank != late) {
      // Before all those that wait as well.
      EXPECT_THAT(outcome.text,
                  testing::StartsWith(absl::StrCat(
                      "rank ", rank, ": no answer from rank ", late)));
      EXPECT_TRUE(Says(outcome, {"its last call: all_reduce #1 (float32"}));
    }
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(Deadline, NamesWhoDidntCome) {
  for (const int ranks : {2, 3, 4}) {
    ExpectNamed(
        {.ranks = ranks},
        [](trncclComm_t comm, int) { return AllReduceOf(comm, 4); },
        "all_reduce #2");
    ExpectNamed(
        {.ranks = ranks},
        [](trncclComm_t comm, int) { return AllReduceOf(comm, 1 << 18); },
        "all_reduce #2");
  }
}

// The neighbour in the ring that's waited for isn't always to blame.
TEST(Deadline, NamesWhoDidntComeThroughOthers) {
  ExpectNamed(
      {.ranks = 4, .settings = {"TRNCCL_ALGORITHM=all_reduce:ring"}},
      [](trncclComm_t comm, int) { return AllReduceOf(comm, 1000); },
      "all_reduce #2");
}

// The root has done its part, and fails in the next call; the leaf waits for
// data that the one between them never passes on.
TEST(Deadline, EndsThoseWhoAreACallBehind) {
  RunRanks({.ranks = 4, .settings = {"TRNCCL_ALGORITHM=broadcast:binomial"}},
           [](trncclComm_t comm, int rank) {
             EXPECT_TRUE(Works(comm));
             if (rank == 2) {
               usleep(3'000'000);
               return;
             }
             std::array<float, 4> value = {};
             const Outcome outcome = OutcomeOf([&] {
               return trncclBroadcast(value.data(), value.data(), value.size(),
                                      trncclFloat32, 0, comm, nullptr);
             });
             if (rank != 3) {
               EXPECT_CALL_OK(outcome.result);
               EXPECT_CALL_OK(trncclCommSetTimeout(comm, 200));
               EXPECT_EQ(trncclBarrier(comm, nullptr), trncclTimeout);
               return;
             }
             EXPECT_EQ(outcome.result, trncclRemoteError);
             EXPECT_TRUE(Says(outcome, {"broadcast #2", "barrier #3",
                                        "origin: rank 2 (host "}));
             EXPECT_LT(outcome.took_ms, kSoonMs);
           });
}

TEST(Deadline, NamesWhoDidntComeToTheEngine) {
  ExpectNamed(
      {.ranks = 3, .settings = {"TRNCCL_ENGINE_MIN_BYTES=1"}},
      [](trncclComm_t comm, int) {
        void* buffer = nullptr;
        EXPECT_CALL_OK(trncclMemAlloc(&buffer, 400));
        const trncclResult_t result = trncclAllReduce(
            buffer, buffer, 100, trncclFloat32, trncclSum, comm, nullptr);
        EXPECT_CALL_OK(trncclMemFree(buffer));
        return result;
      },
      "all_reduce #2");
}

TEST(Deadline, NamesWhoDidntSend) {
  ExpectNamed(
      {.ranks = 2},
      [](trncclComm_t comm, int rank) {
        std::array<float, 4> values = {};
        return trncclRecv(values.data(), 4, trncclFloat32, 1 - rank, 5, nullptr,
                          comm, nullptr);
      },
      "receive of up to 16 bytes");
}

TEST(Deadline, TellsWhichOtherCallAPeerIsIn) {
  std::atomic<bool> receives = false;
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    EXPECT_TRUE(Works(comm));
    if (rank == 1) {
      std::array<float, 4> values = {};
      trncclRequest_t request = nullptr;
      ASSERT_CALL_OK(trncclRecv(values.data(), 4, trncclFloat32, 0, 5, nullptr,
                                comm, &request));
      receives.store(true);
      EXPECT_EQ(trncclRequestWait(request, TRNCCL_WAIT_FOREVER), trncclTimeout);
      EXPECT_CALL_OK(trncclRequestFree(request));
      return;
    }
    while (!receives.load()) sched_yield();
    EXPECT_CALL_OK(trncclCommSetTimeout(comm, 200));
    const Outcome outcome = OutcomeOf([&] { return AllReduceOf(comm, 4); });
    EXPECT_EQ(outcome.result, trncclTimeout);
    EXPECT_TRUE(Says(outcome, {"all_reduce #2", "rank 1 (host ",
                               "in recv #1 from rank 0 (float32, count 4) for "
                               "0."}));
  });
}

// Patience changes nothing: the call goes on and ends well.
TEST(Deadline, IsNotAWaitersPatience) {
  std::atomic<bool> waited = false;
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    trncclRequest_t request = nullptr;
    if (rank == 1) {
      while (!waited.load()) sched_yield();
    }
    ASSERT_CALL_OK(trncclBarrier(comm, &request));
    if (rank == 0) {
      EXPECT_EQ(trncclRequestWait(request, 50), trncclInProgress);
      waited.store(true);
    }
    EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
    EXPECT_CALL_OK(trncclRequestFree(request));
    EXPECT_TRUE(Works(comm));
  });
}

// A call has the deadline that was set when it began.
TEST(Deadline, IsThatOfTheTimeOfTheCall) {
  std::atomic<bool> set = false;
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    trncclRequest_t request = nullptr;
    if (rank == 0) {
      ASSERT_CALL_OK(trncclBarrier(comm, &request));
      EXPECT_CALL_OK(trncclCommSetTimeout(comm, 1));
      EXPECT_EQ(trncclRequestWait(request, 50), trncclInProgress);
      set.store(true);
    } else {
      while (!set.load()) sched_yield();
      ASSERT_CALL_OK(trncclBarrier(comm, &request));
    }
    EXPECT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
    EXPECT_CALL_OK(trncclRequestFree(request));
  });
}

}  // namespace
}  // namespace trnccl
