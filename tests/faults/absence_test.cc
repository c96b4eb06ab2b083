// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Ranks that won't make the call that others wait in: their own was refused,
// or they have left. The others learn of it soon, not by their deadline.
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

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

// On rank 1, which refused a call that others waited for.
void ExpectFailureByOwnRefusal(trncclComm_t comm) {
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
}

TEST(ARefusedCall, EndsThoseWhoWaitForIt) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) {
      EXPECT_EQ(Refused(comm), trncclInvalidArgument);
      ExpectFailureByOwnRefusal(comm);
      return;
    }
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1", "refused its own call", "avg",
                               "all_reduce #2", "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// They have done their part of the call that was refused.
TEST(ARefusedCall, EndsThoseWhoWaitInTheNextOne) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    std::array<float, 4> value = {};
    const auto broadcast = [&](int root) {
      return trncclBroadcast(value.data(), value.data(), value.size(),
                             trncclFloat32, root, comm, nullptr);
    };
    if (rank == 1) {
      EXPECT_EQ(broadcast(9), trncclInvalidArgument);
      usleep(2'500'000);
      return;
    }
    ASSERT_CALL_OK(broadcast(0));
    const Outcome outcome = OutcomeOf([&] { return Sum(comm); });
    EXPECT_EQ(outcome.result, trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1", "refused its own call", "root",
                               "all_reduce #3", "origin: rank 1"}));
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
    if (rank == 0) usleep(1'500'000);  // in no call
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

// Too long to be sent before its receive is there.
constexpr size_t kLong = 100'000;

trncclResult_t Send(trncclComm_t comm, int peer, int64_t tag) {
  const std::vector<float> values(kLong);
  return trncclSend(values.data(), kLong, trncclFloat32, peer, tag, comm,
                    nullptr);
}

trncclResult_t Receive(trncclComm_t comm, int peer, int64_t tag) {
  std::vector<float> values(kLong);
  return trncclRecv(values.data(), kLong, trncclFloat32, peer, tag, nullptr,
                    comm, nullptr);
}

trncclResult_t RefusedSend(trncclComm_t comm, int peer, int64_t tag) {
  return trncclSend(nullptr, 4, trncclFloat32, peer, tag, comm, nullptr);
}

trncclResult_t RefusedReceive(trncclComm_t comm, int peer, int64_t tag) {
  return trncclRecv(nullptr, 4, trncclFloat32, peer, tag, nullptr, comm,
                    nullptr);
}

struct Waiting {
  const char* name;
  trncclResult_t (*refused)(trncclComm_t comm, int peer, int64_t tag);
  trncclResult_t (*matching)(trncclComm_t comm, int peer, int64_t tag);
  int peer;  // of the matching one
  int64_t tag;
  std::vector<std::string> says;
};

class ARefusedMessageOfAKind : public testing::TestWithParam<Waiting> {};

// Whether it's refused before or after.
TEST_P(ARefusedMessageOfAKind, EndsTheOneThatWaitsForIt) {
  for (const bool refused_first : {false, true}) {
    RunRanks({.ranks = 3}, [&](trncclComm_t comm, int rank) {
      ASSERT_CALL_OK(Sum(comm));
      if (rank == 1) {
        if (!refused_first) usleep(300'000);
        EXPECT_EQ(GetParam().refused(comm, 0, 5), trncclInvalidArgument);
      }
      if (rank == 0) {
        if (refused_first) usleep(300'000);
        const Outcome outcome = OutcomeOf([&] {
          return GetParam().matching(comm, GetParam().peer, GetParam().tag);
        });
        EXPECT_EQ(outcome.result, trncclRemoteError);
        EXPECT_TRUE(Says(outcome, GetParam().says));
        EXPECT_TRUE(Says(outcome, {"rank 0: ", "rank 1: ", "tag 5",
                                   "has refused its own call", "buffer is null",
                                   "origin: rank 1"}));
        EXPECT_LT(outcome.took_ms, kSoonMs);
        return;
      }
      // As after a refused collective, the communicator has failed.
      ExpectFailureByOwnRefusal(comm);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, ARefusedMessageOfAKind,
    testing::Values(
        Waiting{"Send", RefusedSend, Receive, 1, 5, {"receive", "send of"}},
        Waiting{"SendToAnyTag",
                RefusedSend,
                Receive,
                1,
                TRNCCL_ANY_TAG,
                {"any tag", "send of"}},
        Waiting{"SendToAnySource",
                RefusedSend,
                Receive,
                TRNCCL_ANY_SOURCE,
                5,
                {"any rank", "send of"}},
        Waiting{"Receive", RefusedReceive, Send, 1, 5, {"send", "receive of"}}),
    [](const auto& one) { return std::string(one.param.name); });

// Others' messages, other tags, and what was under way before.
TEST(ARefusedMessage, EndsNoOther) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    if (rank == 1) {
      EXPECT_EQ(RefusedSend(comm, 0, 5), trncclInvalidArgument);
      EXPECT_EQ(RefusedReceive(comm, 2, 5), trncclInvalidArgument);
      for (const int peer : {-2, 3, 1 << 30})
        EXPECT_EQ(RefusedSend(comm, peer, 7), trncclInvalidArgument);
      EXPECT_EQ(RefusedReceive(comm, 1, 7), trncclInvalidArgument);
      usleep(1'500'000);
      EXPECT_CALL_OK(Send(comm, 0, 6));
    }
    if (rank == 2) {
      usleep(1'500'000);
      EXPECT_CALL_OK(Send(comm, 0, 5));
    }
    if (rank == 0) {
      EXPECT_CALL_OK(Receive(comm, 2, 5));
      EXPECT_CALL_OK(Receive(comm, 1, 6));
    }
    EXPECT_TRUE(Works(comm));
  });
}

TEST(ARefusedMessage, MayBeMadeAfterAll) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (int i = 0; i < 2; ++i) {
      if (rank == 1) {
        EXPECT_EQ(RefusedSend(comm, 0, 5), trncclInvalidArgument);
        usleep(100'000);
        EXPECT_CALL_OK(Send(comm, 0, 5));
        // Forgotten, it's not what the next one waits for.
        usleep(1'500'000);
        EXPECT_CALL_OK(Send(comm, 0, 5));
        EXPECT_EQ(RefusedReceive(comm, 0, 5), trncclInvalidArgument);
        EXPECT_CALL_OK(Receive(comm, 0, 5));
      } else {
        EXPECT_CALL_OK(Receive(comm, 1, 5));
        EXPECT_CALL_OK(Receive(comm, 1, 5));
        EXPECT_CALL_OK(Send(comm, 1, 5));
      }
    }
    EXPECT_TRUE(Works(comm));
  });
}

TEST(ARefusedMessage, OfBothRanksEndsNothing) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    EXPECT_EQ(rank == 0 ? RefusedSend(comm, 1, 0) : RefusedReceive(comm, 0, 0),
              trncclInvalidArgument);
    ASSERT_CALL_OK(Sum(comm));
    if (rank == 1) usleep(1'500'000);
    EXPECT_CALL_OK(rank == 0 ? Send(comm, 1, 0) : Receive(comm, 0, 0));
    EXPECT_TRUE(Works(comm));
  });
}

// The peer has no room for the word of it, and this rank makes no more calls.
TEST(ARefusedMessage, IsToldOnceThereIsRoom) {
  std::atomic<bool> is_told = false;
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    constexpr int kMany = 2000;
    if (rank == 1) {
      // Of sends that nobody waits for: it must outlive them.
      static const std::array<float, 4> values = {};
      std::vector<trncclRequest_t> requests(kMany);
      for (trncclRequest_t& request : requests)
        ASSERT_CALL_OK(
            trncclSend(values.data(), 4, trncclFloat32, 0, 4, comm, &request));
      EXPECT_EQ(RefusedSend(comm, 0, 5), trncclInvalidArgument);
      for (trncclRequest_t request : requests)
        EXPECT_CALL_OK(trncclRequestFree(request));
      while (!is_told.load()) usleep(1'000);
      return;
    }
    usleep(300'000);
    for (int i = 0; i < kMany; ++i) EXPECT_CALL_OK(Receive(comm, 1, 4));
    const Outcome outcome = OutcomeOf([&] { return Receive(comm, 1, 5); });
    is_told.store(true);
    EXPECT_TRUE(Says(outcome, {"has refused its own call", "origin: rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

// With a bad call nothing of its group starts.
TEST(ARefusedMessage, TakesItsGroupAlong) {
  for (const bool collective : {false, true}) {
    RunRanks({.ranks = 3}, [&](trncclComm_t comm, int rank) {
      if (rank == 1) {
        EXPECT_CALL_OK(trncclGroupStart());
        EXPECT_CALL_OK(collective ? Sum(comm) : Send(comm, 2, 6));
        EXPECT_EQ(RefusedSend(comm, 0, 5), trncclInvalidArgument);
        EXPECT_EQ(trncclGroupEnd(), trncclInvalidArgument);
        return;
      }
      const Outcome outcome = OutcomeOf([&] {
        if (collective) return Sum(comm);
        return rank == 0 ? Receive(comm, 1, 5) : Receive(comm, 1, 6);
      });
      EXPECT_EQ(outcome.result, trncclRemoteError);
      EXPECT_TRUE(Says(outcome, {"rank 1", "refused", "buffer is null"}));
      EXPECT_LT(outcome.took_ms, kSoonMs);
    });
  }
}

TEST(ARefusedMessage, OfAnotherLayerIsAnnouncedByIt) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    if (rank == 1) {
      EXPECT_CALL_OK(
          trncclCommAnnounceRefusedSend(comm, 9, 5, "for no such rank"));
      EXPECT_EQ(trncclCommAnnounceRefusedSend(comm, 0, 5, nullptr),
                trncclInvalidArgument);
      EXPECT_CALL_OK(trncclCommAnnounceRefusedRecv(comm, TRNCCL_ANY_SOURCE, 5,
                                                   "a shape of its own"));
      usleep(1'500'000);
      return;
    }
    const Outcome outcome = OutcomeOf([&] { return Send(comm, 1, 5); });
    EXPECT_TRUE(Says(outcome, {"rank 1: receive from any rank, tag 5: ",
                               "refused", "a shape of its own"}));
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

TEST(ARankThatLeft, EndsReceivesFromAnyoneOnceItsTheLast) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(Sum(comm));
    float value = 0;
    if (rank == 1) return;
    if (rank == 2) {
      usleep(1'500'000);
      value = 7;
      EXPECT_CALL_OK(trncclSend(&value, 1, trncclFloat32, 0, 0, comm, nullptr));
      return;
    }
    const auto receive = [&] {
      return trncclRecv(&value, 1, trncclFloat32, TRNCCL_ANY_SOURCE, 0, nullptr,
                        comm, nullptr);
    };
    EXPECT_CALL_OK(receive());
    EXPECT_EQ(value, 7);
    const Outcome outcome = OutcomeOf(receive);
    EXPECT_TRUE(Says(outcome, {"has destroyed its communicator", "origin:"}));
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
