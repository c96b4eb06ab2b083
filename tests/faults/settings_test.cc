// SPDX-License-Identifier: Apache-2.0
// Copyright (c) The trnccl Authors
//
// Settings, ids and addresses that can't work.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/collectives/ranks.h"
#include "tests/faults/outcome.h"

namespace trnccl {
namespace {

// Init of one rank with these settings and a short patience.
Outcome InitOf(const trncclUniqueId& id, int ranks, int rank,
               std::vector<std::string> settings) {
  settings.push_back("TRNCCL_BOOTSTRAP_TIMEOUT_MS=5s");
  std::vector<const char*> entries;
  for (const std::string& setting : settings)
    entries.push_back(setting.c_str());
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.settings = entries.data();
  config.settings_count = static_cast<int>(entries.size());
  trncclComm_t comm = nullptr;
  const Outcome outcome = OutcomeOf([&] {
    return trncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  });
  EXPECT_EQ(comm != nullptr, outcome.result == trncclSuccess);
  if (comm != nullptr) {
    EXPECT_CALL_OK(trncclCommDestroy(comm));
  }
  return outcome;
}

// What all ranks hear that have the same settings.
std::vector<Outcome> InitOfAll(int ranks,
                               const std::vector<std::string>& settings) {
  std::vector<Outcome> outcomes(ranks);
  RunThreads(ranks, [&](trncclUniqueId id, int rank) {
    outcomes[rank] = InitOf(id, ranks, rank, settings);
  });
  return outcomes;
}

struct Bad {
  std::string setting;
  std::vector<std::string> says;
};

TEST(BadSettings, AreRefusedByNameWithWhatsAllowed) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  for (const Bad& bad : std::vector<Bad>{
           {"TRNCCL_ALGORTIHM=ring", {"TRNCCL_ALGORTIHM", "TRNCCL_ALGORITHM?"}},
           {"TRNCCL_LANES=many", {"TRNCCL_LANES", "many", "0 to 8"}},
           {"TRNCCL_LANES=99", {"TRNCCL_LANES", "99", "0 to 8"}},
           {"TRNCCL_LANES", {"TRNCCL_LANES has no value"}},
           {"TRNCCL_ARENA_BYTES=1", {"TRNCCL_ARENA_BYTES", "64K"}},
           {"TRNCCL_WAIT=never", {"TRNCCL_WAIT", "spin"}},
           {"TRNCCL_TIMEOUT_MS=-1", {"TRNCCL_TIMEOUT_MS", "-1"}},
           {"", {"unknown setting"}},
           {"TRNCCL_TUNING_FILE=/no/such/file", {"/no/such/file"}}}) {
    const Outcome outcome = InitOf(id, 2, 0, {bad.setting});
    EXPECT_TRUE(outcome.result == trncclInvalidArgument ||
                outcome.result == trncclSystemError)
        << outcome.result;
    EXPECT_TRUE(Says(outcome, bad.says));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  }
}

TEST(BadSettings, AreRefusedInTheEnvironmentToo) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  setenv("TRNCCL_LANSE", "3", 1);
  const Outcome outcome = InitOf(id, 1, 0, {});
  unsetenv("TRNCCL_LANSE");
  EXPECT_EQ(outcome.result, trncclInvalidArgument);
  EXPECT_TRUE(Says(outcome, {"TRNCCL_LANSE", "TRNCCL_LANES?"}));
  EXPECT_EQ(InitOf(id, 1, 0, {}).result, trncclSuccess);
}

TEST(BadSettings, OfAConfigurationAreRefused) {
  trncclUniqueId id;
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  const auto refused = [&](const trncclConfig_t& config, const char* says) {
    trncclComm_t comm = nullptr;
    const Outcome outcome = OutcomeOf(
        [&] { return trncclCommInitRankConfig(&comm, 1, id, 0, &config); });
    EXPECT_EQ(outcome.result, trncclInvalidArgument);
    EXPECT_TRUE(Says(outcome, {says}));
  };
  const char* const entries[] = {"TRNCCL_LANES=1", nullptr};
  trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
  config.size = 3;
  refused(config, "TRNCCL_CONFIG_INITIALIZER");
  config = TRNCCL_CONFIG_INITIALIZER;
  config.settings_count = 1;
  refused(config, "setting 0 is null");
  config.settings = entries;
  config.settings_count = 2;
  refused(config, "setting 1 is null");
  config.settings_count = -1;
  refused(config, "negative");
  config = TRNCCL_CONFIG_INITIALIZER;
  config.timeout_ms = -1;
  refused(config, "negative");
}

// What all ranks have alike, and can't work, all ranks hear of.
TEST(BadSettings, ThatAllHaveFailOnAllRanks) {
  for (const Bad& bad : std::vector<Bad>{
           {"TRNCCL_ALGORITHM=all_reduce:rnig", {"TRNCCL_ALGORITHM", "rnig"}},
           {"TRNCCL_ALGORITHM=everything:ring", {"TRNCCL_ALGORITHM"}},
           {"TRNCCL_TRANSPORT=carrier_pigeon",
            {"TRNCCL_TRANSPORT", "carrier_pigeon", "shm"}}}) {
    for (const Outcome& outcome : InitOfAll(3, {bad.setting})) {
      EXPECT_NE(outcome.result, trncclSuccess);
      EXPECT_TRUE(Says(outcome, bad.says));
      EXPECT_LT(outcome.took_ms, kSoonMs);
    }
  }
}

TEST(BadSettings, ThatDifferNameBothRanksAndValues) {
  RunThreads(3, [](trncclUniqueId id, int rank) {
    const Outcome outcome =
        InitOf(id, 3, rank, {rank == 1 ? "TRNCCL_LANES=3" : "TRNCCL_LANES=2"});
    EXPECT_NE(outcome.result, trncclSuccess);
    EXPECT_TRUE(Says(outcome, {"TRNCCL_LANES", "2", "3", "rank 1"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  });
}

TEST(BadSettings, OfASplitThatDifferNameBothRanksAndValues) {
  RunRanks({.ranks = 3}, [](trncclComm_t comm, int rank) {
    const char* const setting =
        rank == 2 ? "TRNCCL_SEGMENT_BYTES=4K" : "TRNCCL_SEGMENT_BYTES=8K";
    trncclConfig_t config = TRNCCL_CONFIG_INITIALIZER;
    config.settings = &setting;
    config.settings_count = 1;
    trncclComm_t child = nullptr;
    const Outcome outcome =
        OutcomeOf([&] { return trncclCommSplit(comm, 0, 0, &child, &config); });
    EXPECT_EQ(outcome.result, trncclInvalidArgument);
    EXPECT_TRUE(Says(outcome,
                     {"rank 0", "rank 2", "TRNCCL_SEGMENT_BYTES", "4K", "8K"}));
    EXPECT_EQ(child, nullptr);
    EXPECT_TRUE(Works(comm));
  });
}

TEST(BadAddresses, InterfacesThatArentThere) {
  setenv("TRNCCL_SOCKET_IFNAME", "=no_such_interface", 1);
  trncclUniqueId id;
  const Outcome outcome = OutcomeOf([&] { return trncclGetUniqueId(&id); });
  unsetenv("TRNCCL_SOCKET_IFNAME");
  EXPECT_NE(outcome.result, trncclSuccess);
  EXPECT_TRUE(
      Says(outcome, {"no_such_interface", "TRNCCL_SOCKET_IFNAME", "lo"}));
}

TEST(BadIds, GarbageIsRefused) {
  trncclUniqueId id;
  std::memset(&id, 0, sizeof(id));
  EXPECT_EQ(InitOf(id, 2, 0, {}).result, trncclInvalidArgument);
  ASSERT_CALL_OK(trncclGetUniqueId(&id));
  trncclUniqueId damaged = id;
  damaged.internal[TRNCCL_UNIQUE_ID_BYTES - 1] ^= 0x40;
  const Outcome outcome = InitOf(damaged, 2, 0, {});
  EXPECT_EQ(outcome.result, trncclInvalidArgument);
  EXPECT_TRUE(Says(outcome, {"unique id", "128 bytes"}));
}

// Nobody listens there any more: no reason to wait for long.
TEST(BadIds, TheirMakerHasGone) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    trncclUniqueId id;
    const bool made = trncclGetUniqueId(&id) == trncclSuccess &&
                      write(pipe_fds[1], &id, sizeof(id)) == sizeof(id);
    _exit(made ? 0 : 1);
  }
  trncclUniqueId id;
  ASSERT_EQ(read(pipe_fds[0], &id, sizeof(id)), ssize_t{sizeof(id)});
  int status = -1;
  waitpid(maker, &status, 0);
  EXPECT_EQ(status, 0);
  const Outcome outcome = InitOf(id, 2, 1, {});
  EXPECT_NE(outcome.result, trncclSuccess);
  EXPECT_TRUE(Says(outcome, {"rank 1 of 2", ":"}));
  EXPECT_LT(outcome.took_ms, kSoonMs);
}

// No port is ever taken: each id has the one that the kernel chose for it.
TEST(ManyIds, NeverTakeEachOthersPorts) {
  constexpr int kIds = 50;
  std::vector<trncclUniqueId> ids(kIds);
  std::vector<std::thread> makers;
  for (trncclUniqueId& id : ids)
    makers.emplace_back([&id] { EXPECT_CALL_OK(trncclGetUniqueId(&id)); });
  for (std::thread& maker : makers) maker.join();
  std::vector<std::thread> ranks;
  for (const trncclUniqueId& id : ids) {
    for (const int rank : {0, 1}) {
      ranks.emplace_back([&id, rank] {
        trncclComm_t comm = nullptr;
        ASSERT_CALL_OK(trncclCommInitRank(&comm, 2, id, rank));
        EXPECT_TRUE(Works(comm));
        EXPECT_CALL_OK(trncclCommDestroy(comm));
      });
    }
  }
  for (std::thread& rank : ranks) rank.join();
}

// Of three ranks on nodes of their own, the last with a setting that the others
// don't have.
std::vector<Outcome> InitOfNodes(const std::string& odd) {
  std::vector<Outcome> outcomes(3);
  RunThreads(3, [&](trncclUniqueId id, int rank) {
    std::vector<std::string> settings = {
        absl::StrCat("TRNCCL_HOST_ID=node", rank),
        absl::StrCat("TRNCCL_FABRIC_ADAPTERS=lo,of", rank)};
    if (rank == 2) settings.push_back(odd);
    outcomes[rank] = InitOf(id, 3, rank, settings);
  });
  return outcomes;
}

TEST(UnlikeNodes, AllHearWhoLacksLibfabric) {
  for (const Outcome& outcome :
       InitOfNodes("TRNCCL_FABRIC_LIBRARY=/no/such/file")) {
    EXPECT_NE(outcome.result, trncclSuccess);
    EXPECT_TRUE(Says(
        outcome, {"rank 2: fabric", "/no/such/file", "TRNCCL_FABRIC_LIBRARY"}));
    EXPECT_LT(outcome.took_ms, kSoonMs);
  }
}

TEST(UnlikeNodes, AllHearWhoseNetworkDiffers) {
  for (const std::string& odd : std::vector<std::string>{
           "TRNCCL_TRANSPORT=shm", "TRNCCL_FABRIC_PROVIDER=tcp;ofi_rxm"}) {
    for (const Outcome& outcome : InitOfNodes(odd)) {
      EXPECT_NE(outcome.result, trncclSuccess);
      EXPECT_TRUE(Says(outcome, {"rank 2 (on ", "has " + odd}));
      EXPECT_LT(outcome.took_ms, kSoonMs);
    }
  }
}

}  // namespace
}  // namespace trnccl
