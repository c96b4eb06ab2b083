// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Long messages between processes, which the receiver copies from where the
// sender keeps them: that they arrive whole, and what becomes of them when a
// rank dies or gives up in the middle.
#include <signal.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"
#include "tests/faults/processes.h"

namespace trnccl {
namespace {

constexpr size_t kCount = 3 << 20;  // of uint32
constexpr int kTag = 5;

enum class Memory { kHeap, kAllocated };

// Words that begin at `offset` of memory of one kind or the other.
class Words {
 public:
  Words(Memory memory, size_t count)
      : heap_(memory == Memory::kHeap ? count : 0) {
    data_ = heap_.data();
    if (memory == Memory::kHeap) return;
    void* allocated = nullptr;
    EXPECT_CALL_OK(trncclMemAlloc(&allocated, count * sizeof(uint32_t)));
    data_ = static_cast<uint32_t*>(allocated);
  }
  ~Words() {
    if (!heap_.empty()) return;
    EXPECT_CALL_OK(trncclMemFree(data_));
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  uint32_t* data() { return data_; }

 private:
  std::vector<uint32_t> heap_;
  uint32_t* data_ = nullptr;
};

uint32_t WordOf(int rank, size_t round, size_t index) {
  return static_cast<uint32_t>(index * 2654435761u + round * 97 +
                               static_cast<size_t>(rank) + 1);
}

// Both ranks send to each other and receive.
trncclResult_t Exchange(trncclComm_t comm, int rank, uint32_t* out,
                        uint32_t* in, size_t count) {
  EXPECT_CALL_OK(trncclGroupStart());
  trncclSend(out, count, trncclUint32, 1 - rank, kTag, comm, nullptr);
  trncclRecv(in, count, trncclUint32, 1 - rank, kTag, nullptr, comm, nullptr);
  return trncclGroupEnd();
}

void CheckExchanges(trncclComm_t comm, int rank, Memory memory) {
  for (const size_t count :
       {size_t{2000}, size_t{4096}, size_t{100'001}, kCount}) {
    Words out(memory, count), in(memory, count);
    for (size_t round = 0; round < 5; ++round) {
      for (size_t i = 0; i < count; ++i) out.data()[i] = WordOf(rank, round, i);
      ASSERT_CALL_OK(Exchange(comm, rank, out.data(), in.data(), count));
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(in.data()[i], WordOf(1 - rank, round, i))
            << i << " of " << count << ", round " << round;
    }
  }
}

void ExpectWhole(
    const std::function<std::vector<std::string>(int rank)>& settings) {
  Processes all(2, [&](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, settings(rank));
    ranks.Report(rank, OutcomeOf([&] {
                   CheckExchanges(comm, rank, Memory::kHeap);
                   CheckExchanges(comm, rank, Memory::kAllocated);
                   return testing::Test::HasFailure() ? trncclInternalError
                                                      : trncclSuccess;
                 }));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
  for (const int rank : {0, 1})
    EXPECT_EQ(all.Result(rank).result, trncclSuccess) << rank;
}

TEST(OneCopy, BringsMessagesWholeFromAnyMemory) {
  ExpectWhole([](int) { return std::vector<std::string>(); });
}

TEST(OneCopy, IsDoneWithoutWhereARankMayNot) {
  ExpectWhole([](int rank) {
    return rank == 0 ? std::vector<std::string>{"TRNCCL_SHM_PEER_MEMORY=off"}
                     : std::vector<std::string>();
  });
  ExpectWhole([](int) {
    return std::vector<std::string>{"TRNCCL_SHM_BY_REFERENCE=off"};
  });
}

// ---- Ranks that die or give up ---------------------------------------------

void ExpectDeathNamed(Memory memory) {
  Processes all(2, [&](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    Words out(memory, kCount), in(memory, kCount);
    ranks.Reach(rank, 1);
    ranks.Report(rank, OutcomeOf([&] {
                   trncclResult_t result = trncclSuccess;
                   while (result == trncclSuccess)
                     result =
                         Exchange(comm, rank, out.data(), in.data(), kCount);
                   return result;
                 }));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  });
  for (const int rank : {0, 1}) all.Await(rank, 1);
  ASSERT_EQ(kill(all.pid(1), SIGKILL), 0);
  const Outcome outcome = all.Result(0);
  EXPECT_EQ(outcome.result, trncclRemoteError);
  EXPECT_TRUE(Says(
      outcome, {"rank 0", absl::StrCat("rank 1 (pid ", all.pid(1), ") died"),
                "origin: rank 1"}));
  EXPECT_LT(outcome.took_ms, kSoonMs);
}

TEST(OneCopy, NamesAPeerThatIsKilledInTheMiddle) {
  for (const Memory memory : {Memory::kHeap, Memory::kAllocated}) {
    for (int round = 0; round < 5; ++round) ExpectDeathNamed(memory);
  }
}

// Once the send has failed its buffer holds other things: a receiver that comes
// late must not take those for the message.
TEST(OneCopy, IsNoSuccessOnceTheSenderHasGivenUp) {
  for (const Memory memory : {Memory::kHeap, Memory::kAllocated}) {
    Processes all(2, [&](Processes& ranks, int rank) {
      trncclComm_t comm = ranks.Init(rank, {});
      EXPECT_TRUE(Works(comm));
      Words words(memory, kCount);
      if (rank == 1) ranks.Await(0, 1);
      EXPECT_CALL_OK(trncclCommSetTimeout(comm, rank == 0 ? 100 : 60'000));
      ranks.Report(rank, OutcomeOf([&] {
                     return rank == 0
                                ? trncclSend(words.data(), kCount, trncclUint32,
                                             1, kTag, comm, nullptr)
                                : trncclRecv(words.data(), kCount, trncclUint32,
                                             0, kTag, nullptr, comm, nullptr);
                   }));
      std::memset(words.data(), 0xee, kCount * sizeof(uint32_t));
      ranks.Reach(rank, 1);
      EXPECT_CALL_OK(trncclCommDestroy(comm));
    });
    const Outcome sent = all.Result(0);
    EXPECT_EQ(sent.result, trncclTimeout);
    EXPECT_TRUE(Says(sent, {"rank 0: ", "send of", "to rank 1", "100 ms"}));
    const Outcome received = all.Result(1);
    EXPECT_NE(received.result, trncclSuccess);
    EXPECT_TRUE(Says(received, {"origin: rank 1"}));
    EXPECT_LT(received.took_ms, kSoonMs);
  }
}

}  // namespace
}  // namespace trnccl
