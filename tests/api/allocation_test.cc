// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// A small blocking call allocates nothing, once one like it has been made.
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace {
// Of this thread: other ranks and the test itself may do as they like.
thread_local size_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trnccl {
namespace {

constexpr int kRanks = 2;

// The v-variants resolve their counts anew at each call.
bool IsUneven(const EachCall& call) { return call.name.ends_with("_v"); }

// What a thread's first sleep brings along is no call's. Nobody sends but this
// rank itself, so that it does sleep.
void SleepOnce(trncclComm_t comm, int rank) {
  trncclRequest_t request = nullptr;
  ASSERT_CALL_OK(
      trncclRecv(nullptr, 0, trncclInt8, rank, 0, nullptr, comm, &request));
  EXPECT_EQ(trncclRequestWait(request, 5), trncclInProgress);
  ASSERT_CALL_OK(trncclSend(nullptr, 0, trncclInt8, rank, 0, comm, nullptr));
  ASSERT_CALL_OK(ResultByItself(request));
}

// Whether the ranks never sleep, or at every wait.
class SmallCalls : public testing::TestWithParam<const char*> {};

void RunSmallCalls(size_t count, trncclComm_t comm, int rank) {
  SleepOnce(comm, rank);
  for (const EachCall& call : EveryCollective({kRanks, rank}, count)) {
    if (IsUneven(call)) continue;
    for (int i = 0; i < 10; ++i) ASSERT_CALL_OK(call.issue(comm, nullptr));
    allocations = 0;
    for (int i = 0; i < 100; ++i) ASSERT_CALL_OK(call.issue(comm, nullptr));
    EXPECT_EQ(allocations, 0U) << call.name << " of " << count;
    EXPECT_TRUE(call.is_right()) << call.name;
  }
}

TEST_P(SmallCalls, AllocateNothing) {
  for (const size_t count : {1, 16, 1000}) {
    RunRanks({.ranks = kRanks, .settings = {GetParam()}},
             [count](trncclComm_t comm, int rank) {
               RunSmallCalls(count, comm, rank);
             });
  }
}

INSTANTIATE_TEST_SUITE_P(Waits, SmallCalls,
                         testing::Values("TRNCCL_WAIT=yield",
                                         "TRNCCL_WAIT=sleep"));

TEST(SmallMessages, AllocateNothing) {
  for (const size_t count : {1, 16, 1000}) {
    RunRanks({.ranks = kRanks}, [count](trncclComm_t comm, int rank) {
      std::vector<uint32_t> data(count, ValueOf(rank, 0));
      const auto ping_pong = [&] {
        if (rank == 0) {
          ASSERT_CALL_OK(trncclSend(data.data(), count, trncclUint32, 1, 0,
                                    comm, nullptr));
        }
        ASSERT_CALL_OK(trncclRecv(data.data(), count, trncclUint32, 1 - rank, 0,
                                  nullptr, comm, nullptr));
        if (rank == 1) {
          ASSERT_CALL_OK(trncclSend(data.data(), count, trncclUint32, 0, 0,
                                    comm, nullptr));
        }
      };
      for (int i = 0; i < 100; ++i) ping_pong();
      allocations = 0;
      for (int i = 0; i < 200; ++i) ping_pong();
      // A message that comes before its receive has to be kept somewhere.
      EXPECT_LE(allocations, 200U);
    });
  }
}

}  // namespace
}  // namespace trnccl
