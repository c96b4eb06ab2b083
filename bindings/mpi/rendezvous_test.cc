// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/rendezvous.h"

#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace trnccl::perf {
namespace {

// A port that other runs of this test are unlikely to use.
int SomePort() { return 20'000 + getpid() % 10'000; }

TEST(Rendezvous, HandsTheIdToEveryProcess) {
  constexpr int kProcesses = 4;
  const RendezvousAddress address = {"127.0.0.1", SomePort(), 20'000};
  std::vector<trncclUniqueId> ids(kProcesses);
  std::vector<absl::Status> results(kProcesses);
  std::memset(&ids[0], 0x5a, sizeof(ids[0]));
  std::vector<std::thread> threads;
  for (int process = kProcesses - 1; process >= 0; --process) {
    threads.emplace_back([&, process] {
      const size_t at = static_cast<size_t>(process);
      results[at] = ShareId({process, kProcesses}, address, &ids[at]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t process = 0; process < kProcesses; ++process) {
    EXPECT_TRUE(results[process].ok()) << results[process].message();
    EXPECT_EQ(std::memcmp(&ids[0], &ids[process], sizeof(ids[0])), 0);
  }
}

TEST(Rendezvous, NamesWhoHasNotCome) {
  trncclUniqueId id = {};
  const absl::Status status =
      ShareId({0, 3}, {"127.0.0.1", SomePort(), 50}, &id);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("processes 1 2"), absl::string_view::npos)
      << status.message();
}

TEST(Rendezvous, GivesUpOnAFirstProcessThatIsNotThere) {
  trncclUniqueId id = {};
  const absl::Status status =
      ShareId({1, 2}, {"127.0.0.1", SomePort(), 50}, &id);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Rendezvous, SaysWhatToSet) {
  const absl::Status status = FindRendezvous([](const char*) -> const char* {
                                return nullptr;
                              }).status();
  EXPECT_NE(status.message().find("MASTER_PORT"), absl::string_view::npos);
}

}  // namespace
}  // namespace trnccl::perf
