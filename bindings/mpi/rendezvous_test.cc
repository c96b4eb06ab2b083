// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
#include "bindings/mpi/rendezvous.h"

#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
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

absl::StatusOr<RendezvousAddress> Find(
    const std::map<std::string, std::string>& variables) {
  return FindRendezvous([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Rendezvous, SaysWhyItGaveUp) {
  trncclUniqueId id = {};
  const absl::Status refused =
      ShareId({1, 2}, {"127.0.0.1", SomePort(), 50}, &id);
  EXPECT_NE(refused.message().find("Connection refused"),
            absl::string_view::npos)
      << refused.message();
}

TEST(Rendezvous, IsAtMasterAddrAndTheNextPort) {
  const RendezvousAddress address = *Find({{"MASTER_ADDR", "here"},
                                           {"MASTER_PORT", "29400"},
                                           {"SLURM_STEP_NODELIST", "there"},
                                           {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(address.host, "here");
  EXPECT_EQ(address.port, 29401);
}

TEST(Rendezvous, IsAtTheFirstNodeOfASlurmStep) {
  const RendezvousAddress address = *Find(
      {{"SLURM_STEP_NODELIST", "trn[003-004]"}, {"SLURM_JOB_ID", "1234567"}});
  EXPECT_EQ(address.host, "trn003");
  EXPECT_EQ(address.port, 24568);
}

TEST(Rendezvous, SaysWhatToSet) {
  for (const auto& variables :
       {std::map<std::string, std::string>{},
        {{"MASTER_ADDR", "here"}},
        {{"MASTER_ADDR", "here"}, {"MASTER_PORT", "65535"}},
        {{"MASTER_ADDR", "here"}, {"MASTER_PORT", "x"}}}) {
    const absl::Status status = Find(variables).status();
    EXPECT_NE(status.message().find("MASTER_PORT"), absl::string_view::npos);
  }
}

TEST(FirstHost, IsTheFirstOfASlurmHostList) {
  EXPECT_EQ(FirstHost("trn1"), "trn1");
  EXPECT_EQ(FirstHost("head,trn[1-2]"), "head");
  EXPECT_EQ(FirstHost("trn[001-004,7],head"), "trn001");
  EXPECT_EQ(FirstHost("trn[5,7]"), "trn5");
  EXPECT_EQ(FirstHost("queue-dy-trn1-[1-2]"), "queue-dy-trn1-1");
  EXPECT_EQ(FirstHost("rack[1-2]n[01-03]x,b"), "rack1n01x");
  EXPECT_EQ(FirstHost("trn[1"), "trn1");
  EXPECT_EQ(FirstHost(""), "");
}

}  // namespace
}  // namespace trnccl::perf
