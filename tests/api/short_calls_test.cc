// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Small blocking calls that are made again and again take a way of their own
// (ccl/communicator/short.cc). It must be right for every collective, and
// refuse and fail as the first call does.
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ccl/trnccl.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

constexpr int kRounds = 150;
constexpr size_t kMaxCount = 200;

// Unique by round, rank and position; sums of a few stay exact.
int32_t Value(int round, int rank, size_t index) {
  return round * 100'003 + rank * 1'009 + static_cast<int32_t>(index);
}

struct Round {
  int number = 0;
  int ranks = 0;
  int rank = 0;
  size_t count = 0;
  int root = 0;
};

using Ints = std::vector<int32_t>;

Ints InputOf(const Round& round, int rank, size_t count) {
  Ints input(count);
  for (size_t i = 0; i < count; ++i) input[i] = Value(round.number, rank, i);
  return input;
}

Ints SumOf(const Round& round, size_t count) {
  Ints sum(count, 0);
  for (int rank = 0; rank < round.ranks; ++rank)
    for (size_t i = 0; i < count; ++i) sum[i] += Value(round.number, rank, i);
  return sum;
}

void CheckReductions(const Round& round, trncclComm_t comm) {
  const size_t all = round.count * static_cast<size_t>(round.ranks);
  Ints input = InputOf(round, round.rank, all);
  Ints output(round.count);
  const Ints sum = SumOf(round, all);
  const auto first = static_cast<ptrdiff_t>(round.count);
  ASSERT_CALL_OK(trncclAllReduce(input.data(), output.data(), round.count,
                                 trncclInt32, trncclSum, comm, nullptr));
  EXPECT_EQ(output, Ints(sum.begin(), sum.begin() + first));
  ASSERT_CALL_OK(trncclReduce(input.data(), output.data(), round.count,
                              trncclInt32, trncclSum, round.root, comm,
                              nullptr));
  if (round.rank == round.root) {
    EXPECT_EQ(output, Ints(sum.begin(), sum.begin() + first));
  }
  ASSERT_CALL_OK(trncclReduceScatter(input.data(), output.data(), round.count,
                                     trncclInt32, trncclSum, comm, nullptr));
  EXPECT_EQ(output, Ints(sum.begin() + round.rank * first,
                         sum.begin() + (round.rank + 1) * first));
  ASSERT_CALL_OK(trncclAllReduce(input.data(), input.data(), round.count,
                                 trncclInt32, trncclSum, comm, nullptr));
  EXPECT_EQ(Ints(input.begin(), input.begin() + first),
            Ints(sum.begin(), sum.begin() + first));
}

void CheckCopies(const Round& round, trncclComm_t comm) {
  const auto ranks = static_cast<size_t>(round.ranks);
  Ints gathered(round.count * ranks);
  Ints expected;
  for (int rank = 0; rank < round.ranks; ++rank) {
    const Ints input = InputOf(round, rank, round.count);
    expected.insert(expected.end(), input.begin(), input.end());
  }
  Ints input = InputOf(round, round.rank, round.count);
  ASSERT_CALL_OK(trncclAllGather(input.data(), gathered.data(), round.count,
                                 trncclInt32, comm, nullptr));
  EXPECT_EQ(gathered, expected);
  std::fill(gathered.begin(), gathered.end(), -1);
  const bool is_root = round.rank == round.root;
  ASSERT_CALL_OK(trncclGather(input.data(), is_root ? gathered.data() : nullptr,
                              round.count, trncclInt32, round.root, comm,
                              nullptr));
  if (is_root) {
    EXPECT_EQ(gathered, expected);
  }
  Ints output(round.count);
  ASSERT_CALL_OK(trncclScatter(is_root ? expected.data() : nullptr,
                               output.data(), round.count, trncclInt32,
                               round.root, comm, nullptr));
  EXPECT_EQ(output, input);
  ASSERT_CALL_OK(trncclBroadcast(input.data(), input.data(), round.count,
                                 trncclInt32, round.root, comm, nullptr));
  EXPECT_EQ(input, InputOf(round, round.root, round.count));
  ASSERT_CALL_OK(trncclAllToAll(expected.data(), gathered.data(), round.count,
                                trncclInt32, comm, nullptr));
  for (size_t peer = 0; peer < ranks; ++peer) {
    EXPECT_TRUE(std::equal(
        gathered.begin() + static_cast<ptrdiff_t>(peer * round.count),
        gathered.begin() + static_cast<ptrdiff_t>((peer + 1) * round.count),
        expected.begin() + static_cast<ptrdiff_t>(round.rank * round.count)));
  }
  ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
}

TEST(ShortCalls, AreRightHoweverOftenTheyAreMade) {
  const std::array<size_t, 5> counts = {1, 16, 24, 25, kMaxCount};
  for (const int ranks : {2, 3, 5}) {
    RunRanks({.ranks = ranks}, [&](trncclComm_t comm, int rank) {
      std::mt19937 random(7);  // alike on all ranks
      for (int number = 0; number < kRounds; ++number) {
        SCOPED_TRACE(number);
        const Round round = {.number = number,
                             .ranks = ranks,
                             .rank = rank,
                             .count = counts[random() % counts.size()],
                             .root = static_cast<int>(random() % ranks)};
        CheckReductions(round, comm);
        CheckCopies(round, comm);
      }
    });
  }
}

// Calls that leave the short way's conditions take the long one.
TEST(ShortCalls, MixWithAsynchronousOnesAndMessages) {
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    for (int number = 0; number < kRounds; ++number) {
      const Round round = {
          .number = number, .ranks = 2, .rank = rank, .count = 16};
      trncclRequest_t request = nullptr;
      Ints first = InputOf(round, rank, 16);
      Ints second = first;
      int32_t sent = number;
      int32_t received = -1;
      if (number % 3 == 0 && rank == 0) {
        ASSERT_CALL_OK(trncclSend(&sent, 1, trncclInt32, 1, 5, comm, nullptr));
      }
      if (number % 2 == 0) {
        ASSERT_CALL_OK(trncclAllReduce(first.data(), first.data(), 16,
                                       trncclInt32, trncclSum, comm, &request));
      }
      ASSERT_CALL_OK(trncclAllReduce(second.data(), second.data(), 16,
                                     trncclInt32, trncclSum, comm, nullptr));
      EXPECT_EQ(second, SumOf(round, 16));
      if (request != nullptr) {
        ASSERT_CALL_OK(trncclRequestWait(request, -1));
        ASSERT_CALL_OK(trncclRequestFree(request));
        EXPECT_EQ(first, SumOf(round, 16));
      }
      if (number % 3 == 0 && rank == 1) {
        ASSERT_CALL_OK(trncclRecv(&received, 1, trncclInt32, 0, 5, nullptr,
                                  comm, nullptr));
        EXPECT_EQ(received, number);
      }
    }
  });
}

// A loop of small calls must not keep a peer's messages from being taken.
TEST(ShortCalls, LetMessagesArriveMeanwhile) {
  constexpr int kMessages = 100;
  RunRanks({.ranks = 2}, [&](trncclComm_t comm, int rank) {
    std::vector<Ints> sent;
    std::vector<trncclRequest_t> requests(kMessages);
    int32_t one = 1;
    int32_t sum = 0;
    ASSERT_CALL_OK(
        trncclAllReduce(&one, &sum, 1, trncclInt32, trncclSum, comm, nullptr));
    for (int i = 0; i < kMessages && rank == 0; ++i) {
      sent.emplace_back(300, i);
      ASSERT_CALL_OK(trncclSend(sent.back().data(), 300, trncclInt32, 1, i,
                                comm, &requests[i]));
    }
    for (int i = 0; i < 20 * kMessages; ++i) {
      ASSERT_CALL_OK(trncclAllReduce(&one, &sum, 1, trncclInt32, trncclSum,
                                     comm, nullptr));
      ASSERT_EQ(sum, 2);
    }
    for (int i = 0; i < kMessages; ++i) {
      if (rank == 0) {
        ASSERT_CALL_OK(trncclRequestWait(requests[i], -1));
        ASSERT_CALL_OK(trncclRequestFree(requests[i]));
        continue;
      }
      Ints received(300);
      ASSERT_CALL_OK(trncclRecv(received.data(), 300, trncclInt32, 0, i,
                                nullptr, comm, nullptr));
      EXPECT_EQ(received, Ints(300, i));
    }
  });
}

TEST(ShortCalls, RefuseWhatTheFirstCallWouldRefuse) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int) {
    std::array<int32_t, 64> buffer = {};
    const auto call = [&](const void* send, void* recv) {
      return trncclAllReduce(send, recv, 16, trncclInt32, trncclSum, comm,
                             nullptr);
    };
    for (int i = 0; i < 3; ++i)
      ASSERT_CALL_OK(call(buffer.data(), buffer.data() + 16));
    EXPECT_EQ(call(buffer.data(), buffer.data() + 8), trncclInvalidArgument);
    EXPECT_EQ(call(nullptr, buffer.data()), trncclInvalidArgument);
    EXPECT_EQ(call(buffer.data(), nullptr), trncclInvalidArgument);
    EXPECT_EQ(trncclAllReduce(buffer.data(), buffer.data(), 16,
                              static_cast<trncclDataType_t>(trncclInt32 + 256),
                              trncclSum, comm, nullptr),
              trncclInvalidArgument);
    EXPECT_EQ(call(buffer.data(), buffer.data()), trncclSuccess);
  });
}

// Both calls are named, whichever way they took.
TEST(ShortCalls, NameBothCallsOfAMismatch) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    std::array<int32_t, 64> buffer = {};
    const auto call = [&](size_t count) {
      return trncclAllReduce(buffer.data(), buffer.data(), count, trncclInt32,
                             trncclSum, comm, nullptr);
    };
    for (int i = 0; i < 5; ++i) {
      ASSERT_CALL_OK(call(16));
      ASSERT_CALL_OK(call(8));
    }
    EXPECT_NE(call(rank == 0 ? 16 : 8), trncclSuccess);
    const std::string text = trncclGetLastError(nullptr);
    EXPECT_NE(text.find("count 16"), std::string::npos) << text;
    EXPECT_NE(text.find("count 8"), std::string::npos) << text;
    EXPECT_NE(call(16), trncclSuccess);
  });
}

TEST(ShortCalls, NameWhoDidntCome) {
  RunRanks({.ranks = 3, .settings = {"TRNCCL_TIMEOUT_MS=200"}},
           [](trncclComm_t comm, int rank) {
             int32_t value = 0;
             const auto call = [&] {
               return trncclAllReduce(&value, &value, 1, trncclInt32, trncclSum,
                                      comm, nullptr);
             };
             for (int i = 0; i < 5; ++i) ASSERT_CALL_OK(call());
             if (rank == 1) {
               trncclResult_t state = trncclSuccess;
               while (state == trncclSuccess)
                 ASSERT_CALL_OK(trncclCommGetAsyncError(comm, &state));
               return;
             }
             EXPECT_EQ(call(), trncclTimeout);
             const std::string text = trncclGetLastError(nullptr);
             EXPECT_NE(text.find("all_reduce #6"), std::string::npos) << text;
             EXPECT_NE(text.find("data of rank 1"), std::string::npos) << text;
           });
}

}  // namespace
}  // namespace trnccl
