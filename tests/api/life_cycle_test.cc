// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Communicators come and go: nothing is left behind, many live side by side,
// and a fork leaves the parent's alone.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/every_call.h"
#include "tests/collectives/ranks.h"

namespace trnccl {
namespace {

int Entries(const char* folder) {
  int entries = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder))
    ++entries;
  return entries;
}

// What a process holds of the kernel's.
struct Holdings {
  int descriptors = 0;
  int threads = 0;
  int shared_mappings = 0;

  bool operator==(const Holdings&) const = default;
};

void PrintTo(const Holdings& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.threads << " threads, "
       << held.shared_mappings << " shared mappings";
}

Holdings HoldingsNow() {
  Holdings held{.descriptors = Entries("/proc/self/fd"),
                .threads = Entries("/proc/self/task")};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    held.shared_mappings += line.find("memfd:") != std::string::npos ? 1 : 0;
  return held;
}

// Threads that have ended may take the kernel a moment to forget.
void ExpectHoldings(const Holdings& expected) {
  for (int i = 0; i < 10'000 && !(HoldingsNow() == expected); ++i)
    sched_yield();
  EXPECT_EQ(HoldingsNow(), expected);
}

void UseOnce(trncclComm_t comm, const RankOf& me) {
  uint32_t value = ValueOf(me.rank, 0);
  uint32_t sum = 0;
  for (int rank = 0; rank < me.ranks; ++rank) sum += ValueOf(rank, 0);
  trncclRequest_t request = nullptr;
  ASSERT_CALL_OK(trncclAllReduce(&value, &value, 1, trncclUint32, trncclSum,
                                 comm, &request));
  ASSERT_CALL_OK(trncclRequestWait(request, TRNCCL_WAIT_FOREVER));
  ASSERT_CALL_OK(trncclRequestFree(request));
  EXPECT_EQ(value, sum);
  std::vector<uint32_t> data(10'000, ValueOf(me.rank, 1));
  ASSERT_CALL_OK(trncclBroadcast(data.data(), data.data(), data.size(),
                                 trncclUint32, 0, comm, nullptr));
  EXPECT_EQ(data.back(), ValueOf(0, 1));
}

TEST(LifeCycle, TwoHundredCommunicatorsLeaveNothing) {
  Holdings before;
  for (int i = 0; i < 201; ++i) {
    RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
      UseOnce(comm, {2, rank});
      trncclComm_t child = nullptr;
      ASSERT_CALL_OK(trncclCommSplit(comm, 0, 0, &child, nullptr));
      UseOnce(child, {2, rank});
      ASSERT_CALL_OK(trncclCommDestroy(child));
    });
    // The first starts what the process keeps: a doorbell, a thread.
    if (i == 0) before = HoldingsNow();
  }
  ExpectHoldings(before);
}

TEST(LifeCycle, MemoryAllocatedAndFreedLeavesNothing) {
  Holdings before;
  for (int i = 0; i < 51; ++i) {
    RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
      void* memory = nullptr;
      constexpr size_t kCount = 100'000;
      ASSERT_CALL_OK(trncclMemAlloc(&memory, kCount * sizeof(uint32_t)));
      auto* values = static_cast<uint32_t*>(memory);
      values[kCount - 1] = ValueOf(rank, 0);
      ASSERT_CALL_OK(trncclAllReduce(values, values, kCount, trncclUint32,
                                     trncclSum, comm, nullptr));
      EXPECT_EQ(values[kCount - 1], ValueOf(0, 0) + ValueOf(1, 0));
      ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
      ASSERT_CALL_OK(trncclMemFree(memory));
    });
    if (i == 0) before = HoldingsNow();
  }
  ExpectHoldings(before);
}

// Lowers the limit of descriptors while it lives.
class FewDescriptors {
 public:
  FewDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lowered{.rlim_cur = 1024, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

constexpr int kMany = 300;

TEST(LifeCycle, ThreeHundredChildrenLiveUnderAThousandDescriptors) {
  const FewDescriptors few;
  RunRanks({.ranks = 2, .settings = {"TRNCCL_ARENA_BYTES=64K"}},
           [](trncclComm_t world, int rank) {
             std::vector<trncclComm_t> comms(kMany);
             for (trncclComm_t& comm : comms)
               ASSERT_CALL_OK(trncclCommSplit(world, 0, 0, &comm, nullptr));
             for (trncclComm_t comm : comms) UseOnce(comm, {2, rank});
             for (trncclComm_t comm : comms)
               ASSERT_CALL_OK(trncclCommDestroy(comm));
           });
}

// Each made from an id of its own, between two processes.
TEST(LifeCycle, ThreeHundredWorldsLiveUnderAThousandDescriptors) {
  const FewDescriptors few;
  int ids[2];
  ASSERT_EQ(pipe(ids), 0);
  const auto live = [&ids](int rank) {
    std::vector<trncclComm_t> comms(kMany, nullptr);
    for (trncclComm_t& comm : comms) {
      trncclUniqueId id;
      if (rank == 0) {
        ASSERT_CALL_OK(trncclGetUniqueId(&id));
        ASSERT_EQ(write(ids[1], &id, sizeof(id)), ssize_t{sizeof(id)});
      } else {
        ASSERT_EQ(read(ids[0], &id, sizeof(id)), ssize_t{sizeof(id)});
      }
      ASSERT_CALL_OK(trncclCommInitRank(&comm, 2, id, rank));
    }
    for (trncclComm_t comm : comms) UseOnce(comm, {2, rank});
    for (trncclComm_t comm : comms) ASSERT_CALL_OK(trncclCommDestroy(comm));
  };
  const pid_t child = fork();
  if (child == 0) {
    live(1);
    exit(testing::Test::HasFailure() ? 1 : 0);
  }
  live(0);
  close(ids[1]);  // so that a child that waits for an id ends
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(ids[0]);
}

TEST(LifeCycle, FiftyTimesInOneProcess) {
  for (int i = 0; i < 50; ++i)
    RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
      UseOnce(comm, {3, rank});
    });
}

TEST(LifeCycle, AHundredRanksMeet) {
  RunRanks({.ranks = 100, .settings = {"TRNCCL_ARENA_BYTES=64K"}},
           [](trncclComm_t comm, int rank) {
             UseOnce(comm, {100, rank});
           });
}

TEST(LifeCycle, EveryCallWorksAlone) {
  RunRanks({.ranks = 1}, [](trncclComm_t comm, int) {
    for (const size_t count : {0, 1, 1000}) {
      for (const EachCall& call : EveryCollective({1, 0}, count)) {
        EXPECT_CALL_OK(call.issue(comm, nullptr)) << call.name;
        EXPECT_TRUE(call.is_right()) << call.name;
      }
    }
    trncclComm_t child = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(comm, 3, 0, &child, nullptr));
    UseOnce(child, {1, 0});
    ASSERT_CALL_OK(trncclCommDestroy(child));
  });
}

trncclComm_t StartInit(trncclUniqueId id, const RankOf& me) {
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  trncclComm_t comm = nullptr;
  EXPECT_EQ(trncclCommInitRankConfig(&comm, me.ranks, id, me.rank, &config),
            trncclInProgress);
  return comm;
}

trncclResult_t OutcomeOfInit(trncclComm_t comm) {
  trncclResult_t error = trncclInProgress;
  while (error == trncclInProgress) {
    EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
    sched_yield();
  }
  return error;
}

TEST(NonBlockingInit, ReturnsAtOnceAndIsUsableLater) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  // Both ranks from one thread: neither start may wait for the other.
  const std::vector<trncclComm_t> comms = {StartInit(id, {2, 0}),
                                           StartInit(id, {2, 1})};
  for (trncclComm_t comm : comms) EXPECT_EQ(OutcomeOfInit(comm), trncclSuccess);
  std::vector<trncclRequest_t> requests(2);
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_CALL_OK(trncclBarrier(comms[rank], &requests[rank]));
  for (trncclRequest_t request : requests)
    EXPECT_CALL_OK(ResultByItself(request));
  for (trncclComm_t comm : comms) ASSERT_CALL_OK(trncclCommDestroy(comm));
}

TEST(NonBlockingInit, RefusesCallsUntilItsDone) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  trncclComm_t comm = StartInit(id, {2, 0});
  EXPECT_EQ(trncclBarrier(comm, nullptr), trncclInvalidUsage);
  EXPECT_NE(std::string(trncclGetLastError(nullptr)).find("init"),
            std::string::npos);
  ASSERT_CALL_OK(trncclCommDestroy(comm));
}

// Rank 1 never comes.
TEST(NonBlockingInit, EndsWhenItsAborted) {
  for (const int rank : {0, 1}) {
    trncclUniqueId id;
    ASSERT_CALL_OK(trncclGetUniqueId(&id));
    trncclComm_t comm = StartInit(id, {2, rank});
    ASSERT_CALL_OK(trncclCommAbort(comm));
    EXPECT_EQ(OutcomeOfInit(comm), trncclAborted) << trncclGetLastError(comm);
    EXPECT_EQ(trncclBarrier(comm, nullptr), trncclAborted);
    ASSERT_CALL_OK(trncclCommDestroy(comm));
  }
}

// Runs the body in a forked child; true if all its expectations held and it
// came to its end.
bool HoldsInChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    // Not _exit(): what the library registered to run at exit must work too.
    exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void ExpectRefused(trncclComm_t comm) {
  for (const EachCall& call : EveryCollective({2, 0}, 5)) {
    EXPECT_EQ(call.issue(comm, nullptr), trncclInvalidUsage) << call.name;
    EXPECT_NE(std::string(trncclGetLastError(nullptr)).find("fork"),
              std::string::npos);
    trncclRequest_t request = nullptr;
    EXPECT_EQ(call.issue(comm, &request), trncclInvalidUsage) << call.name;
  }
  int value = 0;
  trncclResult_t error;
  EXPECT_EQ(trncclCommCount(comm, &value), trncclInvalidUsage);
  EXPECT_EQ(trncclCommGetAsyncError(comm, &error), trncclInvalidUsage);
  EXPECT_EQ(trncclCommFinalize(comm), trncclInvalidUsage);
  EXPECT_EQ(trncclCommAbort(comm), trncclInvalidUsage);
  EXPECT_EQ(trncclCommDestroy(comm), trncclInvalidUsage);
}

// In the child, ranks as threads, with asynchronous calls too.
void UseAnotherCommunicator() {
  RunRanks({.ranks = 2, .settings = {"TRNCCL_WAIT=sleep"}},
           [](trncclComm_t comm, int rank) {
             for (int i = 0; i < 20; ++i) UseOnce(comm, {2, rank});
             trncclRequest_t request = nullptr;
             ASSERT_CALL_OK(trncclBarrier(comm, &request));
             ASSERT_CALL_OK(ResultByItself(request));
           });
}

TEST(Fork, LeavesTheChildAClearErrorAndTheParentItsCommunicator) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    UseOnce(comm, {2, rank});
    if (rank == 0) {
      trncclRequest_t request = nullptr;
      ASSERT_CALL_OK(trncclBarrier(comm, &request));
      EXPECT_TRUE(HoldsInChild([&] {
        ExpectRefused(comm);
        EXPECT_EQ(trncclRequestWait(request, 0), trncclInvalidUsage);
      }));
      uint32_t go = 0;
      ASSERT_CALL_OK(trncclSend(&go, 1, trncclUint32, 1, 0, comm, nullptr));
      ASSERT_CALL_OK(ResultByItself(request));
    } else {
      uint32_t go = 0;
      ASSERT_CALL_OK(
          trncclRecv(&go, 1, trncclUint32, 0, 0, nullptr, comm, nullptr));
      ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
    }
    for (int i = 0; i < 100; ++i) UseOnce(comm, {2, rank});
  });
}

// The parent's thread and doorbell aren't the child's.
TEST(Fork, LeavesTheChildFreeToMakeItsOwn) {
  UseAnotherCommunicator();
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    EXPECT_TRUE(rank != 0 || HoldsInChild(UseAnotherCommunicator));
    for (int i = 0; i < 100; ++i) UseOnce(comm, {2, rank});
  });
}

// Its calls are complete, so it may go, whether or not the others have looked
// at what it sent.
TEST(LifeCycle, ARankMayExitOnceItIsThroughItsCalls) {
  for (const size_t count : {1, 10'000}) {
    trncclUniqueId id;
    ASSERT_CALL_OK(trncclGetUniqueId(&id));
    const auto broadcast = [count](trncclComm_t comm, int rank) {
      std::vector<uint32_t> data(count, ValueOf(rank, 2));
      ASSERT_CALL_OK(trncclBroadcast(data.data(), data.data(), count,
                                     trncclUint32, 1, comm, nullptr));
      EXPECT_EQ(data, std::vector<uint32_t>(count, ValueOf(1, 2)));
      ASSERT_CALL_OK(trncclCommFinalize(comm));
      ASSERT_CALL_OK(trncclCommDestroy(comm));
    };
    const pid_t child = fork();
    trncclComm_t comm = nullptr;
    if (child == 0) {
      ASSERT_CALL_OK(trncclCommInitRank(&comm, 2, id, 1));
      broadcast(comm, 1);
      exit(testing::Test::HasFailure() ? 1 : 0);
    }
    ASSERT_CALL_OK(trncclCommInitRank(&comm, 2, id, 0));
    // It may also wait for this rank: then there's nothing to see here.
    int status = -1;
    pid_t ended = 0;
    for (int i = 0; i < 20'000 && ended == 0; ++i) {
      ended = waitpid(child, &status, WNOHANG);
      sched_yield();
    }
    broadcast(comm, 0);
    if (ended == 0) waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST(Exec, InheritsNoDescriptor) {
  RunRanks({.ranks = 2}, [](trncclComm_t comm, int rank) {
    UseOnce(comm, {2, rank});
    void* memory = nullptr;
    ASSERT_CALL_OK(trncclMemAlloc(&memory, 4096));
    ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
    for (int fd = 3; rank == 0 && fd < 200; ++fd) {
      const int flags = fcntl(fd, F_GETFD);
      if (flags < 0) continue;
      const std::string what =
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
      // Bazel's own and gtest's files aside.
      const bool ours = what.find("memfd:") == 1 || what.find("socket:") == 0 ||
                        what.find("anon_inode:") == 0;
      EXPECT_TRUE(!ours || (flags & FD_CLOEXEC) != 0) << what;
    }
    ASSERT_CALL_OK(trncclBarrier(comm, nullptr));
    ASSERT_CALL_OK(trncclMemFree(memory));
  });
}

}  // namespace
}  // namespace trnccl
