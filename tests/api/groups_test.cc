// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Groups: many calls, one submission.
#include <algorithm>
#include <array>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

// Runs `body` with nothing but the group's end to wait for its calls.
template <typename Body>
trncclResult_t InGroup(const Body& body) {
  EXPECT_CALL_OK(trncclGroupStart());
  body();
  return trncclGroupEnd();
}

TEST(Groups, HoldEveryCollectiveAndMessages) {
  constexpr int kRanks = 3;
  RunRanks({.ranks = kRanks}, [](trncclComm_t comm, int rank) {
    const int next = (rank + 1) % kRanks;
    const int previous = (rank + kRanks - 1) % kRanks;
    for (const size_t count : {1, 10'000}) {
      const std::vector<EachCall> calls =
          EveryCollective({kRanks, rank}, count);
      std::vector<uint32_t> sent(count, ValueOf(rank, count));
      std::vector<uint32_t> received(count);
      trncclStatus_t status;
      trncclRequest_t request = nullptr;
      ASSERT_CALL_OK(InGroup([&] {
        EXPECT_CALL_OK(trncclRecv(received.data(), count, trncclUint32,
                                  previous, 1, &status, comm, nullptr));
        for (const EachCall& call : calls)
          EXPECT_CALL_OK(call.issue(comm, nullptr));
        EXPECT_CALL_OK(trncclSend(sent.data(), count, trncclUint32, next, 1,
                                  comm, &request));
      }));
      for (const EachCall& call : calls)
        EXPECT_TRUE(call.is_right()) << call.name;
      EXPECT_EQ(received,
                std::vector<uint32_t>(count, ValueOf(previous, count)));
      EXPECT_EQ(status.count, count);
      ASSERT_CALL_OK(ResultByItself(request));
    }
  });
}

// Both ranks call send first, or receive first: in a group neither can block.
TEST(Groups, ExchangesWorkInEitherOrder) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    for (const size_t count : {size_t{2}, size_t{1} << 20}) {
      for (const bool send_first : {true, false}) {
        std::vector<uint32_t> sent(count, ValueOf(rank, count));
        std::vector<uint32_t> received(count);
        const auto send = [&] {
          EXPECT_CALL_OK(trncclSend(sent.data(), count, trncclUint32, 1 - rank,
                                    0, comm, nullptr));
        };
        ASSERT_CALL_OK(InGroup([&] {
          if (send_first) send();
          EXPECT_CALL_OK(trncclRecv(received.data(), count, trncclUint32,
                                    1 - rank, 0, nullptr, comm, nullptr));
          if (!send_first) send();
        }));
        ASSERT_EQ(received,
                  std::vector<uint32_t>(count, ValueOf(1 - rank, count)));
      }
    }
  });
}

TEST(Groups, NestAndStartAtTheOutermostEnd) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    uint32_t first = ValueOf(rank, 1);
    uint32_t second = ValueOf(rank, 2);
    trncclRequest_t request = nullptr;
    ASSERT_CALL_OK(InGroup([&] {
      EXPECT_CALL_OK(InGroup([&] {
        EXPECT_CALL_OK(trncclAllReduce(&first, &first, 1, trncclUint32,
                                       trncclSum, comm, nullptr));
      }));
      EXPECT_EQ(first, ValueOf(rank, 1)) << "it started too early";
      EXPECT_CALL_OK(trncclAllReduce(&second, &second, 1, trncclUint32,
                                     trncclSum, comm, &request));
      EXPECT_EQ(request, nullptr);
    }));
    EXPECT_EQ(first, ValueOf(0, 1) + ValueOf(1, 1));
    ASSERT_CALL_OK(ResultByItself(request));
    EXPECT_EQ(second, ValueOf(0, 2) + ValueOf(1, 2));
  });
  EXPECT_EQ(trncclGroupEnd(), trncclInvalidUsage);
}

TEST(Groups, SpanCommunicatorsInAnyOrder) {
  constexpr int kRanks = 3;
  RunRanks({.ranks = kRanks}, [](trncclComm_t world, int rank) {
    std::vector<trncclComm_t> comms(kRanks);
    for (trncclComm_t& comm : comms)
      ASSERT_CALL_OK(trncclCommSplit(world, 0, rank, &comm, nullptr));
    for (int round = 0; round < 20; ++round) {
      std::vector<EachCall> calls;
      ASSERT_CALL_OK(InGroup([&] {
        for (int i = 0; i < kRanks; ++i) {
          trncclComm_t comm = comms[(i + rank) % kRanks];
          for (EachCall& call : EveryCollective({kRanks, rank}, 200)) {
            EXPECT_CALL_OK(call.issue(comm, nullptr));
            calls.push_back(std::move(call));
          }
        }
      }));
      for (const EachCall& call : calls) ASSERT_TRUE(call.is_right());
    }
    for (trncclComm_t comm : comms) ASSERT_CALL_OK(trncclCommDestroy(comm));
  });
}

TEST(Groups, ARefusedCallRefusesTheGroupAndNothingIsLost) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    uint32_t value = ValueOf(rank, 0);
    uint32_t sum = 7;
    trncclRequest_t request = nullptr;
    EXPECT_EQ(InGroup([&] {
                EXPECT_CALL_OK(trncclAllReduce(&value, &sum, 1, trncclUint32,
                                               trncclSum, comm, nullptr));
                EXPECT_EQ(trncclAllReduce(&value, &sum, 1, trncclUint32,
                                          trncclAvg + 100, comm, nullptr),
                          trncclInvalidArgument);
                EXPECT_CALL_OK(trncclBarrier(comm, &request));
              }),
              trncclInvalidArgument);
    EXPECT_EQ(sum, 7U) << "a call of the refused group ran";
    EXPECT_EQ(request, nullptr);
    // The communicator goes on as if nothing had been.
    ASSERT_CALL_OK(trncclAllReduce(&value, &sum, 1, trncclUint32, trncclSum,
                                   comm, nullptr));
    EXPECT_EQ(sum, ValueOf(0, 0) + ValueOf(1, 0));
  });
}

// A call that fails takes no other of its group along, and the group ends only
// once all are complete.
TEST(Groups, AFailedMessageLeavesTheRestComplete) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    std::array<uint32_t, 4> sent = {};
    std::array<uint32_t, 2> room = {};
    constexpr size_t kCount = 300'000;
    std::vector<uint32_t> values(kCount, ValueOf(rank, 5));
    trncclRequest_t request = nullptr;
    EXPECT_EQ(
        InGroup([&] {
          EXPECT_CALL_OK(trncclRecv(room.data(), room.size(), trncclUint32,
                                    1 - rank, 0, nullptr, comm, nullptr));
          EXPECT_CALL_OK(trncclSend(sent.data(), sent.size(), trncclUint32,
                                    1 - rank, 0, comm, &request));
          EXPECT_CALL_OK(trncclAllReduce(values.data(), values.data(), kCount,
                                         trncclUint32, trncclSum, comm,
                                         nullptr));
        }),
        trncclInvalidArgument);
    const uint32_t sum = ValueOf(0, 5) + ValueOf(1, 5);
    EXPECT_EQ(values, std::vector<uint32_t>(kCount, sum));
    ASSERT_NE(request, nullptr);
    ResultByItself(request);
    EXPECT_CALL_OK(trncclBarrier(comm, nullptr));
  });
}

TEST(Groups, WithAFailedCommunicatorStartNothing) {
  RunRanks({.ranks = 2}, [](trncclComm_t world, int rank) {
    trncclComm_t failed = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(world, 0, rank, &failed, nullptr));
    ASSERT_CALL_OK(trncclCommAbort(failed));
    uint32_t value = 3;
    EXPECT_EQ(InGroup([&] {
                EXPECT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclUint32,
                                               trncclSum, world, nullptr));
                EXPECT_CALL_OK(trncclBarrier(failed, nullptr));
              }),
              trncclAborted);
    EXPECT_EQ(value, 3U);
    ASSERT_CALL_OK(trncclBarrier(world, nullptr));
    ASSERT_CALL_OK(trncclCommDestroy(failed));
  });
}

}  // namespace
}  // namespace trnccl
