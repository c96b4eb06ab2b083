// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Aborts, from another thread, of whatever a thread is blocked in.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

using Call = std::function<trncclResult_t(trncclComm_t comm, int rank)>;

// Until the kernel says that the thread sleeps (or for long: then the abort
// finds it awake).
void AwaitSleep(pid_t thread) {
  const Deadline deadline = Deadline::After(5'000);
  while (!deadline.expired()) {
    std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/stat"));
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.substr(name_end + 2, 1) == "S")
      return;
    std::this_thread::yield();
  }
}

// Rank 0 is blocked in the call, alone, until another thread aborts it. Rank 1
// hears of it, and another communicator of the same ranks isn't concerned.
void ExpectAborted(const RankOptions& options, const Call& call) {
  RunRanks(options, [&](trncclComm_t comm, int rank) {
    trncclComm_t other = nullptr;
    ASSERT_CALL_OK(trncclCommSplit(comm, 0, rank, &other, nullptr));
    if (rank == 0) {
      std::atomic<pid_t> blocked = 0;
      std::thread thread([&] {
        blocked.store(static_cast<pid_t>(syscall(SYS_gettid)));
        const Outcome outcome = OutcomeOf([&] { return call(comm, rank); });
        EXPECT_EQ(outcome.result, trncclAborted);
        EXPECT_TRUE(Says(outcome, {"aborted", "rank 0"}));
      });
      while (blocked.load() == 0) std::this_thread::yield();
      AwaitSleep(blocked.load());
      const Outcome abort = OutcomeOf([&] { return trncclCommAbort(comm); });
      EXPECT_EQ(abort.result, trncclSuccess);
      const Outcome join = OutcomeOf([&] {
        thread.join();
        return trncclSuccess;
      });
      EXPECT_LT(abort.took_ms + join.took_ms, kSoonMs);
      EXPECT_EQ(trncclBarrier(comm, nullptr), trncclAborted);
    } else {
      const Outcome outcome = OutcomeOf([&] {
        trncclResult_t error = trncclSuccess;
        while (error == trncclSuccess) {
          EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
        }
        return trncclBarrier(comm, nullptr);
      });
      EXPECT_EQ(outcome.result, trncclRemoteError);
      EXPECT_TRUE(Says(outcome, {"aborted", "origin: rank 0"}));
    }
    EXPECT_TRUE(Works(other));
    EXPECT_CALL_OK(trncclCommDestroy(other));
  });
}

trncclResult_t AllReduceOf(trncclComm_t comm, size_t count) {
  std::vector<float> values(count, 1);
  return trncclAllReduce(values.data(), values.data(), count, trncclFloat32,
                         trncclSum, comm, nullptr);
}

class Abort : public testing::TestWithParam<const char*> {
 protected:
  RankOptions Options() const { return {.ranks = 2, .settings = {GetParam()}}; }
};

TEST_P(Abort, EndsASmallCall) {
  ExpectAborted(Options(),
                [](trncclComm_t comm, int) { return AllReduceOf(comm, 4); });
}

TEST_P(Abort, EndsALargeCall) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    return AllReduceOf(comm, 1 << 20);
  });
}

TEST_P(Abort, EndsAReceive) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    std::array<float, 4> values = {};
    return trncclRecv(values.data(), 4, trncclFloat32, TRNCCL_ANY_SOURCE, 0,
                      nullptr, comm, nullptr);
  });
}

TEST_P(Abort, EndsALongSend) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    const std::vector<float> values(1 << 20);
    return trncclSend(values.data(), values.size(), trncclFloat32, 1, 0, comm,
                      nullptr);
  });
}

TEST_P(Abort, EndsAWaitForARequest) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    trncclRequest_t request = nullptr;
    // The abort may come before it has begun.
    const trncclResult_t begun = trncclBarrier(comm, &request);
    if (begun != trncclSuccess) return begun;
    const trncclResult_t result =
        trncclRequestWait(request, TRNCCL_WAIT_FOREVER);
    EXPECT_CALL_OK(trncclRequestFree(request));
    return result;
  });
}

TEST_P(Abort, EndsAGroup) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    std::array<float, 4> values = {};
    EXPECT_CALL_OK(trncclGroupStart());
    EXPECT_CALL_OK(trncclBarrier(comm, nullptr));
    EXPECT_CALL_OK(trncclRecv(values.data(), 4, trncclFloat32, 1, 0, nullptr,
                              comm, nullptr));
    return trncclGroupEnd();
  });
}

TEST_P(Abort, EndsASplit) {
  ExpectAborted(Options(), [](trncclComm_t comm, int) {
    trncclComm_t child = nullptr;
    return trncclCommSplit(comm, 0, 0, &child, nullptr);
  });
}

INSTANTIATE_TEST_SUITE_P(With, Abort,
                         testing::Values("TRNCCL_WAIT=sleep",
                                         "TRNCCL_WAIT=auto",
                                         "TRNCCL_TRANSPORT=fabric"),
                         [](const auto& one) {
                           const std::string setting = one.param;
                           return setting.substr(setting.find('=') + 1);
                         });

TEST(AbortOfInit, EndsIt) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  trncclComm_t comm = nullptr;
  ASSERT_EQ(trncclCommInitRankConfig(&comm, 2, id, 0, &config),
            trncclInProgress);
  EXPECT_EQ(trncclBarrier(comm, nullptr), trncclInvalidUsage);
  ASSERT_CALL_OK(trncclCommAbort(comm));
  const Outcome outcome = OutcomeOf([&] {
    trncclResult_t error = trncclInProgress;
    while (error == trncclInProgress) {
      EXPECT_CALL_OK(trncclCommGetAsyncError(comm, &error));
      std::this_thread::yield();
    }
    return error;
  });
  EXPECT_EQ(outcome.result, trncclAborted);
  EXPECT_NE(std::string(trncclGetLastError(comm)).find("aborted"),
            std::string::npos);
  EXPECT_EQ(trncclBarrier(comm, nullptr), trncclAborted);
  EXPECT_LT(outcome.took_ms, kSoonMs);
  EXPECT_CALL_OK(trncclCommDestroy(comm));
}

TEST(AbortOfInit, IsntNeededToDestroy) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  trncclComm_t comm = nullptr;
  ASSERT_EQ(trncclCommInitRankConfig(&comm, 2, id, 0, &config),
            trncclInProgress);
  const Outcome outcome = OutcomeOf([&] { return trncclCommDestroy(comm); });
  EXPECT_EQ(outcome.result, trncclSuccess);
  EXPECT_LT(outcome.took_ms, kSoonMs);
}

// Whoever has completed the last call may abort: nobody's call is lost by it.
TEST(AbortOfACompleteCall, LosesNobodysResults) {
  for (int round = 0; round < 20; ++round) {
    RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
      EXPECT_TRUE(Works(comm, 5000));
      if (rank == 1) {
        EXPECT_CALL_OK(trncclCommAbort(comm));
      }
    });
  }
}

}  // namespace
}  // namespace trnccl
