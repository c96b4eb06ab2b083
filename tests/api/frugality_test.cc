// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// What a communicator costs: threads; and while it isn't busy, memory and
// processor time.
// Bounds of processor time are far above what's usual: they tell sleeping from
// spinning, not fast from slow.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ccl/trnccl.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

constexpr size_t kMiB = 1 << 20;

// Resident bytes of this process's mappings of memfds, each counted once.
size_t SharedBytes() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool shared = false;
  size_t kilobytes = 0;
  while (std::getline(smaps, line)) {
    const std::string word = line.substr(0, line.find(' '));
    if (word.find('-') != std::string::npos && word.back() != ':') {
      shared = line.find("/memfd:") != std::string::npos;
    } else if (shared && word == "Rss:") {
      kilobytes += std::stoul(line.substr(word.size()));
    }
  }
  return kilobytes << 10;
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void SleepFor(int64_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

auto ThreadCount() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// They would have to be woken, and share the cores with those who wait. Stands
// first: asynchronous calls make a thread that stays.
TEST(Threads, AreNotMadeForGroupsOfBlockingCalls) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
    const auto before = ThreadCount();
    for (const size_t count : {1, 100'000}) {
      std::vector<float> out(count), in(count);
      for (int round = 0; round < 100; ++round) {
        ASSERT_CALL_OK(trncclGroupStart());
        trncclSend(out.data(), count, trncclFloat32, 1 - rank, 0, comm,
                   nullptr);
        trncclRecv(in.data(), count, trncclFloat32, 1 - rank, 0, nullptr, comm,
                   nullptr);
        ASSERT_CALL_OK(trncclGroupEnd());
      }
    }
    EXPECT_EQ(ThreadCount(), before);
    ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
  });
}

// Messages of all kinds, by themselves: no engine takes them off the arena.
TEST(Memory, OfEightRanksIsBoundedAndTakenWhenItsNeeded) {
  constexpr int kRanks = 8;
  std::atomic<size_t> before = 0;
  std::atomic<size_t> after = 0;
  RunRanks(
      {.ranks = kRanks, .settings = {"TRNCCL_ALGORITHM=all_reduce:two_step"}},
      [&](trncclComm_t comm, int rank) {
        std::vector<float> data(2 * kMiB, 1.0F);
        const auto call = [&](size_t count) {
          ASSERT_CALL_OK(trncclAllReduce(data.data(), data.data(), count,
                                         trncclFloat32, trncclMax, comm,
                                         nullptr));
        };
        call(1);
        if (rank == 0) before = SharedBytes();
        call(1);
        call(data.size());
        if (rank == 0) after = SharedBytes();
        call(1);
      });
  EXPECT_LT(before, kRanks * kMiB);
  EXPECT_GT(after, before + kMiB);
  EXPECT_LT(after, 64 * kMiB);
}

TEST(ProcessorTime, OfAnIdleCommunicatorIsNextToNothing) {
  constexpr int kRanks = 4;
  std::atomic<int> ready = 0;
  RunRanks({.ranks = kRanks}, [&](trncclComm_t comm, int rank) {
    trncclRequest_t request = nullptr;
    // So that the progress thread lives.
    ASSERT_CALL_OK(trncclBarrier(comm, &request));
    ASSERT_CALL_OK(trncclRequestWait(request, -1));
    ASSERT_CALL_OK(trncclRequestFree(request));
    ++ready;
    if (rank == 0) {
      while (ready < kRanks) SleepFor(1);
      const double before = CpuSeconds();
      SleepFor(2000);
      EXPECT_LT(CpuSeconds() - before, 0.04);
      ready = 2 * kRanks;
    }
    while (ready < 2 * kRanks) SleepFor(100);
  });
}

TEST(ProcessorTime, OfWaitingForALatePeerIsSmallWhereCoresAreShared) {
  constexpr int kRanks = 4;
  RunRanks({.ranks = kRanks, .settings = {"TRNCCL_SPIN_US=0"}},
           [&](trncclComm_t comm, int rank) {
             ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
             const double before = CpuSeconds();
             if (rank == 0) SleepFor(1000);
             ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
             EXPECT_LT(CpuSeconds() - before, (kRanks - 1) * 0.05);
           });
}

}  // namespace
}  // namespace trnccl
