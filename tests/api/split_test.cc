// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

// The communicator's members, as the ranks that they have in the parent.
std::vector<int> MembersOf(trncclComm_t comm, int parent_rank) {
  int ranks = 0;
  EXPECT_CALL_OK(trncclCommCount(comm, &ranks));
  std::vector<int> members(ranks, -1);
  EXPECT_CALL_OK(trncclAllGather(&parent_rank, members.data(), 1, trncclInt32,
                                 comm, nullptr));
  return members;
}

void Destroy(trncclComm_t comm) { EXPECT_CALL_OK(trncclCommDestroy(comm)); }

TEST(Split, TakesAnyColorFromZeroToTheLargest) {
  RunRanks({.ranks = 4}, [](trncclComm_t comm, int rank) {
    trncclComm_t child = nullptr;
    const int color = rank < 2 ? 0 : INT_MAX;
    ASSERT_CALL_OK(trncclCommSplit(comm, color, 0, &child, nullptr));
    EXPECT_EQ(MembersOf(child, rank),
              (rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}));
    Destroy(child);
  });
}

TEST(Split, WithoutAColorGivesNone) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    trncclComm_t child = nullptr;
    const int color = rank == 1 ? TRNCCL_SPLIT_NOCOLOR : 7;
    ASSERT_CALL_OK(trncclCommSplit(comm, color, 0, &child, nullptr));
    ASSERT_EQ(child == nullptr, rank == 1);
    if (child == nullptr) return;
    EXPECT_EQ(MembersOf(child, rank), (std::vector<int>{0, 2}));
    Destroy(child);
  });
}

TEST(Split, OrdersByKeyAndThenByRank) {
  RunRanks({.ranks = 5}, [](trncclComm_t comm, int rank) {
    // Keys by rank; -9 and INT_MAX are as good as any.
    constexpr int kKeys[] = {3, -9, 3, INT_MAX, -9};
    trncclComm_t child = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(comm, 1, kKeys[rank], &child, nullptr));
    EXPECT_EQ(MembersOf(child, rank), (std::vector<int>{1, 4, 0, 2, 3}));
    int own = -1;
    ASSERT_CALL_OK(trncclCommUserRank(child, &own));
    EXPECT_EQ(MembersOf(child, rank)[own], rank);
    Destroy(child);
  });
}

// Children of children, and children that outlive all their ancestors.
TEST(Split, NestsAndOutlivesItsParent) {
  RunThreads(4, [](trncclUniqueId id, int rank) {
    trncclComm_t world = nullptr;
    ASSERT_CALL_OK(trncclCommInitRank(&world, 4, id, rank));
    trncclComm_t half = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(world, rank / 2, -rank, &half, nullptr));
    trncclComm_t alone = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(half, rank, 0, &alone, nullptr));
    trncclComm_t again = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(half, 0, rank, &again, nullptr));
    Destroy(world);
    Destroy(half);
    int own = -1;
    ASSERT_CALL_OK(trncclCommUserRank(again, &own));
    EXPECT_EQ(own, rank % 2);
    for (const EachCall& call : EveryCollective({2, own}, 10'000)) {
      ASSERT_CALL_OK(call.issue(again, nullptr));
      EXPECT_TRUE(call.is_right()) << call.name;
    }
    for (const EachCall& call : EveryCollective({1, 0}, 100)) {
      ASSERT_CALL_OK(call.issue(alone, nullptr));
      EXPECT_TRUE(call.is_right()) << call.name;
    }
    Destroy(alone);
    Destroy(again);
  });
}

TEST(Split, LeavesParentAndChildrenIndependent) {
  constexpr int kRanks = 4;
  RunRanks({.ranks = kRanks}, [](trncclComm_t world, int rank) {
    trncclComm_t half = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(world, rank % 2, 0, &half, nullptr));
    for (int round = 0; round < 30; ++round) {
      std::vector<EachCall> wide = EveryCollective({kRanks, rank}, 100);
      std::vector<EachCall> narrow = EveryCollective({2, rank / 2}, 100);
      for (size_t i = 0; i < wide.size(); ++i) {
        // Some ranks call the child first, others the parent.
        trncclRequest_t request = nullptr;
        const bool child_first = (rank + round) % 3 == 0;
        const EachCall& first = child_first ? narrow[i] : wide[i];
        const EachCall& second = child_first ? wide[i] : narrow[i];
        ASSERT_CALL_OK(first.issue(child_first ? half : world, &request));
        ASSERT_CALL_OK(second.issue(child_first ? world : half, nullptr));
        ASSERT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
        ASSERT_CALL_OK(trncclRequestFree(request));
        ASSERT_TRUE(wide[i].is_right() && narrow[i].is_right());
      }
    }
    Destroy(half);
  });
}

// Each rank splits four parents at once, each from a thread of its own.
TEST(Split, WorksFromSeveralThreadsAtOnce) {
  constexpr int kRanks = 2;
  constexpr int kParents = 4;
  RunRanks({.ranks = kRanks}, [](trncclComm_t world, int rank) {
    std::vector<trncclComm_t> parents(kParents);
    for (trncclComm_t& parent : parents)
      ASSERT_CALL_OK(trncclCommSplit(world, 0, rank, &parent, nullptr));
    std::vector<std::thread> threads;
    for (trncclComm_t parent : parents) {
      threads.emplace_back([parent, rank] {
        for (int round = 0; round < 5; ++round) {
          trncclComm_t child = nullptr;
          ASSERT_CALL_OK(trncclCommSplit(parent, round, 0, &child, nullptr));
          EXPECT_EQ(MembersOf(child, rank), (std::vector<int>{0, 1}));
          Destroy(child);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (trncclComm_t parent : parents) Destroy(parent);
  });
}

}  // namespace
}  // namespace trnccl
