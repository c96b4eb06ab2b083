// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Communicators that go on after a loss, and ones that newcomers join: by
// processes that are killed, and by threads.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"
#include "tests/faults/processes.h"

namespace trnccl {
namespace {

trncclResult_t Barrier(trncclComm_t comm) {
  return trncclBarrier(comm, nullptr);
}

int RankIn(trncclComm_t comm) {
  int rank = -1;
  EXPECT_CALL_OK(trncclCommUserRank(comm, &rank));
  return rank;
}

// Makes a smaller one and says how its sums are.
Outcome GoOnWithout(trncclComm_t comm, const std::vector<int>& lost) {
  trncclComm_t rest = nullptr;
  Outcome outcome = OutcomeOf([&] {
    return trncclCommShrink(comm, lost.data(), static_cast<int>(lost.size()),
                            &rest, nullptr, TRNCCL_SHRINK_DEFAULT);
  });
  if (outcome.result != trncclSuccess) return outcome;
  if (!Works(rest)) outcome = {.result = trncclInternalError, .text = "wrong"};
  EXPECT_CALL_OK(trncclCommDestroy(rest));
  return outcome;
}

class AKilledRank : public ::testing::TestWithParam<int> {};

TEST_P(AKilledRank, IsLeftOutByTheOthers) {
  const int victim = GetParam();
  Processes ranks(4, [victim](Processes& all, int rank) {
    trncclComm_t comm = all.Init(rank, {});
    if (!Works(comm)) _exit(1);
    all.Reach(rank, 1);
    if (rank == victim) {
      for (;;) pause();
    }
    const Outcome lost = OutcomeOf([&] { return Barrier(comm); });
    if (lost.result == trncclSuccess) _exit(1);
    all.Report(rank, GoOnWithout(comm, {victim}));
    trncclCommDestroy(comm);
  });
  ranks.Await(victim, 1);
  kill(ranks.pid(victim), SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const Outcome outcome = ranks.Result(rank);
    EXPECT_EQ(outcome.result, trncclSuccess) << rank << ": " << outcome.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Victims, AKilledRank, ::testing::Values(0, 1, 3));

TEST(Shrinking, KeepsTheOrderOfThoseWhoStay) {
  RunRanks({.ranks = 5}, [](trncclComm_t comm, int rank) {
    if (rank == 1 || rank == 4) return;
    const std::vector<int> excluded = {4, 1};
    trncclComm_t rest = nullptr;
    ASSERT_CALL_OK(trncclCommShrink(comm, excluded.data(), 2, &rest, nullptr,
                                    TRNCCL_SHRINK_DEFAULT));
    EXPECT_EQ(RankIn(rest), rank == 0 ? 0 : rank - 1);
    EXPECT_TRUE(Works(rest));
    EXPECT_CALL_OK(trncclCommDestroy(rest));
  });
}

TEST(Shrinking, GoesDownToOneAndOfWhatWasSplitOrShrunk) {
  RunRanks({.ranks = 4}, [](trncclComm_t comm, int rank) {
    trncclComm_t half = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(comm, rank % 2, rank, &half, nullptr));
    if (rank < 2) {
      const int other = 1;
      trncclComm_t alone = nullptr;
      ASSERT_CALL_OK(trncclCommShrink(half, &other, 1, &alone, nullptr,
                                      TRNCCL_SHRINK_DEFAULT));
      EXPECT_TRUE(Works(alone));
      EXPECT_CALL_OK(trncclCommDestroy(alone));
    }
    trncclComm_t three = nullptr;
    const int last = 3;
    if (rank != last) {
      ASSERT_CALL_OK(trncclCommShrink(comm, &last, 1, &three, nullptr,
                                      TRNCCL_SHRINK_DEFAULT));
      const int first = 0;
      if (rank != first) {
        trncclComm_t two = nullptr;
        ASSERT_CALL_OK(trncclCommShrink(three, &first, 1, &two, nullptr,
                                        TRNCCL_SHRINK_DEFAULT));
        EXPECT_TRUE(Works(two));
        EXPECT_CALL_OK(trncclCommDestroy(two));
      }
    }
    if (three != nullptr) {
      EXPECT_CALL_OK(trncclCommDestroy(three));
    }
    EXPECT_CALL_OK(trncclCommDestroy(half));
  });
}

TEST(Shrinking, WorksAgainAfterItFailed) {
  RunRanks({.ranks = 4}, [](trncclComm_t comm, int rank) {
    if (rank >= 2) return;  // Rank 2 is lost as well, which nobody knows yet.
    const std::vector<int> lost = {3, 2};
    const char* soon = "TRNCCL_BOOTSTRAP_TIMEOUT_MS=1500";
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.settings = &soon;
    config.settings_count = 1;
    trncclComm_t rest = nullptr;
    const Outcome outcome = OutcomeOf([&] {
      return trncclCommShrink(comm, lost.data(), 1, &rest, &config,
                              TRNCCL_SHRINK_ABORT);
    });
    EXPECT_EQ(outcome.result, trncclTimeout) << outcome.text;
    EXPECT_TRUE(Says(outcome, {"shrink to ranks 0, 1, 2", "rank 2"}));
    ASSERT_CALL_OK(trncclCommShrink(comm, lost.data(), 2, &rest, nullptr,
                                    TRNCCL_SHRINK_DEFAULT));
    EXPECT_TRUE(Works(rest));
    EXPECT_CALL_OK(trncclCommDestroy(rest));
  });
}

TEST(Shrinking, ThatRanksMeanDifferentlyIsAnError) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    const int excluded = rank == 0 ? 2 : 1;
    if (rank == 1) return;
    trncclComm_t rest = nullptr;
    const Outcome outcome = OutcomeOf([&] {
      return trncclCommShrink(comm, &excluded, 1, &rest, nullptr,
                              TRNCCL_SHRINK_DEFAULT);
    });
    EXPECT_NE(outcome.result, trncclSuccess);
    EXPECT_TRUE(Says(outcome, {"members=0,1", "members=0,2"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(Shrinking, RefusesWhatCantBeMeant) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    trncclComm_t rest = nullptr;
    for (const int excluded : {-1, 2, rank}) {
      EXPECT_EQ(trncclCommShrink(comm, &excluded, 1, &rest, nullptr, 0),
                trncclInvalidArgument);
    }
    EXPECT_EQ(trncclCommShrink(comm, nullptr, 0, &rest, nullptr, 4),
              trncclInvalidArgument);
    EXPECT_EQ(trncclCommShrink(comm, nullptr, 1, &rest, nullptr, 0),
              trncclInvalidArgument);
    EXPECT_TRUE(Works(comm));
  });
}

TEST(Growing, TakesNewcomersIn) {
  trncclUniqueId wide;
  ASSERT_CALL_OK(trncclGetUniqueId(&wide));
  RunThreads(5, [&](trncclUniqueId id, int rank) {
    trncclComm_t comm = nullptr;
    trncclComm_t grown = nullptr;
    if (rank < 3) {
      ASSERT_CALL_OK(trncclCommInitRank(&comm, 3, id, rank));
      ASSERT_CALL_OK(trncclCommGrow(comm, 5, rank == 1 ? &wide : nullptr, -1,
                                    &grown, nullptr));
      EXPECT_TRUE(Works(comm));
    } else {
      ASSERT_CALL_OK(trncclCommGrow(nullptr, 5, &wide, rank, &grown, nullptr));
    }
    EXPECT_EQ(RankIn(grown), rank);
    EXPECT_TRUE(Works(grown));
    EXPECT_CALL_OK(trncclCommDestroy(grown));
    if (comm != nullptr) {
      EXPECT_CALL_OK(trncclCommDestroy(comm));
    }
  });
}

TEST(Growing, NeedsOneIdAndMoreRanks) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    trncclComm_t grown = nullptr;
    EXPECT_EQ(trncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr),
              trncclInvalidArgument);
    trncclUniqueId mine;
    ASSERT_CALL_OK(trncclGetUniqueId(&mine));
    EXPECT_EQ(trncclCommGrow(comm, 3, &mine, -1, &grown, nullptr),
              trncclInvalidArgument);
    EXPECT_EQ(trncclCommGrow(comm, 2, &mine, -1, &grown, nullptr),
              trncclInvalidArgument);
    EXPECT_EQ(trncclCommGrow(comm, 3, &mine, rank, &grown, nullptr),
              trncclInvalidArgument);
    EXPECT_TRUE(Works(comm));
  });
}

}  // namespace
}  // namespace trnccl
