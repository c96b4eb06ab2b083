// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks that won't make the call that others wait in: their own was refused,
// or they have left. The others learn of it soon, not by their deadline.
#include <unistd.h>

#include <array>
#include <atomic>

#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

trncclResult_t Sum(trncclComm_t comm) {
  std::array<float, 100> values = {};
  return trncclAllReduce(values.data(), values.data(), values.size(),
                         trncclFloat32, trncclSum, comm, nullptr);
}

// The average of booleans isn't defined.
trncclResult_t Refused(trncclComm_t comm) {
  std::array<uint8_t, 100> values = {};
  return trncclAllReduce(values.data(), values.data(), values.size(),
                         trncclBool, trncclAvg, comm, nullptr);
}

TEST(ARefusedCall, EndsThoseWhoWaitForIt) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) {
      EXPECT_EQ(Refused(comm), trncclInvalidArgument);
      trncclResult_t error = trncclSuccess;
      const Outcome outcome = OutcomeOf([&] {
        while (error == trncclSuccess) {
          EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
          usleep(1'000);
        }
        return Sum(comm);
      });
      EXPECT_TRUE(Says(outcome, {"origin: rank 1", "refused"}));
      EXPECT_LT(outcome.took_ms, kSoonMs);
      return;
    }
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1", "refused its own call", "avg",
                               "all_reduce #2", "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(ARefusedCall, MayBeMadeAfterAll) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    for (int i = 0; i < 3; ++i) {
      if (rank == i) {
        EXPECT_EQ(Refused(comm), trncclInvalidArgument);
        usleep(100'000);
      }
      ASSERT_CALL_OK(Sum(comm)) << "rank " << rank << ", call " << i;
    }
  });
}

// Made after all, it's not what others wait for.
TEST(ARefusedCall, IsForgottenOnceItsMade) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    if (rank == 0) {
      EXPECT_EQ(Refused(comm), trncclInvalidArgument);
    }
    if (rank == 1) usleep(1'500'000);
    std::array<float, 4> value = {};
    EXPECT_CALL_OK(trncclBroadcast(value.data(), value.data(), value.size(),
                                   trncclFloat32, 0, comm, nullptr));
    EXPECT_CALL_OK(Sum(comm));
  });
}

TEST(ARefusedCall, OfAllRanksEndsNothing) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    EXPECT_EQ(Refused(comm), trncclInvalidArgument);
    if (rank == 2) usleep(1'500'000);
    EXPECT_CALL_OK(Sum(comm));
  });
}

TEST(ARefusedCall, OfAGroupIsAnnounced) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    if (rank == 1) {
      EXPECT_CALL_OK(trncclGroupStart());
      EXPECT_EQ(Refused(comm), trncclInvalidArgument);
      EXPECT_EQ(trncclGroupEnd(), trncclInvalidArgument);
      return;
    }
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_TRUE(Says(outcome, {"rank 1", "refused", "avg"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(ARefusedCall, OfAnotherLayerIsAnnouncedByIt) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    EXPECT_CALL_OK(trncclCommAnnounceRefusal(comm, "tested"));
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) {
      EXPECT_CALL_OK(trncclCommAnnounceRefusal(comm, "a shape of its own"));
      EXPECT_EQ(trncclCommAnnounceRefusal(comm, nullptr),
                trncclInvalidArgument);
      usleep(1'500'000);
      return;
    }
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_TRUE(Says(outcome, {"rank 1", "refused", "a shape of its own"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(ARankThatLeft, EndsCallsThatItDoesNotMake) {
  std::atomic<int> done = 0;
  RunRanks({.ranks = 3}, [&](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) return;  // destroys it
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1", "has destroyed its communicator",
                               "after 2 collectives", "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
    ++done;
  });
  EXPECT_EQ(done, 2);
}

TEST(ARankThatLeft, EndsReceivesFromIt) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) return;
    float value = 0;
    const Outcome outcome = OutcomeOf([&] {
      return trncclRecv(&value, 1, trncclFloat32, 1, 0, nullptr, comm, nullptr);
    });
    EXPECT_TRUE(Says(outcome, {"rank 1", "has destroyed its communicator"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// What it has sent before counts.
TEST(ARankThatLeft, HasDoneWhatItDid) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    float value = 0;
    if (rank == 1) {
      value = 7;
      EXPECT_CALL_OK(trncclSend(&value, 1, trncclFloat32, 0, 0, comm, nullptr));
      EXPECT_CALL_OK(Sum(comm));
      return;
    }
    if (rank == 0) usleep(300'000);
    EXPECT_CALL_OK(Sum(comm));
    if (rank != 0) return;
    usleep(300'000);
    EXPECT_CALL_OK(
        trncclRecv(&value, 1, trncclFloat32, 1, 0, nullptr, comm, nullptr));
    EXPECT_EQ(value, 7);
  });
}

}  // namespace
}  // namespace trnccl
