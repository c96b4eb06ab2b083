// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Processes that run out of descriptors or shared memory, by limits that the
// test sets. Each test is a process of its own, since limits are.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"
#include "tests/faults/processes.h"

namespace trnccl {
namespace {

void Limit(__rlimit_resource resource, rlim_t limit) {
  rlimit value = {};
  ASSERT_EQ(getrlimit(resource, &value), 0);
  value.rlim_cur = std::min(limit, value.rlim_max);
  ASSERT_EQ(setrlimit(resource, &value), 0);
}

int OpenDescriptors() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Two ranks, threads of this process. What each hears.
std::vector<Outcome> InitOfTwo(trncclUniqueId* made) {
  std::vector<Outcome> outcomes(2);
  trncclUniqueId& id = *made;
  outcomes[0] = OutcomeOf([&] { return trncclGetUniqueId(&id); });
  outcomes[1] = outcomes[0];
  if (outcomes[0].result != trncclSuccess) return outcomes;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const char* const settings[] = {"TRNCCL_BOOTSTRAP_TIMEOUT_MS=2s"};
      trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
      config.settings = settings;
      config.settings_count = 1;
      trncclComm_t comm = nullptr;
      outcomes[rank] = OutcomeOf([&] {
        return trncclCommInitRankConfig(&comm, 2, id, rank, &config);
      });
      if (comm == nullptr) return;
      // Calls need none that init hasn't taken.
      EXPECT_TRUE(Works(comm));
      EXPECT_CALL_OK(trncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> InitOfTwo() {
  trncclUniqueId id = {};
  return InitOfTwo(&id);
}

// An id listens until somebody has come: whoever was refused may come again.
void UseUp(const trncclUniqueId& id) {
  trncclComm_t comm = nullptr;
  if (trncclCommInitRank(&comm, 1, id, 0) == trncclSuccess) {
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  }
}

// With every number of descriptors that's too low, up to the first that's
// enough: an error that says so, nothing left open, and no harm done.
TEST(OutOf, DescriptorsIsAnErrorAndLeaksNone) {
  InChild([] {
    // What the process keeps for good is open by now.
    for (const Outcome& outcome : InitOfTwo())
      ASSERT_EQ(outcome.result, trncclSuccess) << outcome.text;
    const int before = OpenDescriptors();
    rlimit all = {};
    getrlimit(RLIMIT_NOFILE, &all);
    int refused = 0;
    for (int more = 0;; ++more) {
      ASSERT_LT(more, 100);
      // opendir() itself has one more open, and shows "." and "..".
      Limit(RLIMIT_NOFILE, static_cast<rlim_t>(before - 3 + more));
      trncclUniqueId id = {};
      const std::vector<Outcome> outcomes = InitOfTwo(&id);
      setrlimit(RLIMIT_NOFILE, &all);
      UseUp(id);
      EXPECT_EQ(OpenDescriptors(), before) << "with " << more << " more";
      const auto ok = [](const Outcome& one) {
        return one.result == trncclSuccess;
      };
      if (std::all_of(outcomes.begin(), outcomes.end(), ok)) break;
      ++refused;
      EXPECT_TRUE(std::none_of(outcomes.begin(), outcomes.end(), ok));
      const auto says_why = [](const Outcome& one) {
        return one.text.find("ulimit -n") != std::string::npos;
      };
      EXPECT_TRUE(std::any_of(outcomes.begin(), outcomes.end(), says_why))
          << outcomes[0].text << "\n"
          << outcomes[1].text;
      for (const Outcome& outcome : outcomes) {
        EXPECT_LT(outcome.took_ms, kSoonMs);
        EXPECT_NE(outcome.result, trncclInternalError) << outcome.text;
      }
    }
    EXPECT_GT(refused, 3);
  });
}

// No shared memory: its files have no size.
TEST(OutOf, SharedMemoryIsAnErrorOfInit) {
  InChild([] {
    rlimit all = {};
    getrlimit(RLIMIT_FSIZE, &all);
    Limit(RLIMIT_FSIZE, 4096);
    for (const Outcome& outcome : InitOfTwo()) {
      EXPECT_EQ(outcome.result, trncclOutOfResources);
      EXPECT_TRUE(Says(outcome, {"rank ", "shared memory", "ulimit -f"}));
      EXPECT_LT(outcome.took_ms, kSoonMs);
    }
    setrlimit(RLIMIT_FSIZE, &all);
    for (const Outcome& outcome : InitOfTwo())
      EXPECT_EQ(outcome.result, trncclSuccess) << outcome.text;
  });
}

// One rank alone has none: all hear of it soon, and their other communicator
// goes on.
TEST(OutOf, SharedMemoryOnOneRankIsAnErrorOfASplitOnAll) {
  Processes all(3, [](Processes& ranks, int rank) {
    trncclComm_t comm = ranks.Init(rank, {});
    EXPECT_TRUE(Works(comm));
    if (rank == 1) Limit(RLIMIT_FSIZE, 4096);
    trncclComm_t child = nullptr;
    ranks.Report(rank, OutcomeOf([&] {
                   return trncclCommSplit(comm, 0, 0, &child, nullptr);
                 }));
    EXPECT_TRUE(Works(comm));
    EXPECT_CALL_OK(trncclCommDestroy(comm));
    ranks.Reach(rank, testing::Test::HasFailure() ? 1 : 2);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = all.Result(rank);
    EXPECT_EQ(outcome.result,
              rank == 1 ? trncclOutOfResources : trncclRemoteError);
    EXPECT_TRUE(Says(outcome, {"rank 1", "shared memory", "ulimit -f"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
    all.Await(rank, 2);
  }
}

TEST(OutOf, MemoryForBuffersIsAnError) {
  InChild([] {
    Limit(RLIMIT_FSIZE, 1 << 20);
    void* buffer = &buffer;
    const Outcome outcome =
        OutcomeOf([&] { return trncclMemAlloc(&buffer, 64 << 20); });
    EXPECT_EQ(outcome.result, trncclOutOfResources);
    EXPECT_TRUE(Says(outcome, {"67108864 bytes", "ulimit -f"}));
    EXPECT_EQ(buffer, nullptr);
    EXPECT_CALL_OK(trncclMemAlloc(&buffer, 1 << 16));
    EXPECT_CALL_OK(trncclMemFree(buffer));
  });
}

}  // namespace
}  // namespace trnccl
